"""FedAdam: Adam on the server (Reddi et al., ICLR 2021; `_adaptive.py` has the equations).

v <- beta2 v + (1 - beta2) D^2
"""

from fedgrid.method import Method
from fedgrid.methods._adaptive import adapt

RANGES = {
    "lr": "(0, inf)",
    "beta1": "[0, 1)",
    "beta2": "[0, 1)",
    "tau": "(0, inf)",
    "form": ("paper", "code"),
}


def method(
    lr: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 0.001,
    form: str = "paper",
) -> Method:
    """lr: the server's learning rate; the others as in the equations."""
    return adapt("fedadam", lambda v, d2: beta2 * v + (1 - beta2) * d2, lr, beta1, tau, form, beta2)
