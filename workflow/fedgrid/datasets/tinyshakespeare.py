"""Tiny Shakespeare: 1.1 million characters of plays, by their speakers; what is the next character?

Nothing is downloaded. Under the root there must be `shakespeare/input.txt`, the file of Karpathy's
char-rnn: a speaker's name with a colon on a line of its own, the lines of the speech, and an empty
line. Any other text in this form may be there instead, and a warning says so. There is another one
if more than 2 % of its characters are not in LEAF's table, as in another script: all of these
become one token.

A speaker's speeches are joined in their order, and every run of blanks and ends of lines becomes
one blank, as in LEAF's Shakespeare (`shakespeare.py`). Every 80 characters of this text predict the
next one. Speakers with no more than 80 characters are left out: of the 309 names, 53. A name that
occurs in several plays, such as "First Citizen", is one speaker. The first fifth of a speaker's
windows, in order, are test windows (`_text.py`).
"""

import hashlib
import logging
import re
from pathlib import Path

import numpy as np

from fedgrid.datasets import Split, _leaf, _text
from fedgrid.runtime import cli
from fedgrid.runtime.files import whole
from fedgrid.runtime.names import UsageError, shown

TRAIN = None
TEST = None
CLASSES = 81
SHAPE = (80,)
STATISTICS = {}
TOKENS = 81
WRITERS = 256
TEST_WRITERS = True

GIVEN = ("shakespeare/input.txt",)
MISSING = (
    "Tiny Shakespeare is not in {}/shakespeare/input.txt: put there the file input.txt of "
    "char-rnn's data, or a text of your own in its form"
)
ORIGINAL = "86c4e6aa"  # first digits of the SHA-256 of the file

log = logging.getLogger(__name__)


def load(root: Path) -> Split:
    """Read the text; UsageError without it, for another form, and for too short speeches."""
    _, (path,) = _leaf.find_files(root, GIVEN, MISSING)
    texts = _speeches(path, _read(path))
    roles = [_text.encode(" ".join(texts[name].split())) for name in sorted(texts)]
    long = [tokens for tokens in roles if len(tokens) > _text.LENGTH]
    if not long:
        raise UsageError(
            f"{path}: none of its {len(roles)} speakers says more than {_text.LENGTH} characters: "
            "put a longer text there"
        )
    _tell(path, roles, long)
    return _text.split([_text.windows(tokens) for tokens in long])


def _read(path: Path) -> str:
    """Return the text of the file; UsageError if it is not UTF-8."""
    with whole(str(path)):
        content = path.read_bytes()
        if not hashlib.sha256(content).hexdigest().startswith(ORIGINAL):
            cli.warn(f"{path} is not the original Tiny Shakespeare: results are those of this text")
        return content.decode("utf-8-sig")


def _speeches(path: Path, text: str) -> dict[str, str]:
    """Return all that each speaker says; UsageError for a speech without its speaker's name."""
    found: dict[str, list[str]] = {}
    for speech in re.split(r"\n\s*\n", text.strip()):
        first, _, lines = speech.partition("\n")
        name = first.strip()
        if not (name.endswith(":") and name[:-1]):
            raise UsageError(
                f"{path}: a speech begins with `{shown(name)}`, expected the speaker's name and a "
                "colon on a line of its own: correct the file, or replace it by the original"
            )
        found.setdefault(name[:-1], []).append(lines)
    return {name: "\n".join(parts) for name, parts in found.items()}


def _tell(path: Path, roles: list[np.ndarray], long: list[np.ndarray]) -> None:
    """Log how many speakers are left out, and how many characters are not in the table."""
    log.info(
        "%s: %d of %d speakers are left out, because they say no more than %d characters",
        *(path, len(roles) - len(long), len(roles), _text.LENGTH),
    )
    _text.tell_unknown(path, "characters", long)
