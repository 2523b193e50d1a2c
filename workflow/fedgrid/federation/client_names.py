"""The names of clients: those of the writers whose samples they have.

Writers have names in data of one's own, where they are the clients of the data. Where a writer has
samples with several clients, as in an iid partition, its name is the name of no client.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.federation.members import Partition
from fedgrid.runtime import files


def find_names(
    made: Partition, writers: np.ndarray | None, names: Sequence[str]
) -> list[list[str]]:
    """Return the names of each client's writers; no lists without names, and for a shared writer.

    `writers` is the writer of each training sample, and `names` has the names of the writers.
    """
    if writers is None or not names:
        return []
    parts = [made.members, made.validation, [] if made.tests_from_test_set else made.tests]
    clients = [np.concatenate(lists) for lists in zip(*filter(None, parts), strict=True)]
    own = [np.unique(writers[ids]) for ids in clients]
    shared = np.bincount(np.concatenate(own)).max() > 1
    return [] if shared else [[names[writer] for writer in of] for of in own]


def write_names(found: list[list[str]], partition: Path) -> list[Path]:
    """Write a .csv with the names of each client beside a partition; without names there is none.

    Return the files that there are.
    """
    path = partition.with_name(f"{partition.stem}.clients.csv")
    if not found:
        path.unlink(missing_ok=True)  # of another partition under this name
        return []
    rows = [(client, name) for client, own in enumerate(found) for name in own]
    said: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    with files.replacing(path) as temporary, temporary.open("w", **said) as file:
        csv.writer(file, lineterminator="\n").writerows([("client", "client_name"), *rows])
    return [path]
