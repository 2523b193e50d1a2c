"""Kinds of partitions, one file each: `dirichlet.py` has dir0.1, dir0.5 and so on.

A file has literal constants, which are read without importing it (and numpy), and a function:

    PATTERN    a regular expression for the names; its group, if any, is the number in a name
    EXAMPLE    an example of a name
    LABEL      the number as papers write it, such as "alpha={}"
    draw(labels, classes, clients, recipe, number, *names) -> Partition
               the samples of each client; `number` is a text, and `names` seed the draw

It may have:

    WRITERS    True if `draw` also takes `writers`, the writer of each sample, by that name

The Snakefile imports this: no numpy here.
"""

import re
from functools import cache
from importlib import import_module
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, registered, shown


def parse_name(partition: str) -> tuple[str, str]:
    """Return the kind of a partition and the number in its name: ("dirichlet", "0.05")."""
    if found := match_name(partition):
        return found
    kinds = (source.literal(f"partitions.{kind}", "EXAMPLE") for kind in registered("partitions"))
    raise UsageError(
        f"no partition is called `{shown(partition)}`: choose one such as {', '.join(kinds)}, with "
        "another number above 0 where there is one"
    )


@cache
def match_name(partition: str) -> tuple[str, str] | None:
    """Return the same as `parse_name`, but None for an unknown name."""
    for kind in registered("partitions"):
        if match := re.fullmatch(source.literal(f"partitions.{kind}", "PATTERN"), partition):
            return kind, match[1] if match.re.groups else ""
    return None


def write_label(partition: str) -> str:
    """Return a partition as papers write it: alpha=0.05 or s=2; other names stay as they are."""
    if not (found := match_name(str(partition))):
        return partition
    kind, number = found
    return source.literal(f"partitions.{kind}", "LABEL").format(number)


@cache
def label_names() -> frozenset[str]:
    """Return what the labels of partitions call their numbers: alpha, s."""
    labels = (source.literal(f"partitions.{kind}", "LABEL") for kind in registered("partitions"))
    return frozenset(label.partition("=")[0] for label in labels if "=" in label)


def check_writers(partition: str, dataset: str, there: bool) -> None:
    """Refuse a partition that needs writers, with a dataset that has none `there`."""
    kind, _ = parse_name(partition)
    if source.literal(f"partitions.{kind}", "WRITERS", False) and not there:
        raise UsageError(
            f"the partition {shown(partition)} needs the writer of each sample, and the dataset "
            f"{dataset} has none: name the client of each sample of your own data, or choose a "
            "dataset with `WRITERS = True` in its file"
        )


def draw_partition(partition: str, data: Any, clients: int, recipe: str, *names: Any) -> Any:
    """Return the partition of a dataset's training samples; `names` seed the draw.

    UsageError if the partition needs writers and the dataset has none.
    """
    kind, number = parse_name(partition)
    check_writers(partition, data.meta["dataset"], data.train_writers is not None)
    file = import_module(f"fedgrid.partitions.{kind}")
    more = {"writers": data.train_writers} if getattr(file, "WRITERS", False) else {}
    return file.draw(data.train_labels, data.classes, clients, recipe, number, *names, **more)
