"""FedRep: train the classifier first, then the body (Collins et al., ICML 2021).

Each client keeps its classifier. In the first share of its local steps it trains this alone, and in
the others the body alone, which the server averages. The other part, and its momentum, rest
meanwhile.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.runtime.names import UsageError

PRIVATE = ("head.",)
OPTIMISERS = ("sgd",)  # a resting parameter would have other steps than Adam counts


def method(head_share: float = 0.5) -> Method:
    """head_share: the share of a client's local steps that train its classifier, in 0..1."""
    return phases("fedrep", head_share) | Method(private=PRIVATE)


def phases(name: str, head_share: float) -> Method:
    """Return the two phases of the local training of the method `name`."""
    if not 0 <= head_share <= 1:
        raise UsageError(f"{name}: head_share is {head_share}, and a share is from 0 to 1")

    def phase(step: Step) -> dict[str, Tensor]:
        first = (step.step < step.steps * head_share).to(step.valid)
        return {n: first if n.startswith(PRIVATE) else 1 - first for n in step.params}

    return Method(rate=phase, padded=True, optimisers=OPTIMISERS)
