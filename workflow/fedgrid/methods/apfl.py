"""APFL: each client mixes the shared model with one of its own (Deng, Kamani and Mahdavi, 2020).

"Adaptive Personalized Federated Learning" (arXiv:2003.13461). A client trains the shared model w as
FedAvg does. On the same batch its own model v follows the gradient of f(alpha v + (1 - alpha) w)
with respect to v, where w is the shared model as the client has trained it so far. The server
averages w alone, so its model is FedAvg's. A client is evaluated with the mixture.

With `adaptive`, alpha takes a step of SGD on the same loss in the first local step of each round,
and is cut to 0..1, as in the paper. FedTorch, the authors' code, mixes the outputs of both models
and not their parameters (`mix="outputs"`), and it mixes with w after w's step on the batch, where
the paper and this file take w before it. With the paper's order in that code, and a fixed alpha, w
and all v are equal to its own on the same batches, to 1e-15. Its step of alpha is not a step on the
loss: it goes along <v - w, alpha g_v + (1 - alpha) g_w> + 0.02 alpha, after both models' steps,
where g_v and g_w, the gradients with respect to v and w, have the factors alpha and 1 - alpha
already. Here the protocol's weight decay acts on alpha as on all parameters. BatchNorm's running
statistics of the mixture are the client's own.
"""

from functools import partial

from torch import Tensor

from fedgrid.method import Client, Method, Model, Step
from fedgrid.methods._partial import keep, two_losses
from fedgrid.models._second import Mixture
from fedgrid.runtime.names import UsageError

PRIVATE = ("private.", "alpha")
MODELS_KEPT = 1  # models per client
OPTIMISERS = ("sgd",)  # alpha rests in most steps, which Adam would count


def method(alpha: float = 0.5, adaptive: bool = False, mix: str = "parameters") -> Method:
    """alpha: the weight of the client's own model, in 0..1; mix: parameters or outputs."""
    if not 0 <= alpha <= 1:
        raise UsageError(f"apfl: alpha is {alpha}, and a weight is from 0 to 1")
    if mix not in ("parameters", "outputs"):
        raise UsageError(f"apfl: mix is parameters or outputs, not {mix!r}")

    def first_only(step: Step) -> dict[str, Tensor]:
        return {"alpha": (step.step == 0).to(step.valid)}

    def cut(client: Client) -> Model:
        return {"alpha": client.model["alpha"].clamp(0, 1)}

    mixture = partial(Mixture, alpha=alpha, outputs=mix == "outputs")
    mixed = Method(loss=two_losses, private=("alpha",), padded=True, optimisers=OPTIMISERS)
    moving = Method(rate=first_only, begin=cut, padded=True)
    return keep(mixture, True, False) | mixed | (moving if adaptive else Method(frozen=("alpha",)))
