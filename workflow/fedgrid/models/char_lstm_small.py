"""The next-character LSTM with 64 units, for quick studies (`_char_lstm.py`)."""

from torch import nn

from fedgrid.models import _char_lstm

WEIGHTS = {}  # no weights are published
TOKENS = True
BLOCKS = ("embedding", "lstm1", "lstm2", "head")
ENCODER = 3
initialise = _char_lstm.initialise


def body(shape: tuple[int], tokens: int, width: int = 64) -> tuple[nn.Module, int]:
    """Return the body, for sequences of any length."""
    return _char_lstm.body(tokens, width)
