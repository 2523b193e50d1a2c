"""Read and write the names of variants: `fedprox-mu0.01` is fedprox with mu = 0.01.

After the name of a method or protocol, each dash is followed by a hyper-parameter or field and its
value: fedlmd-beta2-tau0.5, fedsls-quick-lr0.1. A sweep gives the names of all its values.
"""

import re
from collections.abc import Callable, Collection
from itertools import product
from typing import Any

from fedgrid.runtime.names import UsageError, known, shown
from fedgrid.study.checks import check_type

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
WORD = re.compile(r"[A-Za-z_]\w*")
TRUTH = {"true": True, "false": False}


def split_name(
    name: str, bases: Collection[str], fields_of: Callable[[str], dict[str, Any]]
) -> tuple[str, dict[str, Any]] | None:
    """Split a variant's name into its base and its values; None for any other name.

    `fields_of(base)` gives the fields that can follow, each with its default. UsageError if a value
    has another spelling than its own, such as 0.10.
    """
    dashes = [at for at, letter in enumerate(name) if letter == "-"]
    for at in reversed(dashes):
        if name[:at] in bases:
            values = read_values(name[at + 1 :], fields_of(name[:at]))
            if values is not None:
                check_spelling(name, name[:at] + write_values(values))
                return name[:at], values
    return None


def check_spelling(name: str, spelled: str) -> None:
    if name != spelled:
        raise UsageError(f"the name `{shown(name)}` has one spelling: write {spelled}")


def read_values(text: str, fields: dict[str, Any]) -> dict[str, Any] | None:
    """Read the values in a text such as mu0.1-local5; None for any other text."""
    for field in sorted(filter(text.startswith, fields), key=len, reverse=True):
        rest = text.removeprefix(field)
        for end in [*(at for at, letter in enumerate(rest) if letter == "-"), len(rest)]:
            value = read_value(rest[:end], fields[field])
            others = read_values(rest[end + 1 :], fields) if end < len(rest) else {}
            if value is not None and others is not None and field not in others:
                return {field: value} | others
    return None


def read_value(text: str, default: Any) -> Any:
    """Read a text as a value of the default's type; None if that is impossible."""
    if isinstance(default, bool):
        return TRUTH.get(text)
    if isinstance(default, int):
        return int(text) if WHOLE.fullmatch(text) else None
    if isinstance(default, float):
        return float(text) + 0.0 if NUMBER.fullmatch(text) else None  # -0 is 0
    if isinstance(default, str):
        return text if WORD.fullmatch(text) else None
    if default is None:
        readings = (read_value(text, kind) for kind in (True, 0, 0.0, ""))
        return next((value for value in readings if value is not None), None)
    return None  # a list has no name


def write_value(value: Any) -> str:
    """Write a value for a name: 1.0 as 1, True as true."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def write_values(values: dict[str, Any]) -> str:
    """Write values as they follow the name of a base: -mu0.1-local5."""
    return "".join(f"-{field}{write_value(value)}" for field, value in values.items())


def sweep_names(name: str, axes: dict[str, list], fields: dict[str, Any]) -> list[str]:
    """Return the variants of a name for all combinations of values, in their order.

    UsageError for a field that the name does not have, and for a value of another type.
    """
    texts = []
    for field, values in axes.items():
        default = fields[known(f"hyper-parameter or field of {name} to sweep", field, fields)]
        where = f"sweep: {name}: {field}"
        texts.append([f"-{field}{write_checked(where, value, default)}" for value in values])
    return [name + "".join(chosen) for chosen in product(*texts)]


def write_checked(where: str, value: Any, default: Any) -> str:
    if isinstance(value, str) and (read := read_value(value, default)) is not None:
        value = read  # from the command line, values are texts
    check_type(where, value, default)
    text = write_value(value)
    if read_value(text, default) != value:
        raise UsageError(
            f"{where}: {shown(repr(value))} cannot be a part of a name: give it a name in "
            "`variants` or `protocols`"
        )
    return text
