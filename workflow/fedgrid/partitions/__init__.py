"""Kinds of partitions, one file each: `dirichlet.py` has dir0.1, dir0.5 and so on.

A file has literal constants, which are read without importing it (and numpy), and a function:

    PATTERN    a regular expression for the names; its group, if any, is the number in a name
    EXAMPLE    an example of a name
    LABEL      the number as papers write it, such as "alpha={}"
    draw(labels, classes, clients, recipe, number, *names) -> Partition
               the samples of each client; `number` is a text, and `names` seed the draw

It may have:

    WRITERS    True if `draw` also takes `writers`, the writer of each sample, by that name
    MERGES     True if a client can have several writers: the protocol must say so by `merge`

The Snakefile imports this: no numpy here.
"""

import re
import unicodedata
from contextlib import suppress
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, registered, shown
from fedgrid.runtime.places import search

__path__ = search("partitions")  # with the folder of one's own paper

EACH_WRITER = "writers"  # as a protocol's `clients`: every writer of the dataset is a client


def parse_name(partition: str) -> tuple[str, str]:
    """Return the kind of a partition and the number in its name: ("dirichlet", "0.05")."""
    if found := match_name(partition):
        return found
    if match_name(spelled := spell_name(partition)):
        raise UsageError(f"the partition `{shown(partition)}` has one spelling: write {spelled}")
    kinds = (source.literal(f"partitions.{kind}", "EXAMPLE") for kind in registered("partitions"))
    raise UsageError(
        f"no partition is called `{shown(partition)}`: choose one such as {', '.join(kinds)}, with "
        "another number above 0 where there is one"
    )


@cache
def match_name(partition: str) -> tuple[str, str] | None:
    """Return the same as `parse_name`, but None for an unknown name, or for another spelling."""
    for kind in registered("partitions"):
        if match := re.fullmatch(source.literal(f"partitions.{kind}", "PATTERN"), partition):
            number = match[1] if match.re.groups else ""
            return (kind, number) if spell_number(number) == number else None
    return None


def spell_name(partition: str) -> str:
    """Return what a partition's name may stand for: DIR.10 for dir0.1, and a text in lower case."""
    plain = unicodedata.normalize("NFKC", partition).strip().lower()
    return re.sub(r"[+.]*\d.*", lambda number: spell_number(number[0]), plain, flags=re.DOTALL)


def spell_number(text: str) -> str:
    """Return a number in the fewest decimals that are read as it; another text as it is."""
    with suppress(ValueError):
        return f"{Decimal(repr(float(text))):f}".removesuffix(".0")
    return text


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
    if takes_writers(partition) and not there:
        raise UsageError(
            f"the partition {shown(partition)} needs the writer of each sample, and the dataset "
            f"{dataset} has none: name the client of each sample of your own data, or choose a "
            "dataset with `WRITERS = True` in its file"
        )


def takes_writers(partition: str) -> bool:
    """Whether the clients of a partition have whole writers."""
    return source.literal(f"partitions.{parse_name(partition)[0]}", "WRITERS", False)


def count_clients(clients: int | str, dataset: str) -> int | None:
    """Return a protocol's number of clients, also for EACH_WRITER.

    This is the number of writers in the dataset's file; None if only reading shows it.
    """
    if isinstance(clients, int):
        return clients
    there = source.literal(f"datasets.{dataset}", "WRITERS", True)
    return None if there is True else there


def check_merged(
    partition: str, dataset: str, clients: int | str, writers: int, merge: Any
) -> None:
    """Refuse a number of clients other than that of the writers; `merge` allows fewer."""
    kind, _ = parse_name(partition)
    if isinstance(clients, str) or not source.literal(f"partitions.{kind}", "MERGES", False):
        return
    if clients > writers:
        raise UsageError(
            f"{clients} clients are more than the {writers} writers of the training samples of "
            f"{dataset}: set `clients: writers`"
        )
    if clients < writers and not merge:
        raise UsageError(
            f"{dataset} has {writers} writers, and {clients} clients would share them, so that a "
            "client has the samples of several: set `clients: writers` for a client for each "
            "writer, or `merge: true` to join writers"
        )


def describe_clients(partition: str, dataset: str, clients: int | str, writers: int | None) -> str:
    """Return who the clients of a partition with whole writers are, by the number of writers."""
    where = f"{dataset}, partition {partition}"
    if writers is None:
        each = "a client for each writer" if isinstance(clients, str) else f"{clients} clients"
        published = count_clients(EACH_WRITER, dataset)
        whole = f", the published files have {published}" if published else ""
        return f"{where}: {each}; the number of writers is known when the data are read{whole}"
    if clients in (EACH_WRITER, writers):
        return f"{where}: {writers} clients, one for each writer"
    return f"{where}: {clients} clients share {writers} writers"


def draw_partition(
    partition: str, data: Any, clients: int | str, recipe: str, *names: Any, merge: bool = False
) -> Any:
    """Return the partition of a dataset's training samples; `names` seed the draw.

    UsageError if the partition needs writers and the dataset has none, and if clients share
    writers without `merge`.
    """
    kind, number = parse_name(partition)
    check_writers(partition, data.meta["dataset"], data.train_writers is not None)
    file, more = import_module(f"fedgrid.partitions.{kind}"), {}
    if getattr(file, "WRITERS", False):
        more, there = {"writers": data.train_writers}, len({*data.train_writers.tolist()})
        check_merged(partition, data.meta["dataset"], clients, there, merge)
        clients = there if clients == EACH_WRITER else clients
    return file.draw(data.train_labels, data.classes, clients, recipe, number, *names, **more)
