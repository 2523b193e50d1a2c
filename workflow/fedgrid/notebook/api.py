"""Train one run in this process, as in a notebook: `fedgrid.run`. No Snakemake is needed.

The stages are those of the commands, one after the other, so the numbers are those of the same run
on the command line, to the byte.
"""

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedgrid.method import Method
from fedgrid.notebook import names as given
from fedgrid.notebook.result import Result
from fedgrid.notebook.session import explain_errors, isolate_settings
from fedgrid.notebook.stages import make_inputs, train_run
from fedgrid.runtime import cli
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, known, listed, registered
from fedgrid.study.checks import check_keywords
from fedgrid.study.command import Machine
from fedgrid.study.grid import Grid
from fedgrid.study.reading import read_studies, use_studies
from fedgrid.training.build import build_part


def run(
    method: str | Method = given.PLAIN,
    *,
    dataset: str = "digits",
    partition: str = "dir0.1",
    protocol: str = "fedsls-quick",
    seed: int = 0,
    name: str = "",
    results: str | Path | None = None,
    data_root: str | Path = cli.DATA,
    device: str = "auto",
    backend: str = "auto",
    threads: int = 1,
    compile: str = "auto",
    config: dict | None = None,
    **values: Any,
) -> Result:
    """Train a run in this process, and return its result.

    `method` is the name of a method or variant, or a `Method`, which needs a `name`. `values` are
    fields of the protocol, such as rounds=5, and hyper-parameters of the method, such as mu=0.1.
    `config` may have `protocols`, `variants` and `datasets`, as in config.yaml; another key is
    refused.

    With a folder `results`, all files are kept there as the commands keep them: a finished run is
    found again, and an interrupted one goes on. Without it they are in a temporary folder. The run
    of a `Method` is never kept, because no file has its code. `device`, `backend`,
    `threads` and `compile` change numbers by rounding only.

    By default `method` is FedAvg, and `data_root` is the folder `data`. It works in the main thread
    only. Raises UsageError for an unknown name or value.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("fedgrid.run works in the main thread only: use processes instead")
    own = method if isinstance(method, Method) else None
    names = {"dataset": dataset, "partition": partition, "seed": seed, "protocol": protocol}
    names["method"] = given.check_method_name(method, name)
    given.check_names(names)
    machine = given.check_machine(Machine(device, backend, threads, compile))
    data_root = given.as_path("data_root", data_root)
    results = None if results is None else given.as_path("results", results)
    with isolate_settings(), explain_errors():
        config = given.read_configuration(config, dataset)
        (names["dataset"],) = listed(config["dataset"])
        spec = given.resolve_run(names, given.convert_numpy(values), config, own)
        kept = nullcontext(results) if results else TemporaryDirectory(prefix="fedgrid.")
        with kept as place:
            folder = Path(place)
            paths = make_inputs(spec, folder, data_root, machine)
            result = train_run(spec, own, paths, folder, machine)
            if results is None or own:
                result.own_models.hold()
            return result


def load_method(name: str, **values: Any) -> Method:
    """Return the `Method` of a file of fedgrid/methods/, to be combined with another by `|`.

    UsageError for a method that needs earlier stages, which only a name can ask for.
    """
    known("method", name, registered("methods"))
    values = given.convert_numpy(values)
    check_keywords("load_method", name, values)
    if needs := source.literal(f"methods.{name}", "NEEDS", ()):
        raise UsageError(
            f"{name} needs the stage {needs[0]}, which is made for names only: give its name to "
            "fedgrid.run, or write a file for the method that you combine it with"
        )
    return build_part(name, values)


def list_names(kind: str) -> list[str]:
    """Return the names of `methods`, `datasets`, `models`, `partitions`, `protocols`, `studies`."""
    grid = use_studies(read_studies(), Grid)
    other: dict[str, Iterable[str]] = {"protocols": grid.protocols, "studies": grid.studies}
    other["datasets"] = own_data.list_datasets()
    known("kind of name", kind, ("methods", "models", "partitions", *other))
    return sorted(other[kind]) if kind in other else registered(kind)
