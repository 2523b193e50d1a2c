"""FedProx: a proximal term holds local models near the server's (Li et al., MLSys 2020)."""

from torch import Tensor

from fedgrid.method import Method, Step


def method(mu: float = 0.01) -> Method:
    """mu >= 0 weighs mu/2 ||w - w_server||^2 over all parameters; 0 is FedAvg."""

    def proximity(step: Step) -> Tensor:
        distance = sum((w - step.server[name]).square().sum() for name, w in step.params.items())
        return mu / 2 * distance

    return Method(penalty=proximity, padded=True)
