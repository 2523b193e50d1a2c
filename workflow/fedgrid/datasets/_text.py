"""Characters as tokens, and the windows of a text that predict its next character.

The table of characters is LEAF's (arXiv 1812.01097): 80 symbols. Token 80 stands for all other
characters, so datasets have `TOKENS = 81` and as many classes.
"""

import logging

import numpy as np

from fedgrid.datasets import Split, _leaf
from fedgrid.runtime import cli

LENGTH = 80  # characters of a window
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = len(CHARACTERS)  # the token of every other character
MANY_UNKNOWN = 0.02  # share of unknown characters above which a warning is given

# The windows of a text, uint8 (n, length), and the token after each, int64 (n,).
Windows = tuple[np.ndarray, np.ndarray]

log = logging.getLogger(__name__)


def encode(text: str) -> np.ndarray:
    """Return the token of each character, uint8 (n,)."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    table = np.full(128, UNKNOWN, np.uint8)
    table[[*map(ord, CHARACTERS)]] = np.arange(len(CHARACTERS))
    return table[np.minimum(codes, 127)]  # no character of the table has the code 127


def tell_unknown(where: object, what: str, texts: list[np.ndarray]) -> None:
    """Log how many characters of a text are not in the table; a warning if these are many."""
    count, total = sum(int((text == UNKNOWN).sum()) for text in texts), sum(map(len, texts))
    sentence = f"{where}: {count} of {total} {what} are unknown, and share one token"
    if count <= MANY_UNKNOWN * total:
        log.info(sentence)
        return
    cli.warn(
        f"{sentence}, so a model that always predicts it is right for {count / total:.0%}: take a "
        "text in English letters, or number its characters in an .npz of your own, with `tokens`"
    )


def windows(tokens: np.ndarray, length: int = LENGTH) -> Windows:
    """Return every window of a text that has a next token, in order; none of a shorter text."""
    if len(tokens) <= length:
        return np.empty((0, length), np.uint8), np.empty(0, np.int64)
    rows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)
    return rows[:, :-1], rows[:, -1].astype(np.int64)


def split(roles: list[Windows]) -> Split:
    """Return the first fifth of each role's windows, in order, as test windows.

    It is rounded down, but at least one window of a role with two or more; a role with one window
    trains on it. A role is a writer, by its place in the list. So all roles train, and neighbouring
    windows overlap: what a test window predicts may be read in a training window.
    """
    sizes = np.array([len(labels) for _, labels in roles])
    firsts = _leaf.test_sizes(sizes)
    pairs = [*zip(roles, firsts.tolist(), strict=True)]
    train = joined([(rows[first:], labels[first:]) for (rows, labels), first in pairs])
    test = joined([(rows[:first], labels[:first]) for (rows, labels), first in pairs])
    numbers = np.arange(len(roles))
    return Split(*train, *test, np.repeat(numbers, sizes - firsts), np.repeat(numbers, firsts))


def joined(parts: list[Windows]) -> Windows:
    rows, labels = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(labels)
