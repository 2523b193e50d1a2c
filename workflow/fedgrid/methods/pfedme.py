"""pFedMe: clients train models near one of their own, the server the centre (NeurIPS 2020).

T Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes". On each batch a
client approximates theta, which minimises f(theta) + lam / 2 |theta - w|^2, by `inner` steps with
the rate delta: theta <- theta - delta (grad f(theta) + lam (theta - w)). Then its local model w
follows the direction lam (w - theta), with the protocol's learning rate. The server moves from its
model to the mean of the local ones by the factor beta. A client is evaluated with theta after
`inner` steps on each batch of one epoch, where w is the server's model.

The official code begins theta with that of the last batch, here it begins with w. It adds mu theta
with mu = 0.001 to the gradient of theta, which the paper does not have (`mu`). It weighs the
sampled clients by their samples, as here; the paper's mean is that of `uniform`. If theta begins
with w in that code, the server's model is equal to its own on the same batches, to 1e-15, for mu 0
and 0.001. With lam delta = 1 and one inner step it is FedAvg.
"""

from collections.abc import Callable

from torch import Tensor

from fedgrid.method import Client, Memory, Method, Model, Step
from fedgrid.runtime.names import UsageError

PRIVATE = True
OPTIMISERS = ("sgd",)  # the direction is a gradient, whose length counts
ADDED = ("mu",)


def method(
    lam: float = 15.0, delta: float = 0.09, inner: int = 5, beta: float = 1.0, mu: float = 0.0
) -> Method:
    """lam, delta, beta above 0, inner >= 1, mu >= 0; beta 1 is the plain mean."""
    if mu < 0:
        raise UsageError(f"pfedme: mu is {mu}: set it to 0 or more")
    if min(lam, delta, beta) <= 0 or inner < 1:
        raise UsageError(
            f"pfedme: lam is {lam}, delta is {delta}, beta is {beta} and inner is {inner}: set the "
            "first three above 0, and inner to 1 or more"
        )

    def approach(theta: Model, w: Model, gradient: Callable[[Model], Model]) -> Model:
        for _ in range(inner):
            g = decayed(theta, gradient(theta)) if mu else gradient(theta)
            theta = theta | {n: theta[n] - delta * (g[n] + lam * (theta[n] - w[n])) for n in g}
        return theta

    def decayed(theta: Model, gradient: Model) -> Model:
        return {n: g + mu * theta[n] for n, g in gradient.items()}

    def outer(step: Step, gradient: Model) -> Model:
        theta = approach(step.params, step.params, step.gradient)
        return {n: lam * (step.params[n] - theta[n]) for n in gradient}

    def own(client: Client) -> Model:
        theta = client.model
        for x, y in client.epoch():

            def slope(at: Model, x: Tensor = x, y: Tensor = y) -> Model:
                return client.gradient(at, x, y)

            theta = approach(theta, client.model, slope)
        return theta

    def ahead(update: Model, shared: Memory) -> Model:
        return {n: beta * change for n, change in update.items()}

    server = None if beta == 1 else ahead
    return Method(correct=outer, personal=own, server=server, padded=True, optimisers=OPTIMISERS)
