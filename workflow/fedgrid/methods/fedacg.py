"""FedACG: clients start where the server's momentum will lead (Kim, Kim and Han, CVPR 2024).

With the server's model w, its momentum m and the clients' weighted mean change D of a round,

    the server sends s = w + lambda m
    a client adds beta / 2 |v - s|^2 to its loss, over its parameters v
    m <- lambda m + D        w <- w + m

which makes the new w the mean of the local models. The model of the server is s here, because that
is what it sends; it is evaluated by w = s - lambda m.

In the authors' code all clients of a round weigh the same (combine with `uniform`), and the penalty
is beta |v - s|^2. With `uniform` and twice the beta, the evaluated model is equal to that of this
code on the same batches, to 1e-15, in a network without BatchNorm. In that code BatchNorm's running
statistics have a momentum, too, gradients are clipped to the norm 10 (`clip`), and the learning
rate also falls from one local epoch to the next, by the factor by which it falls from round to
round.
"""

from typing import Any

from fedgrid.method import Cohort, Memory, Method, Model, Server, Start
from fedgrid.methods import fedprox

NEUTRAL = {"momentum": 0.0, "beta": 0.0}  # with which it is FedAvg
RANGES = {"momentum": "[0, 1)", "beta": "[0, inf)"}


def method(momentum: float = 0.85, beta: float = 0.01) -> Method:
    """momentum: lambda. With 0 and beta 0 it is FedAvg."""

    def still(start: Start) -> Memory:
        return {"fedacg": start.zeros()}

    def remember(cohort: Cohort, update: Model) -> Memory:
        before = cohort.shared["fedacg"]
        return {"fedacg": {n: momentum * before[n] - change for n, change in update.items()}}

    def step(update: Model, shared: Memory) -> Model:
        return {n: change - momentum * shared["fedacg"][n] for n, change in update.items()}

    def deploy(server: Server) -> Model:
        ahead = server.shared["fedacg"]
        return {n: server.model[n] - momentum * m for n, m in ahead.items() if n in server.model}

    kept: dict[str, Any] = {"shared": still, "share": remember, "uses_deltas": False}
    return fedprox.method(beta) | Method(server=step, deploy=deploy, **kept)
