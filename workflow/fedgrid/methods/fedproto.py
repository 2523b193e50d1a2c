"""FedProto: clients share class prototypes and no parameters (Tan et al., AAAI 2022).

Tan, Long, Liu, Zhou, Lu, Jiang and Zhang, "FedProto: Federated Prototype Learning across
Heterogeneous Clients". All entries of the model stay at their client. Clients and server exchange
the mean features of each class (`_prototypes.py`), and a client is evaluated with its own model.

The paper's term has the distance between local and global prototype of each class. As in the
official code, the term here has the difference of every sample's features from the prototype, and
clients have equal weights; `average="samples"` weighs by the class's samples, as the paper does.
That code takes local prototypes from features of the last training epoch, here they are those of
the trained model. With prototypes of the trained model in that code, all clients' models are equal
to its own on the same batches, bit for bit. It keeps no prototype of a class that is absent from a
round. With lam = 0 each client trains alone.
"""

from collections.abc import Iterable

from torch import nn

from fedgrid.method import Method
from fedgrid.methods._prototypes import pull

RANGES = {"lam": "[0, inf)", "average": ("equal", "samples")}
PRIVATE = True
MODELS_KEPT = 1  # models per client


def method(lam: float = 1.0, average: str = "equal") -> Method:
    """lam weighs the term; average: how clients weigh in a prototype."""
    return pull(lam, average) | Method(private=(everything,))


def everything(network: nn.Module) -> Iterable[str]:
    """Return the names of all entries of the network."""
    return [*network.state_dict()]
