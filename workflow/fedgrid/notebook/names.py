"""Resolve the run that the arguments of `fedgrid.run` name, and check these arguments."""

import json
from hashlib import sha256

import numpy as np

from fedgrid.engine.device import DEVICES
from fedgrid.method import Method
from fedgrid.notebook.session import unload_edited
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, known, registered, shown
from fedgrid.study.command import BACKENDS, COMPILE, Machine, run_of_names
from fedgrid.study.grid import Grid
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.reading import CONFIG, check_config, merge_configs, read_config, read_studies
from fedgrid.study.variants import write_checked
from fedgrid.training.build import check_method

PLAIN = "fedavg"  # stands for a method of the notebook while its run is resolved


def check_method_name(method: str | Method, name: str) -> str:
    """Return the name of a method.

    UsageError if a `Method` of the notebook has no name, or the name of one of fedgrid's methods.
    """
    if not isinstance(method, Method):
        if name:
            raise UsageError("`name` is for a Method of the notebook: leave it out for a name")
        return method
    if not name:
        raise UsageError("a Method needs a name: give one, such as name='mine'")
    if name in registered("methods"):
        raise UsageError(f"name={name!r} is a method of fedgrid already: give another name")
    if not isinstance(name, str) or not name.replace("_", "").replace("+", "").isalnum():
        raise UsageError(f"name={shown(repr(name))} may have only letters, digits, _ and +")
    return name


def check_names(names: dict) -> None:
    """Check that names are texts, and that the seed is a whole number from 0 on."""
    for kind, value in names.items():
        if kind != "seed" and not isinstance(value, str):
            what = "a name or a Method" if kind == "method" else "a name"
            raise UsageError(f"{kind} is {shown(repr(value))}: give {what}")
    if not isinstance(names["seed"], int | np.integer) or names["seed"] < 0:
        raise UsageError(f"seed is {shown(repr(names['seed']))}: give a whole number from 0 on")
    names["seed"] = int(names["seed"])


def check_machine(machine: Machine) -> Machine:
    """Return the machine; UsageError for an unknown device, backend or other option."""
    known("device", machine.device, DEVICES)
    known("backend", machine.backend, BACKENDS)
    known("compile", machine.compile, COMPILE)
    if not isinstance(machine.threads, int) or machine.threads < 1:
        raise UsageError(f"threads is {shown(repr(machine.threads))}, not at least 1")
    return machine


def read_configuration(config: dict | None, dataset: str) -> dict:
    """Check a configuration, merge it with config.yaml, and register its own datasets.

    Edited files are imported again, so that the run uses their present code.
    """
    if not isinstance(config or {}, dict):
        raise UsageError("config is no mapping: write it as config.yaml has it")
    check_config("config", config or {}, required=False)
    merged = own_data.give(
        merge_configs(read_config(CONFIG), config or {}) | {"dataset": [dataset]}
    )
    source.forget()
    unload_edited()
    return merged


def convert_numpy(values: dict) -> dict:
    """Convert NumPy's numbers among the values to Python's."""
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}


def resolve_run(names: dict, values: dict, config: dict, own: Method | None) -> dict:
    """Resolve a run from names and values; UsageError for an unknown or unfitting one.

    `own` is a `Method` of the notebook, or None.
    """
    studies = read_studies()
    grid = Grid(studies, select_entries(config))
    fields, keywords = split_values(grid, None if own else names["method"], values)
    if not own:
        names = names | {"method": names["method"] + write_suffix(keywords, grid, names["method"])}
    protocol, added = name_protocol(names["protocol"], fields)
    grid = Grid(studies, select_entries(merge_configs(config, {"protocols": added})))
    spec = run_of_names(names | {"protocol": protocol} | ({"method": PLAIN} if own else {}), grid)
    if own:
        check_method(names["method"], own, spec["protocol"])
        spec |= {"name": spec["name"] | {"method": names["method"]}, "method": {}, "own": {}}
    return spec


def select_entries(config: dict) -> dict:
    """Return the entries of a configuration that define protocols and variants."""
    return {key: config[key] or {} for key in ("protocols", "variants") if key in config}


def split_values(grid: Grid, method: str | None, values: dict) -> tuple[dict, dict]:
    """Split values into fields of the protocol and hyper-parameters of the method.

    `method` is None for a `Method` of the notebook, whose hyper-parameters are set already.
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


def write_suffix(values: dict, grid: Grid, method: str) -> str:
    """Write hyper-parameters as the end of a method's name: `-mu0.1`."""
    defaults = grid.hyper_parameters(method)
    return "".join(f"-{k}{write_checked(k, v, defaults[k])}" for k, v in values.items())


def name_protocol(protocol: str, fields: dict) -> tuple[str, dict]:
    """Name a protocol with changed fields; return the name and, if needed, a new entry.

    A list or mapping cannot be a part of a name: such fields need an entry under `protocols`.
    """
    plain = {k: v for k, v in fields.items() if not isinstance(v, list | dict)}
    name = protocol + "".join(f"-{k}{write_checked(k, v, PROTOCOL[k])}" for k, v in plain.items())
    rest = {k: v for k, v in fields.items() if k not in plain}
    if not rest:
        return name, {}
    number = sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:8]
    return f"{name}-{number}", {f"{name}-{number}": {"base": name} | rest}
