"""What a file of methods/, datasets/, models/ or report/ must have, checked without running it.

Constants are read as literals, and functions by their names: the Snakefile imports this, so no
torch. `imported` and `called` run a file's own code, and tell in one sentence where it fails.
"""

import math
import re
import traceback
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from fedgrid import source
from fedgrid.names import UsageError, shown

CHANGES_RESULTS = False

# What a file may say, by its constants: what is right, in words and as a test.
Rule = tuple[str, Callable[[Any], bool]]


def whole(value: Any) -> bool:
    """Whether it is a whole number above 0; True is none."""
    return type(value) is int and value > 0


def number(value: Any) -> bool:
    """Whether it is a finite number; True is none."""
    return type(value) in (int, float) and math.isfinite(value)


def texts(value: Any) -> bool:
    """Whether it is a tuple or list of texts; one text alone is none."""
    return isinstance(value, tuple | list) and all(isinstance(part, str) for part in value)


def named(value: Any) -> bool:
    """Whether it is a dict whose keys are texts."""
    return isinstance(value, dict) and texts([*value])


WHOLE: Rule = ("a whole number above 0, such as 60_000", whole)
BOOL: Rule = ("True or False", lambda value: isinstance(value, bool))
DATASET: dict[str, Rule] = {
    "TRAIN": WHOLE,
    "TEST": WHOLE,
    "CLASSES": WHOLE,
    "SHAPE": (
        "three whole numbers above 0, such as (1, 28, 28)",
        lambda value: isinstance(value, tuple) and len(value) == 3 and all(map(whole, value)),
    ),
    "STATISTICS": (
        'a dict with "standard", such as {"standard": ((0.5,), (0.25,))}',
        lambda value: named(value) and "standard" in value,
    ),
}
HASH = re.compile("[0-9a-f]{8,64}")
MAY: dict[str, Rule] = {  # what a dataset's file may have beside
    "HASHES": (
        "() or four texts of eight or more digits of a sha256",
        lambda value: texts(value) and len(value) in (0, 4) and all(map(HASH.fullmatch, value)),
    ),
    "LOSSY": BOOL,
}
MODEL: dict[str, Rule] = {
    "WEIGHTS": (
        'a dict of texts, such as {"imagenet": "ResNet18_Weights.IMAGENET1K_V1"}',
        lambda value: named(value) and texts([*value.values()]),
    ),
    "MEGABYTES": ("a number above 0, such as 45", lambda value: number(value) and value > 0),
    "SIDE_PATHS": ('a tuple of texts, such as ("downsample",)', texts),
    "CHANNELS_LAST": BOOL,
    "INDEPENDENT": BOOL,
}
NEEDED = ("saliency", "latents")  # the stages whose results `runs.py` reads for methods
METHOD: dict[str, Rule] = {
    "NEEDS": (
        f"a tuple of stages, such as {NEEDED[:1]}: there is {', '.join(NEEDED)}",
        lambda value: texts(value) and {*value} <= {*NEEDED},
    ),
    "INDEPENDENT": BOOL,
}


def dataset(name: str) -> None:
    """UsageError in one sentence, with the file, unless it has all that a dataset's file needs."""
    module = f"datasets.{name}"
    constants(module, DATASET | MAY)
    for constant in DATASET:
        if constant not in source.definitions(module):
            words, _ = DATASET[constant]
            raise UsageError(f"{source.file(module)} lacks {constant}: it is {words}")
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
                "and deviation are those of images scaled to [0, 1]: divide by 255"
            )
    function(module, "load", "load(root)")


def statistics(value: Any, channels: int) -> bool:
    """Whether it is a mean and a deviation for each channel, by which it is safe to divide."""
    lists = isinstance(value, tuple | list) and all(isinstance(p, tuple | list) for p in value)
    if not lists or [*map(len, value)] != [channels, channels]:
        return False
    return all(map(number, [*value[0], *value[1]])) and min(value[1]) > 0


def model(name: str) -> None:
    """UsageError in one sentence, with the file, unless it is right for a model."""
    constants(f"models.{name}", MODEL)
    function(f"models.{name}", "body", "body(shape)")


def method(name: str) -> None:
    """UsageError in one sentence, with the file, unless it is right for a method."""
    constants(f"methods.{name}", METHOD)
    source.keywords(f"methods.{name}", "method")


def product(module: str, formats: list[str]) -> None:
    """UsageError in one sentence, with the file, unless a product can be drawn in the formats."""
    for name in ("study", "scale"):
        if not source.accepts(module, "draw", name):
            raise UsageError(f"{source.file(module)}: `draw` does not take `{name}`: add it")
    if {*formats} - {"csv"}:
        function(module, "caption", "caption(table)", ", which formats but csv need")
    if {*formats} & {"pdf", "svg"}:
        function(module, "plot", "plot(table, study)", ", which pdf and svg need")


def constants(module: str, rules: dict[str, Rule]) -> None:
    """UsageError for a constant that is there and is not what its rule says.

    What the file imports of this package is read first, so that a file that is not Python is named.
    """
    source.reachable(module)
    for name, (words, right) in rules.items():
        there = name in source.definitions(module)
        if there and not right(value := source.literal(module, name)):
            said = shown(repr(value))
            raise UsageError(f"{source.file(module)}: {name} is {said}, not {words}")


def function(module: str, name: str, form: str, why: str = "") -> None:
    """UsageError for a file without the function; it may be imported."""
    if name not in source.definitions(module):
        lacks = f"{source.file(module)} has no function `{name}`{why}"
        raise UsageError(f"{lacks}: write `def {form}`")


# -- a file's own code ----------------------------------------------------------------------------


def imported(module: str) -> ModuleType:
    """The module; UsageError, with the line, for a file that fails while it is imported."""
    source.reachable(module)  # names the line of what is not Python
    return called(module, "its import", lambda: import_module(f"fedgrid.{module}"))


def called(module: str, what: str, work: Callable[[], Any]) -> Any:
    """What comes of a file's own code; UsageError, with the line, if that fails."""
    try:
        return work()
    except (UsageError, MemoryError):
        raise
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(source.path(module))]
        line = f", line {lines[-1]}" if lines else ""
        said = shown(f"{type(problem).__name__}: {problem}")
        raise UsageError(f"{source.file(module)}{line}: {what} fails with {said}") from problem
