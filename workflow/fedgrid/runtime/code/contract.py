"""Check a file of methods/, datasets/, models/ or report/ without running it.

Constants are read as literals, and functions by their names: the Snakefile imports this, so no
torch. `schemas/constants.schema.yaml` says what each constant may be. `imported` and `called` run
a file's own code; if it fails, the error names the line.
"""

import ast
import math
import re
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, list_some, shown
from fedgrid.runtime.places import SCHEMAS

FIELD = "field of a method"  # the key of an error of `Method`, which does not know its file
NEEDED = ("saliency", "latents")  # stages whose results `training/build.py` reads for methods
OPTIMISERS = ("sgd", "adam", "adamw")  # of local training
SCALED = "scaled"  # the normalisation of 8-bit images that needs no STATISTICS: to [0, 1] only


def number(value: Any) -> bool:
    """Whether `value` is a number that is finite as a float; True does not count."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # a whole number that is too large
        return False


INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])")


def read_interval(text: str) -> tuple[float, float, bool, bool] | None:
    """Return both ends of an interval, and whether they belong to it; None for another text."""
    if not (found := INTERVAL.fullmatch(text)):
        return None
    first, low, high, last = found.groups()
    try:
        ends = float(low), float(high)
    except ValueError:
        return None
    return (*ends, first == "[", last == "]") if ends[0] < ends[1] else None


def is_allowed(value: Any, allowed: str | tuple[str, ...]) -> bool:
    """Whether a hyper-parameter is in an interval, or among texts; None always is."""
    if value is None or not isinstance(allowed, str):
        return value is None or value in allowed
    low, high, with_low, with_high = read_interval(allowed) or (0, 0, False, False)
    if not number(value) or value < low or value > high:
        return False
    return (with_low or value > low) and (with_high or value < high)


def dataset(name: str) -> None:
    """Raise a UsageError that names the file if it lacks what a dataset needs."""
    module = f"datasets.{name}"
    constants("dataset", module)
    tokens(module)
    writers = [bool(source.literal(module, n, False)) for n in ("WRITERS", "TEST_WRITERS")]
    if writers == [False, True]:
        raise UsageError(
            f"{source.file(module)}: TEST_WRITERS is True, and WRITERS is not: give the writers of "
            "training images too, with `WRITERS = True`"
        )
    hashes, arrays = source.literal(module, "HASHES", ()), 4 + sum(writers)
    if len(hashes) not in (0, arrays):
        raise UsageError(
            f"{source.file(module)}: HASHES has {len(hashes)} texts for {arrays} arrays: give one "
            "for each, in the order of `Split`, or () for none"
        )
    names, classes = (source.literal(module, key) for key in ("CLASS_NAMES", "CLASSES"))
    if names is not None and len(names) != classes:
        raise UsageError(
            f"{source.file(module)}: CLASS_NAMES has {len(names)} texts for {classes} CLASSES: "
            "give one for each"
        )
    channels = source.literal(module, "SHAPE")[0]
    for key, value in source.literal(module, "STATISTICS").items():
        if not statistics(value, channels):
            raise UsageError(
                f"{source.file(module)}: STATISTICS has {shown(repr(value))} as `{key}`, not a "
                f"mean and a deviation above 0 for each of {channels} channels, such as "
                f"{((0.5,) * channels, (0.25,) * channels)}"
            )
        if not all(0 <= one <= 1 for part in value for one in part):
            raise UsageError(
                f"{source.file(module)}: STATISTICS has {shown(repr(value))} as `{key}`, but mean "
                "and deviation must be those of images scaled to [0, 1]: divide by 255"
            )
    function(module, "load(root)")


def tokens(module: str) -> None:
    """Raise a UsageError unless shape and statistics are those of tokens, or those of images."""
    has_tokens = source.literal(module, "TOKENS", 0) > 0
    shape, measures = (source.literal(module, name) for name in ("SHAPE", "STATISTICS"))
    if has_tokens and len(shape) != 1:
        raise UsageError(
            f"{source.file(module)}: SHAPE is {shape}, and with TOKENS it is one number, the "
            "length of a sequence, such as (80,)"
        )
    if not has_tokens and len(shape) == 1:
        raise UsageError(
            f"{source.file(module)}: SHAPE is {shape}, which is the length of a sequence of "
            "tokens: write TOKENS, the number of symbols, or (channels, height, width)"
        )
    if has_tokens and measures:
        raise UsageError(
            f"{source.file(module)}: STATISTICS are those of images, and with TOKENS the inputs "
            "are sequences of tokens: write `STATISTICS = {}`"
        )


def statistics(value: Any, channels: int) -> bool:
    """Whether `value` is a mean and a deviation above 0 for each channel."""
    lists = isinstance(value, tuple | list) and all(isinstance(p, tuple | list) for p in value)
    if not lists or [*map(len, value)] != [channels, channels]:
        return False
    return all(map(number, [*value[0], *value[1]])) and min(value[1]) > 0


def model(name: str) -> None:
    """Raise a UsageError that names the file if it is not right for a model."""
    module = f"models.{name}"
    constants("model", module)
    tokens = source.literal(module, "TOKENS", False)
    function(module, "body(shape, tokens)" if tokens else "body(shape)")
    blocks, encoder = source.literal(module, "BLOCKS", ()), source.literal(module, "ENCODER", 0)
    if blocks and blocks[-1] != "head":
        refuse("model", module, "BLOCKS")
    if blocks and not 0 < encoder < len(blocks):
        raise UsageError(
            f"{source.file(module)}: of {len(blocks)} BLOCKS, ENCODER says how many are the "
            f"encoder, from 1 to {len(blocks) - 1}, and it is {encoder}"
        )
    if encoder and not blocks:
        raise UsageError(
            f"{source.file(module)}: ENCODER counts BLOCKS, which are missing: add them"
        )


def method(name: str) -> None:
    """Raise a UsageError that names the file if it is not right for a method."""
    module = f"methods.{name}"
    constants("method", module)
    allowed = dict(source.literal(module, "RANGES", ())).values()
    if not all(read_interval(one) for one in allowed if isinstance(one, str)):
        refuse("method", module, "RANGES")
    there = source.keywords(module, "method")
    for constant in ("ADDED", "NEUTRAL", "RANGES"):
        for key in source.literal(module, constant, ()):
            if key not in there:
                said = f"its arguments are {list_some([*there])}" if there else "it has none"
                raise UsageError(
                    f"{source.file(module)}: {constant} has `{shown(key)}`, which is no argument "
                    f"of `method`: {said}"
                )
    for given in (there, dict(source.literal(module, "NEUTRAL", ()))):
        check_ranges(source.file(module), name, given)


def check_ranges(where: str, name: str, given: dict[str, Any]) -> None:
    """Raise a UsageError for a hyper-parameter outside of the RANGES of its method's file."""
    for key, allowed in dict(source.literal(f"methods.{name}", "RANGES", ())).items():
        if key in given and not is_allowed(given[key], allowed):
            said = f"a number in {allowed}" if isinstance(allowed, str) else " or ".join(allowed)
            value = shown(repr(given[key]))
            raise UsageError(f"{where}: {key} of {name} is {value}: set it to {said}")


def product(module: str, formats: list[str]) -> None:
    """Raise a UsageError that names the file if the product cannot be drawn in the formats."""
    _, taken = source.parameters(module, "draw")
    for name in ("study", "scale"):
        if taken is not None and name not in taken:
            raise UsageError(f"{source.file(module)}: `draw` does not take `{name}`: add it")
    if {*formats} - {"csv"}:
        function(module, "caption(table)", ", which all formats but csv need")
    if {*formats} & {"pdf", "svg", "png"}:
        function(module, "plot(table, study)", ", which pdf, svg and png need")


@cache
def read_rules(kind: str) -> dict[str, Any]:
    """Return what the constants of a dataset's, model's or method's file may be."""
    from fedgrid.runtime import schema  # its import takes a tenth of a second

    return schema.read_rules(SCHEMAS / "constants.schema.yaml")[kind]


def constants(kind: str, module: str) -> None:
    """Raise a UsageError for a constant that breaks its rule, or that is missing.

    The modules that the file imports are parsed first, so that the error names a file that is not
    Python.
    """
    source.reachable(module)
    check_constants(kind, module, source.tree(module))


@cache  # a file is checked once, and again if it was read again
def check_constants(kind: str, module: str, tree: ast.Module) -> None:
    from fedgrid.runtime.schema import Validator

    rules, there = read_rules(kind)["properties"], source.definitions(module)
    for name in filter(there.__contains__, rules):
        if not Validator(rules[name]).is_valid(source.literal(module, name)):
            refuse(kind, module, name)
    for name in filter(str.isupper, there):
        near = get_close_matches(name, rules, n=1, cutoff=0.85)
        if near and name not in rules:
            raise UsageError(
                f"{source.file(module)}: {name} is a constant that nothing reads under this name: "
                f"did you mean {near[0]}? Otherwise give it another name"
            )
    for name in read_rules(kind).get("required", ()):
        if name not in there:
            words = rules[name]["description"]
            raise UsageError(f"{source.file(module)} lacks {name}: it is {words}")


def refuse(kind: str, module: str, name: str) -> NoReturn:
    """Raise a UsageError for the value of a constant."""
    said, words = shown(repr(source.literal(module, name))), read_rules(kind)["properties"][name]
    raise UsageError(f"{source.file(module)}: {name} is {said}, not {words['description']}")


def function(module: str, form: str, why: str = "") -> None:
    """Raise a UsageError if the file does not define or import the function of this form."""
    name = form.partition("(")[0]
    if name not in source.definitions(module):
        lacks = f"{source.file(module)} has no function `{name}`{why}"
        raise UsageError(f"{lacks}: write `def {form}`")


# -- a file's own code ----------------------------------------------------------------------------


def imported(module: str) -> ModuleType:
    """Import a module; a UsageError names the line where its import fails.

    Data of one's own have no file: a module with the same names stands for it.
    """
    source.reachable(module)  # raises for a file that is not Python, with its line
    if source.is_own(module):
        return own_data.dataset(module.partition(".")[2]).as_module()
    return called(module, "its import", lambda: import_module(f"fedgrid.{module}"))


def called(module: str, what: str, work: Callable[[], Any]) -> Any:
    """Return `work()`, a call of a file's own code; a UsageError names the line where it fails."""
    try:
        return work()
    except MemoryError:
        raise
    except Exception as problem:
        if isinstance(problem, UsageError) and problem.key != FIELD:
            raise
        frames = traceback.extract_tb(problem.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(source.path(module))]
        line = f", line {lines[-1]}" if lines else ""
        kind = "" if isinstance(problem, UsageError) else f"{type(problem).__name__}: "
        said = shown(f"{kind}{problem}")
        raise UsageError(f"{source.file(module)}{line}: {what} fails with {said}") from problem
