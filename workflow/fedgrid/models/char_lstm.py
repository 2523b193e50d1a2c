"""The next-character LSTM of LEAF and of Li et al. (2021), with 256 units (`_char_lstm.py`).

It has 820,185 parameters for 81 symbols and as many classes.
"""

from torch import nn

from fedgrid.models import _char_lstm

WEIGHTS = {}  # no weights are published
TOKENS = True
BLOCKS = ("embedding", "lstm1", "lstm2", "head")
ENCODER = 3
initialise = _char_lstm.initialise


def body(shape: tuple[int], tokens: int, width: int = 256) -> tuple[nn.Module, int]:
    """Return the body, for sequences of any length."""
    return _char_lstm.body(tokens, width)
