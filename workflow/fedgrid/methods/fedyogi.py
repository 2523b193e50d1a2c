"""FedYogi: Yogi on the server (Reddi et al., ICLR 2021; `_adaptive.py` has the equations).

v <- v - (1 - beta2) D^2 sign(v - D^2), so that v falls slower than Adam's where D is small.
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
    return adapt(
        "fedyogi", lambda v, d2: v - (1 - beta2) * d2 * (v - d2).sign(), lr, beta1, tau, form, beta2
    )
