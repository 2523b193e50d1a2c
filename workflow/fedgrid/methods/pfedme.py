"""pFedMe: clients train models near one of their own, the server the centre (NeurIPS 2020).

T Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes". On each batch a
client approximates theta, which minimises f(theta) + lam / 2 |theta - w|^2, by `inner` steps with
the rate delta: theta <- theta - delta (grad f(theta) + lam (theta - w)). Then its local model w
follows the direction lam (w - theta), with the protocol's learning rate. The server moves from its
model to the mean of the local ones by the factor beta. A client is evaluated with theta after
`inner` steps on each batch of one epoch, where w is the server's model.

In the official code theta begins with that of the last batch, and in each round with the server's
model (`form="code"`); in the paper, and by default here, it begins with w on each batch. With this
form, the server's model, and each client's theta after its last batch, are equal to those of that
code on the same batches, to 1e-15, in a network without BatchNorm. That code also adds mu theta
with mu = 0.001 to the gradient of theta, which the paper does not have (`mu`). It weighs the
sampled clients by their samples, as here; the paper's mean is that of `uniform`. With
lam delta = 1 and one inner step the paper's form is FedAvg.
"""

from collections.abc import Callable

from torch import Tensor

from fedgrid.method import Client, Memory, Method, Model, Step
from fedgrid.methods._partial import keep
from fedgrid.models._branches import PRIVATE as OWN
from fedgrid.models._second import Apart

RANGES = {
    "lam": "(0, inf)",
    "delta": "(0, inf)",
    "inner": "[1, inf)",
    "beta": "(0, inf)",
    "mu": "[0, inf)",
    "form": ("paper", "code"),
}
PRIVATE = True
OPTIMISERS = ("sgd",)  # the direction is a gradient, whose length counts
ADDED = ("mu", "form")


def method(
    lam: float = 15.0,
    delta: float = 0.09,
    inner: int = 5,
    beta: float = 1.0,
    mu: float = 0.0,
    form: str = "paper",
) -> Method:
    """With beta 1 the server takes the plain mean; form: where theta begins on a batch."""
    carried = form == "code"

    def approach(theta: Model, w: Model, gradient: Callable[[Model], Model]) -> Model:
        for _ in range(inner):
            g = decayed(theta, gradient(theta)) if mu else gradient(theta)
            theta = theta | {n: theta[n] - delta * (g[n] + lam * (theta[n] - w[n])) for n in g}
        return theta

    def decayed(theta: Model, gradient: Model) -> Model:
        return {n: g + mu * theta[n] for n, g in gradient.items()}

    def outer(step: Step, gradient: Model) -> Model:
        places = {n: OWN + n for n in gradient} if carried else {}
        begun = step.params | {n: step.params[place] for n, place in places.items()}
        theta = approach(begun, step.params, step.gradient)
        away = {n: lam * (step.params[n] - theta[n]) for n in gradient}
        return away | {place: theta[n] for n, place in places.items()}

    def own(client: Client) -> Model:
        theta = client.model
        for x, y in client.epoch():

            def slope(at: Model, x: Tensor = x, y: Tensor = y) -> Model:
                return client.gradient(at, x, y)

            theta = approach(theta, client.model, slope)
        return as_theta(theta) if carried else theta

    def ahead(update: Model, shared: Memory) -> Model:
        return {n: beta * change for n, change in update.items()}

    server = None if beta == 1 else ahead
    made = Method(correct=outer, personal=own, server=server, padded=True, optimisers=OPTIMISERS)
    return made | kept_by_client() if carried else made


def kept_by_client() -> Method:
    """Return a method whose clients keep theta, which the optimiser does not move."""
    return keep(Apart, True, False) | Method(
        frozen=(OWN,), begin=lambda client: as_theta(client.server), padded=True
    )


def as_theta(model: Model) -> Model:
    """Return the shared entries of a model under the names of theta."""
    return {OWN + name: entry for name, entry in model.items() if not name.startswith(OWN)}
