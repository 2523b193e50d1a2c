"""The placebo of FedProto: features are pulled to prototypes of random classes.

The order of the classes is drawn anew for each client in each round. What FedProto gains over this
placebo is due to the prototypes of a sample's own class, and not to the pull.
"""

from fedgrid.method import Method
from fedgrid.methods._prototypes import pull
from fedgrid.methods.fedproto import everything

RANGES = {"lam": "[0, inf)", "average": ("equal", "samples")}
PRIVATE = True
MODELS_KEPT = 1  # models per client


def method(lam: float = 1.0, average: str = "equal") -> Method:
    """lam >= 0 weighs the term; average: equal or samples, of clients in a prototype."""
    return pull(lam, average, shuffled=True) | Method(private=(everything,))
