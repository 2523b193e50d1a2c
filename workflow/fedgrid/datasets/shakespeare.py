"""Shakespeare's plays by their roles: what is the next character? (LEAF, arXiv 1812.01097)

Nothing is downloaded. Under the root there must be all files of one of these layouts:

    shakespeare/all_data/*.json, or shakespeare/*.json   as LEAF's `preprocess.sh` makes them
    shakespeare/*.csv                        of the Hugging Face dataset `flwrlabs/shakespeare`
    shakespeare/data/train-*.parquet, or shakespeare/default/train/*.parquet   the same as parquet

If several are there, the first in this order is read. A sample is a window of 80 characters of what
a role says in a play, and the character that follows. LEAF joined the lines of a role with blanks,
and runs of blanks became one blank. The characters are tokens of LEAF's table (`_text.py`).

Roles are in the order of their names, and their windows in the order of the files. The first fifth
of a role's windows are test windows, as Li et al. (arXiv 2107.11954) have them. Nothing is drawn at
random, because neighbouring windows have 79 characters in common.

The whole dataset has 4,226,158 windows of 1,129 roles. Versions of LEAF's scripts differ, and they
can draw a part of it, so a warning tells other numbers and nothing is refused.
"""

from collections.abc import Iterable, Iterator
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
WRITERS = 1_129
TEST_WRITERS = True
HASHES = ()

GIVEN = (
    "shakespeare/all_data/*.json",
    "shakespeare/*.json",
    "shakespeare/*.csv",
    "shakespeare/data/train-*.parquet",
    "shakespeare/default/train/*.parquet",
)
MISSING = (
    "Shakespeare's plays are not in {}/shakespeare: put there LEAF's folder all_data with the "
    "*.json files that `preprocess.sh -s niid --sf 1.0 -k 0 -t sample` in LEAF's data/shakespeare "
    "makes, or the file shakespeare.csv of the Hugging Face dataset flwrlabs/shakespeare"
)
COLUMNS = ["character_id", "x", "y"]
TOTAL = (4_226_158, 1_129)  # windows and roles of the whole dataset


def load(root: Path) -> Split:
    """Read the layout that is there; UsageError for none, and for files of another form."""
    folder = root / "shakespeare"
    kind, paths = _leaf.find_files(root, GIVEN, MISSING)
    read = _read_json if kind == "json" else _read_table
    roles: dict[str, list[_text.Windows]] = {}
    for path in paths:
        with whole(f"Shakespeare's file {path}"):
            for role, part in read(path):
                roles.setdefault(role, []).append(part)
    if not roles:
        raise UsageError(f"the {kind} files of {folder} hold no windows: replace them")
    found = [_text.joined(roles.pop(role)) for role in sorted(roles)]
    _tell(folder, [labels for _, labels in found])
    return _text.split(found)


def _read_json(path: Path) -> Iterator[tuple[str, _text.Windows]]:
    """Yield the windows of each role of a file of LEAF's."""
    for where, role, rows, labels in _leaf.read_users(path, "role", "windows"):
        yield role, _windows(where, rows, labels)


def _read_table(path: Path) -> Iterator[tuple[str, _text.Windows]]:
    """Yield the windows of each role of a file that is a table."""
    table = _leaf.read_table(path, COLUMNS, "put shakespeare.csv beside data")
    for role, part in table.groupby("character_id", sort=False):
        yield str(role), _windows(f"{path}: the role {shown(role)}", part["x"], part["y"])


def _windows(where: str, rows: Iterable[str], labels: Iterable[str]) -> _text.Windows:
    """Return texts and the characters after them as tokens; an error begins with `where`."""
    rows, labels = list(rows), list(labels)
    for what, texts, length in (("window", rows, _text.LENGTH), ("label", labels, 1)):
        wrong = [text for text in texts if type(text) is not str or len(text) != length]
        if wrong:
            raise UsageError(
                f"{where} has the {what} `{shown(wrong[0])}`, expected a text of the length "
                f"{length}: replace the file"
            )
    inputs = _text.encode("".join(rows)).reshape(-1, _text.LENGTH)
    return inputs, _text.encode("".join(labels)).astype(np.int64)


def _tell(folder: Path, labels: list[np.ndarray]) -> None:
    """Warn of other numbers than the whole dataset's, and tell how many characters are unknown."""
    total, roles = sum(map(len, labels)), len(labels)
    if (total, roles) != TOTAL:
        cli.warn(
            f"{folder} holds {total} windows of {roles} roles, and the whole dataset "
            f"{TOTAL[0]} of {TOTAL[1]}: results cannot be compared with published ones"
        )
    _text.tell_unknown(folder, "next characters", labels)
