"""The run that the arguments of `fedgrid.run` name."""

from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.engine.device import DEVICES
from fedgrid.method import Method
from fedgrid.notebook.session import unload_edited
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.hashes import hash_facts
from fedgrid.runtime.names import UsageError, in_words, known, registered, shown
from fedgrid.runtime.resolved import Run
from fedgrid.study.command import BACKENDS, COMPILE, Machine, run_of_names
from fedgrid.study.grid import Grid
from fedgrid.study.protocol import KINDS, PROTOCOL
from fedgrid.study.reading import (
    CONFIG,
    check_config,
    merge_configs,
    read_config,
    read_studies,
    use_studies,
)
from fedgrid.study.variants import write_checked
from fedgrid.training.build import check_method

PLAIN = "fedavg"  # whose names a method of the notebook has while its run is resolved
READ = ("datasets", "protocols", "variants")  # the keys of a configuration that say what names mean


def check_method_name(method: str | Method, name: str) -> str:
    """Return the name of a method; UsageError if a notebook's has none, or that of a file."""
    if not isinstance(method, Method):
        if name != "":
            raise UsageError("`name` is for a Method of the notebook: leave it out for a name")
        return method
    if name == "":
        raise UsageError("a Method needs a name: give one, such as name='mine'")
    if isinstance(name, str) and name in registered("methods"):
        raise UsageError(f"name={name!r} is a method of fedgrid already: give another name")
    if not isinstance(name, str) or not name.replace("_", "").replace("+", "").isalnum():
        raise UsageError(f"name={shown(repr(name))} may have only letters, digits, _ and +")
    return name


def check_names(names: dict) -> None:
    """Raise a UsageError for a name that is no text, and for a seed that is no whole number."""
    for kind, value in names.items():
        if kind != "seed" and not isinstance(value, str):
            what = "a name or a Method" if kind == "method" else "a name"
            raise UsageError(f"{kind} is {shown(repr(value))}: give {what}")
    names["seed"] = whole_number("seed", names["seed"], 0)


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a whole number, which may be numpy's, as Python's; True is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UsageError(f"{name} is {shown(repr(value))}: give a whole number from {least} on")
    return int(value)


def as_path(name: str, value: Any) -> Path:
    """Return a folder that is given as text or as a path."""
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} is {shown(repr(value))}: give the path of a folder")
    return Path(value).expanduser()


def check_machine(machine: Machine) -> Machine:
    """Return the machine; UsageError for a choice that there is not."""
    known("device", machine.device, DEVICES)
    known("backend", machine.backend, BACKENDS)
    known("compile", machine.compile, COMPILE)
    return machine._replace(threads=whole_number("threads", machine.threads, 1))


def read_configuration(config: dict | None, dataset: str) -> dict:
    """Return the configuration, checked, with its data made known; reload what was edited."""
    if not isinstance(config := {} if config is None else config, dict):
        raise UsageError("config is no mapping: write it as config.yaml has it")
    check_config("config", config, required=False)
    if unread := [key for key in config if key not in READ]:
        raise UsageError(
            f"config has `{unread[0]}`, but fedgrid.run reads only {in_words(READ)} from it: give "
            "what names the run and its machine as arguments, such as method or seed"
        )
    found = own_data.give(merge_configs(read_config(CONFIG), config) | {"dataset": [dataset]})
    source.forget()
    unload_edited()
    return found


def convert_numpy(values: dict) -> dict:
    """Return values with numpy's numbers as Python's."""
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}


def resolve_run(names: dict, values: dict, config: dict, own: Method | None) -> Run:
    """Return the resolved run of names and values; UsageError if one is unknown or does not fit."""
    added = select_entries(config)
    grid = use_studies(read_studies(), lambda studies: Grid(studies, added))
    fields, keywords = split_values(grid, None if own else names["method"], values)
    if not own:
        defaults = grid.hyper_parameters(names["method"])
        written = (f"-{k}{write_checked(k, v, defaults[k])}" for k, v in keywords.items())
        names = names | {"method": "".join([names["method"], *written])}
    protocol, added = name_protocol(names["protocol"], fields)
    grid = Grid(grid.studies, select_entries(merge_configs(config, {"protocols": added})))
    spec = run_of_names(names | {"protocol": protocol} | ({"method": PLAIN} if own else {}), grid)
    if own:
        check_method(names["method"], own, spec["protocol"])
        spec |= {"name": {**spec["name"], "method": names["method"]}, "method": {}, "own": {}}
    return spec


def select_entries(config: dict) -> dict:
    """Return those entries of a configuration that say what names mean."""
    return {key: config[key] or {} for key in READ[1:] if key in config}


def split_values(grid: Grid, method: str | None, values: dict) -> tuple[dict, dict]:
    """Return the values that are fields of the protocol, and those that the method takes.

    A `Method` of the notebook has no name here, and has its values already.
    """
    keywords = grid.hyper_parameters(method) if method else {}
    kind = f"hyper-parameter of {method} or field of a protocol" if method else "protocol's field"
    for key in values:
        known(kind, key, {*keywords, *PROTOCOL})
        if key in keywords and key in PROTOCOL:
            raise UsageError(
                f"{key} is a hyper-parameter of {method} and a field of the protocol: write it "
                f"into one of their names, such as {method}-{key}{values[key]}"
            )
    fields = {key: value for key, value in values.items() if key in PROTOCOL}
    return fields, {key: value for key, value in values.items() if key in keywords}


def name_protocol(protocol: str, fields: dict) -> tuple[str, dict]:
    """Return the name of a protocol with other fields, and an entry if a name cannot say them."""
    plain = {k: v for k, v in fields.items() if not isinstance(v, list | dict)}
    name = protocol + "".join(f"-{k}{write_checked(k, v, KINDS[k])}" for k, v in plain.items())
    rest = {k: v for k, v in fields.items() if k not in plain}
    if not rest:
        return name, {}
    numbered = f"{name}-{hash_facts(rest, 8)}"
    return numbered, {numbered: {"base": name} | rest}
