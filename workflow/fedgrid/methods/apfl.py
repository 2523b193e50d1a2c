"""APFL: each client mixes the shared model with one of its own (Deng, Kamani and Mahdavi, 2020).

"Adaptive Personalized Federated Learning" (arXiv:2003.13461). A client trains the shared model w as
FedAvg does. On the same batch its own model v follows the gradient of f(alpha v + (1 - alpha) w)
with respect to v, where w is the shared model as the client has trained it so far. The server
averages w alone, so its model is FedAvg's. A client is evaluated with the mixture.

With `adaptive`, alpha takes a step of SGD on the same loss in the first local step of each round,
and is cut to 0..1, as in the paper. Here the protocol's weight decay acts on alpha as on all
parameters.

FedTorch, the authors' code, mixes the outputs of both models and not their parameters
(`mix="outputs"`), and it mixes with w after w's step on the batch, where the paper takes w before
it. Its step of alpha, after both models' steps, is not a step on the loss: it goes along
<v - w, alpha g_v + (1 - alpha) g_w> + 0.02 alpha, where g_v and g_w, the gradients with respect to
v and w, have the factors alpha and 1 - alpha already. `form="code"` is this order and this step.
With it and mixed outputs, w, all v and all alpha are equal to those of that code on the same
batches, to 1e-15, in a network without BatchNorm. The steps that this form looks ahead are those of
SGD without momentum and weight decay.

BatchNorm's running statistics of the mixture are the client's own; each batch changes them once, by
w and v as they are before their steps.
"""

from functools import partial

import torch
from torch import Tensor

from fedgrid.method import Client, Method, Model, Step
from fedgrid.methods._partial import keep, two_losses
from fedgrid.models._branches import PRIVATE as OWN
from fedgrid.models._second import Mixture

RANGES = {"alpha": "[0, 1]", "mix": ("parameters", "outputs"), "form": ("paper", "code")}
PRIVATE = ("private.", "alpha")
MODELS_KEPT = 1  # models per client
OPTIMISERS = ("sgd",)  # alpha rests in most steps, which Adam would count
ADDED = ("form",)


def method(
    alpha: float = 0.5, adaptive: bool = False, mix: str = "parameters", form: str = "paper"
) -> Method:
    """alpha: the weight of the client's own model; mix: what is mixed.

    form: the order of the steps, and alpha's step.
    """
    code = form == "code"

    def first_only(step: Step) -> dict[str, Tensor]:
        return {"alpha": (step.step == 0).to(step.valid)}

    def cut(client: Client) -> Model:
        return {"alpha": client.model["alpha"].clamp(0, 1)}

    mixture = partial(Mixture, alpha=alpha, outputs=mix == "outputs")
    mixed = Method(loss=two_losses, private=("alpha",), padded=True, optimisers=OPTIMISERS)
    moving = Method(rate=first_only, begin=cut, padded=True)
    still = Method(frozen=("alpha",))
    ordered = Method(correct=partial(in_turn, adaptive=adaptive), padded=True)
    base = keep(mixture, True, False) | mixed
    return base | (still | ordered if code else moving if adaptive else still)


def in_turn(step: Step, gradient: Model, adaptive: bool) -> Model:
    """Return the gradients of w and, at w after its step, of v; with `adaptive` also new alpha."""
    v = {n: step.params[OWN + n] for n in gradient if OWN + n in gradient}
    w = {n: step.params[n] - step.lr * gradient[n] for n in v}
    alpha = step.params["alpha"]
    g_v = slope(step, v, w, alpha)
    # The gradient with respect to w is that with respect to v where both have changed places.
    g_w = slope(step, w, v, 1 - alpha) if adaptive else {}
    own = {OWN + n: g for n, g in g_v.items()}
    return gradient | own | ({"alpha": next_alpha(step, v, w, g_v, g_w)} if adaptive else {})


def slope(step: Step, v: Model, w: Model, alpha: Tensor) -> Model:
    """Return the gradient of the mixture's loss with respect to v, which has the weight alpha."""
    own = {OWN + n: entry for n, entry in v.items()}
    found = step.gradient(step.params | w | own | {"alpha": alpha})
    return {n: found[OWN + n] for n in v}


def next_alpha(step: Step, v: Model, w: Model, g_v: Model, g_w: Model) -> Tensor:
    """Return alpha after its step in that code, which it takes in the first step of a round."""
    alpha, along = step.params["alpha"], 0.02 * step.params["alpha"]
    for n, g in g_v.items():
        apart = v[n] - step.lr * g - w[n]
        along = along + (apart * (alpha * g + (1 - alpha) * g_w[n])).sum()
    new = (alpha - step.lr * along).clamp(0, 1)
    return torch.where(step.step == 0, new, alpha)
