"""Try a method, model, dataset or partition, and say what is wrong with it, in seconds.

    python -m fedgrid check fedsam
    python -m fedgrid check fedprox-mu0.1
    python -m fedgrid check cnn --dataset cifar10
    python -m fedgrid check flowers
    python -m fedgrid check dir0.1 --dataset flowers --protocol fedsls-quick

A method plays some rounds on a tiny federation in both backends, twice, interrupted and resumed,
with padded batches, on a simulated GPU and, if its file has NEUTRAL hyper-parameters, against
FedAvg. A model is made twice, is measured, and trains some rounds of FedAvg in both backends. A
dataset is decoded, twice unless its file has HASHES; its files are downloaded if they are missing.
A partition is drawn twice. The command prints what each consists of, and a sentence for each
problem.
"""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedgrid.partitions import match_name, spell_name
from fedgrid.runtime import cli
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, in_words, registered
from fedgrid.study.grid import read_names
from fedgrid.study.resolving import Resolver

KINDS = ("method", "model", "dataset", "partition")
NOISY = ("fedgrid.engine", "fedgrid.stages")  # loggers
NO_METHOD = "fedavg"  # whose names the run of a partition has


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("name", help="of a method, with values or not, a model, and so on")
    parser.add_argument("--kind", choices=KINDS, help="of a name that several have")
    parser.add_argument(
        "--dataset", default="digits", help="for a model or a partition (default: digits)"
    )
    parser.add_argument(
        "--protocol", default="fedsls-quick", help="for a partition (default: fedsls-quick)"
    )
    parser.add_argument("--root", type=Path, default=cli.DATA, help="folder of the originals")
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="which has your variants"
    )
    asked = parser.parse_args(arguments)
    names = read_names(asked.config)
    with without_warnings():
        findings = try_it(asked.kind or find_kind(asked.name, names), asked, names)
    for name, place, gave in findings.hooks:
        print(f"{name:16} {place}: {gave}")
    for name, value in findings.facts.items():
        print(f"{name:16} {value}")
    for problem in findings.problems:
        print(f"problem: {problem}")
    if findings.problems:
        sys.exit(1)
    print(f"{asked.name}: no problem was found")


@contextmanager
def without_warnings() -> Iterator[None]:
    """Log errors of training and stages only, because the findings say what is wrong."""
    levels = {logger: logger.level for logger in map(logging.getLogger, NOISY)}
    try:
        for logger in levels:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def find_kind(name: str, names: Resolver) -> str:
    """Return what has the name; UsageError if nothing has, or several things."""
    there = {
        "method": names.knows("method", name),
        "model": name in registered("models"),
        "dataset": name in own_data.list_datasets(),
        "partition": match_name(name) is not None,
    }
    found = [kind for kind, has in there.items() if has]
    if len(found) > 1:
        raise UsageError(f"{name} is a {in_words(found)}: say which one with --kind {found[0]}")
    if found:
        return found[0]
    if match_name(spell_name(name)):
        return "partition"  # whose name has another spelling
    if not any(name.startswith(f"{base}-") for base in names.methods()):
        every = [*names.methods(), *registered("models"), *own_data.list_datasets()]
        names.studies.known(f"{', '.join(KINDS[:-1])} or {KINDS[-1]}", name, every)
    return "method"  # with values that it cannot have


def try_it(kind: str, asked: argparse.Namespace, names: Resolver) -> Any:
    if kind == "method":
        method = names.method(asked.name, "digits")
        from fedgrid.checking.method import check

        return check(method)
    for_dataset = asked.name if kind == "dataset" else asked.dataset
    names.check_name("dataset", for_dataset)
    from fedgrid.checking import parts

    if kind == "dataset":
        return parts.check_dataset(asked.name, asked.root)
    if kind == "model":
        return parts.check_model(asked.name, asked.dataset, asked.root)
    run = {"protocol": asked.protocol, "dataset": asked.dataset, "partition": asked.name}
    names.check_name("partition", asked.name)
    resolved = names.resolve(run | {"method": NO_METHOD, "seed": 0})
    return parts.check_partition(asked.name, resolved, asked.root)


if __name__ == "__main__":
    cli.run(main)
