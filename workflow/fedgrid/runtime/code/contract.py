"""Check a file of methods/, datasets/, models/ or report/ without running it.

Constants are read as literals, and functions by their names: the Snakefile imports this, so no
torch. `imported` and `called` run a file's own code; if it fails, the error names the line.
"""

import math
import re
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, list_some, shown

FIELD = "field of a method"  # the key of an error of `Method`, which does not know its file
# A rule for a constant: the allowed values in words, and a test of a value.
Rule = tuple[str, Callable[[Any], bool]]


def whole(value: Any) -> bool:
    """Whether `value` is a whole number above 0; True does not count."""
    return type(value) is int and value > 0


def number(value: Any) -> bool:
    """Whether `value` is a finite number; True does not count."""
    return type(value) in (int, float) and math.isfinite(value)


def texts(value: Any) -> bool:
    """Whether `value` is a tuple or list of texts that are not blank; one text does not count."""
    return isinstance(value, tuple | list) and all(isinstance(p, str) and p.strip() for p in value)


def named(value: Any) -> bool:
    """Whether `value` is a dict whose keys are texts."""
    return isinstance(value, dict) and texts([*value])


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


def is_range(value: Any) -> bool:
    """Whether `value` is an interval, such as "[0, 1)", or a tuple of texts."""
    return bool(read_interval(value) if isinstance(value, str) else value and texts(value))


def is_allowed(value: Any, allowed: str | tuple[str, ...]) -> bool:
    """Whether a hyper-parameter is in an interval, or among texts; None always is."""
    if value is None or not isinstance(allowed, str):
        return value is None or value in allowed
    low, high, with_low, with_high = read_interval(allowed) or (0, 0, False, False)
    if not number(value) or value < low or value > high:
        return False
    return (with_low or value > low) and (with_high or value < high)


WHOLE: Rule = ("a whole number above 0, such as 60_000", whole)
SIZE: Rule = (
    f"{WHOLE[0]}, or None if only reading shows it",
    lambda value: value is None or whole(value),
)
BOOL: Rule = ("True or False", lambda value: isinstance(value, bool))
DATASET: dict[str, Rule] = {
    "TRAIN": SIZE,
    "TEST": SIZE,
    "CLASSES": WHOLE,
    "SHAPE": (
        "three whole numbers above 0, such as (1, 28, 28), or with TOKENS one, such as (80,)",
        lambda value: isinstance(value, tuple) and len(value) in (1, 3) and all(map(whole, value)),
    ),
    "STATISTICS": (
        'a dict with "standard", such as {"standard": ((0.5,), (0.25,))}, or {} to measure it',
        lambda value: named(value) and (value == {} or "standard" in value),
    ),
}
SCALED = "scaled"  # the normalisation of 8-bit images that needs no STATISTICS: to [0, 1] only
MOST_TOKENS = 256  # different values of a uint8
HASH = re.compile("[0-9a-f]{8,64}")
MAY: dict[str, Rule] = {  # optional constants of a dataset's file
    "HASHES": (
        "() or a text of eight or more digits of a sha256 for each array",
        lambda value: texts(value) and all(map(HASH.fullmatch, value)),
    ),
    "LOSSY": BOOL,
    "TOKENS": (
        f"a whole number from 2 to {MOST_TOKENS}, such as 81",
        lambda value: whole(value) and 2 <= value <= MOST_TOKENS,
    ),
    "WRITERS": (
        "True or a whole number above 0, such as 40",
        lambda value: isinstance(value, bool) or whole(value),
    ),
    "TEST_WRITERS": BOOL,
    "FLOATS": BOOL,
    "GIVEN": ('a tuple of texts, such as ("femnist/*.json",)', texts),
    "MISSING": ("a text with {} for the folder of data", lambda value: isinstance(value, str)),
    "CLASS_NAMES": (
        'a list of different texts, such as ["cat", "dog"]',
        lambda value: texts(value) and len({*value}) == len(value),
    ),
}
MODEL: dict[str, Rule] = {
    "WEIGHTS": (
        'a dict of texts, such as {"imagenet": "ResNet18_Weights.IMAGENET1K_V1"}',
        lambda value: named(value) and texts([*value.values()]),
    ),
    "SIDE_PATHS": ('a tuple of texts, such as ("downsample",)', texts),
    "CHANNELS_LAST": BOOL,
    "INDEPENDENT": BOOL,
    "CONVOLUTIONS": BOOL,
    "TOKENS": BOOL,
    "BLOCKS": (
        'a tuple of at least two texts that ends in "head", such as ("0", "3", "head")',
        lambda value: type(value) is tuple and texts(value) and [*value[1:]][-1:] == ["head"],
    ),
    "ENCODER": ("a whole number above 0, such as 2", whole),
}
NEEDED = ("saliency", "latents")  # the stages whose results `training/build.py` reads for methods
OPTIMISERS = ("sgd", "adam", "adamw")  # of local training
METHOD: dict[str, Rule] = {
    "NEEDS": (
        f"a tuple of stages, such as {NEEDED[:1]}: the stages are {', '.join(NEEDED)}",
        lambda value: texts(value) and {*value} <= {*NEEDED},
    ),
    "INDEPENDENT": BOOL,
    "PRIVATE": (
        'a tuple of texts, such as ("head.",), or True if clients have other models of their own',
        lambda value: value is True or texts(value),
    ),
    "SPLITS": BOOL,
    "LEAST_COHORT": WHOLE,
    "ADDED": ('a tuple of hyper-parameters, such as ("mu",)', texts),
    "NEUTRAL": ('a dict of hyper-parameters with which it is FedAvg, such as {"mu": 0.0}', named),
    "RANGES": (
        'a dict of intervals, such as {"mu": "[0, inf)"}, or of tuples of texts, for '
        "hyper-parameters",
        lambda value: named(value) and all(map(is_range, value.values())),
    ),
    "SERVER_DATA": BOOL,
    "ROUNDS": BOOL,
    "OPTIMISERS": (
        f"a tuple of optimisers, such as {OPTIMISERS[:1]}: they are {', '.join(OPTIMISERS)}",
        lambda value: texts(value) and bool(value) and {*value} <= {*OPTIMISERS},
    ),
    "MODELS_KEPT": (
        "a number of at least 0, such as 1",
        lambda value: number(value) and value >= 0,
    ),
}


def dataset(name: str) -> None:
    """Raise a UsageError that names the file if it lacks what a dataset needs."""
    module = f"datasets.{name}"
    constants(module, DATASET | MAY)
    for constant in DATASET:
        if constant not in source.definitions(module):
            words, _ = DATASET[constant]
            raise UsageError(f"{source.file(module)} lacks {constant}: it is {words}")
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
    constants(module, MODEL)
    tokens = source.literal(module, "TOKENS", False)
    function(module, "body(shape, tokens)" if tokens else "body(shape)")
    blocks, encoder = source.literal(module, "BLOCKS", ()), source.literal(module, "ENCODER", 0)
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
    constants(module, METHOD)
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


def constants(module: str, rules: dict[str, Rule]) -> None:
    """Raise a UsageError for a constant that breaks its rule; a constant may be absent.

    The modules that the file imports are parsed first, so that the error names a file that is not
    Python.
    """
    source.reachable(module)
    for name, (words, right) in rules.items():
        there = name in source.definitions(module)
        if there and not right(value := source.literal(module, name)):
            said = shown(repr(value))
            raise UsageError(f"{source.file(module)}: {name} is {said}, not {words}")
    for name in filter(str.isupper, source.definitions(module)):
        near = get_close_matches(name, rules, n=1, cutoff=0.85)
        if near and name not in rules:
            raise UsageError(
                f"{source.file(module)}: {name} is a constant that nothing reads under this name: "
                f"did you mean {near[0]}? Otherwise give it another name"
            )


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
