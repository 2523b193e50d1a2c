"""The files of LEAF's datasets (arXiv 1812.01097): JSON as its scripts write it, or tables.

A JSON file has `users`, the number of samples of each as `num_samples`, and `user_data`: the inputs
`x` and the labels `y` of each user. A table has a row per sample.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.runtime.names import UsageError, shown


def test_sizes(sizes: np.ndarray) -> np.ndarray:
    """Return how many of the samples of each user (n,) are test samples.

    It is a fifth, rounded down, but at least one of two or more: the code of Li et al. (arXiv
    2107.11954) has `max(int(0.2 n), 1)`. There a user with one sample only tests; here it trains.
    """
    return np.where(sizes > 1, np.maximum(sizes // 5, 1), 0)


def find_files(root: Path, patterns: tuple[str, ...], missing: str) -> tuple[str, list[Path]]:
    """Return the kind of file and all files of the first pattern that has one, by their names.

    UsageError, with the text `missing` of the root, without a file.
    """
    for pattern in patterns:
        if paths := sorted(root.glob(pattern)):
            return paths[0].suffix[1:], paths
    raise UsageError(missing.format(root))


def read_users(path: Path, who: str, what: str) -> Iterator[tuple[str, str, list[Any], list[Any]]]:
    """Yield file and user as an error names them, the user's name, its inputs and its labels.

    `who` and `what` are the words for a user and its inputs. UsageError for a user without samples,
    or with another number of them than the file says.
    """
    content = json.loads(path.read_bytes())
    for user, count in zip(content["users"], content["num_samples"], strict=True):
        own, where = content["user_data"].pop(user), f"{path}: the {who} {shown(user)}"
        if not count or not len(own["x"]) == len(own["y"]) == count:
            raise UsageError(
                f"{where} has {len(own['x'])} {what} and {len(own['y'])} labels, expected "
                f"{count or 'some'} of both: replace the file"
            )
        yield where, user, own["x"], own["y"]


def read_table(path: Path, columns: list[str], otherwise: str) -> Any:
    """Return the columns of a .csv or .parquet file as texts, or as parquet has them.

    UsageError, with the advice `otherwise`, if it needs a package that is not installed.
    """
    import pandas as pd

    if path.suffix == ".csv":
        return pd.read_csv(path, usecols=columns, dtype=str, keep_default_na=False)
    try:
        return pd.read_parquet(path, engine="pyarrow", columns=columns)
    except ImportError:
        raise UsageError(
            f"{path} can be read with the package pyarrow only: install pyarrow, or {otherwise}"
        ) from None
