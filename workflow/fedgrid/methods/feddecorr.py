"""FedDecorr: penalise correlated features, against dimensional collapse (Shi et al., ICLR 2023).

The paper's formula is the squared Frobenius norm of the correlation matrix, divided by D^2. The
official code's term is about (n-1)^2/n times larger and omits the diagonal. The authors' beta
belongs to the code's scale, which is the default (`scale="code"`); `scale="paper"` is the formula.
"""

import torch
from torch import Tensor

from fedgrid.method import Method, Step

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "scale": ("code", "paper")}


def method(beta: float = 0.1, scale: str = "code") -> Method:
    """beta weighs the term; 0 is FedAvg."""

    def decorrelate(step: Step) -> Tensor:
        n, dims = step.size, step.features.shape[1]
        free = (n - 1).clamp(min=1)
        centred = (step.features - step.mean(step.features)) * step.valid[:, None]
        z = centred / torch.sqrt(1e-8 + centred.square().sum(0) / free)
        product = z.T @ z
        if scale == "paper":
            return beta * (product / free).square().sum() / dims**2
        off_diagonal = product.square().sum() - product.diagonal().square().sum()
        return beta * off_diagonal / (n * dims * (dims - 1))

    return Method(penalty=decorrelate, padded=True)
