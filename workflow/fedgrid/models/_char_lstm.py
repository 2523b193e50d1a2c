"""The next-character network of LEAF (Caldas et al., 2018): an embedding and two LSTM layers.

The two layers are modules of their own, so that a method can keep one of them private. They are the
same function as one `nn.LSTM` of two layers. The state before the first character is zero, and the
features are the second layer's output after the last one. Initial weights are PyTorch's but for the
head's, which are drawn as in the code of Li et al. (2021).
"""

from collections import OrderedDict

from torch import Tensor, nn

from fedgrid.models import Classifier

SYMBOL = 8  # numbers that describe a symbol


class Layer(nn.LSTM):
    """An LSTM layer: (B, length, before) -> (B, length, after), or with `last` (B, after)."""

    def __init__(self, before: int, after: int, last: bool = False):
        super().__init__(before, after, batch_first=True)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return the outputs after all symbols, or after the last one."""
        outputs, _ = super().forward(x)
        return outputs[:, -1] if self.last else outputs


def body(tokens: int, width: int) -> tuple[nn.Module, int]:
    """Return the body: tokens (B, length) -> features (B, width)."""
    layers = OrderedDict(
        embedding=nn.Embedding(tokens, SYMBOL),
        lstm1=Layer(SYMBOL, width),
        lstm2=Layer(width, width, last=True),
    )
    return nn.Sequential(layers), width


def initialise(model: Classifier) -> None:
    """Draw the head's weights again, from a normal distribution."""
    nn.init.normal_(model.head.weight, 0, 0.01)
    nn.init.zeros_(model.head.bias)
