"""Expand sweeps: `{fedprox: {mu: [0.01, 0.1]}}` gives fedprox-mu0.01 and fedprox-mu0.1.

The values are those of a method's hyper-parameters or of a protocol's fields. The name `protocol`
stands for every protocol of a grid. Several fields of a name give all combinations.
"""

from collections.abc import Mapping
from typing import Any

from fedgrid.runtime.names import UsageError, known, listed
from fedgrid.study.protocol import KINDS
from fedgrid.study.records import Sweep
from fedgrid.study.resolving import Resolver
from fedgrid.study.variants import sweep_names

ALL_PROTOCOLS = "protocol"


def expand_block(names: Resolver, block: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """Replace, in a block of a grid, each name in a sweep by its variants."""
    expanded = {
        axis: [v for name in listed(block[axis]) for v in find_variants(names, axis, name, sweep)]
        for axis in ("method", "protocol")
    }
    return {**block, **expanded}


def find_variants(names: Resolver, axis: str, name: str, sweep: Sweep) -> list[str]:
    """Return the variants of a name on an axis of a grid; only the name if no sweep has it."""
    find = {"method": find_method_axes, "protocol": find_protocol_axes}.get(axis)
    return sweep_names(name, *find(names, name, sweep)) if find and sweep else [name]


def find_method_axes(
    names: Resolver, name: str, sweep: Sweep
) -> tuple[dict[str, list], dict[str, Any]]:
    defaults = names.hyper_parameters(name) if name in sweep else {}
    return {field: v for field, v in sweep.get(name, {}).items() if field in defaults}, defaults


def find_protocol_axes(
    names: Resolver, name: str, sweep: Sweep
) -> tuple[dict[str, list], dict[str, Any]]:
    """Return the values to sweep of a protocol's fields, and all their defaults.

    A method can have the protocol's name; its hyper-parameters are not the protocol's.
    """
    own = find_method_axes(names, name, sweep)[0] if names.is_method(name) else {}
    given = {field: v for field, v in sweep.get(name, {}).items() if field not in own}
    return given | sweep.get(ALL_PROTOCOLS, {}), KINDS


def check_sweep(names: Resolver, where: str, sweep: Sweep) -> None:
    for name, axes in sweep.items():
        is_protocol = name == ALL_PROTOCOLS or names.knows("protocol", name)
        fields = KINDS if is_protocol else {}
        fields = fields | (names.hyper_parameters(name) if names.knows("method", name) else {})
        if not fields:
            every = [ALL_PROTOCOLS, *names.methods(), *names.protocols]
            names.studies.known(f"method or protocol of `sweep` in {where}", name, every)
        for field in axes:
            known(f"hyper-parameter or field of {name} in `sweep` of {where}", field, fields)


def check_used(names: Resolver, sweep: Sweep, names_by_axis: dict[str, set]) -> None:
    for name, axes in sweep.items():
        of_method = names.knows("method", name) and {*axes} <= {*names.hyper_parameters(name)}
        axis = "method" if of_method else "protocol"
        if name not in (ALL_PROTOCOLS, *names_by_axis[axis]):
            raise UsageError(
                f"`sweep` names the {axis} {name}, which no grid of this scale has: add it with "
                f"`{axis}: +{name}`, or remove it from `sweep`"
            )
