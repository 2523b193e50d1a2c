"""Check config.yaml, studies and constants of files against schemas; an error is one sentence.

The schemas are JSON schemas, read more strictly: 3.0 is no whole number, and infinity no number. An
array of a file's constants may be a tuple. An `enum` can name a constant of the package, such as
federation.augment.DRAWS, which has the words.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from fedgrid.runtime.code import source
from fedgrid.runtime.code.contract import number
from fedgrid.runtime.names import UsageError, known, listed, shown
from fedgrid.runtime.plain_yaml import load_yaml


def check_schema(
    name: str, value: Any, schema: Path, part: str | None = None, required: bool = True
) -> None:
    """Raise a UsageError that names the key, its value and the allowed values, if one is wrong.

    `part` is the schema's definition to check against, or None for the whole schema. Unless
    `required`, keys of the first level may be missing.
    """
    if error := best_match(make_validator(schema, part, required).iter_errors(value)):
        where = write_place(error.absolute_path)
        place = f"{name}: {where}" if where else name
        choices = [*map(str, error.validator_value)] if error.validator == "enum" else ()
        said = f"{place}: {describe_error(error)}"
        raise UsageError(
            said, where=place, key=error.validator, value=error.instance, choices=choices
        )


def write_place(path: Iterable[str | int]) -> str:
    """Write the keys to a value; an entry of a list is a number: claims: number 2: least."""
    parts = (
        ".".join(f"number {part + 1}" if isinstance(part, int) else shown(part) for part in same)
        for _, same in groupby(path, type)
    )
    return ": ".join(parts)


STRICT = {
    "number": lambda checker, value: number(value),
    "integer": lambda checker, value: type(value) is int,
    "array": lambda checker, value: isinstance(value, list | tuple),
    "tuple": lambda checker, value: isinstance(value, tuple),
}
CHECKER = Draft202012Validator.TYPE_CHECKER.redefine_many(STRICT)
Validator = extend(Draft202012Validator, type_checker=CHECKER)


@cache  # a study with sweeps checks thousands of protocols
def make_validator(schema: Path, part: str | None, required: bool) -> Any:
    rules = read_rules(schema)
    rules = rules["$defs"][part] | {"$defs": rules["$defs"]} if part else rules
    return Validator(rules if required else rules | {"required": []})


def read_rules(schema: Path) -> dict[str, Any]:
    """Return the rules of a schema, with what they name: other files, and words of constants."""
    return fill_in(load_yaml(schema.read_bytes()), schema.parent)


def fill_in(rules: Any, folder: Path) -> Any:
    """Replace `$file` by the rules of that file, and in each `enum` a constant by its words."""
    if isinstance(rules, list):
        return [fill_in(rule, folder) for rule in rules]
    if not isinstance(rules, dict):
        return rules
    if "$file" in rules:
        return read_rules(folder / rules["$file"])
    filled = {key: fill_in(rule, folder) for key, rule in rules.items()}
    if isinstance(words := rules.get("enum"), str):
        module, _, name = words.rpartition(".")
        filled["enum"] = [*source.literal(module, name)]
    return filled


TYPES = {"integer": "a whole number", "number": "a number", "object": "`key: value` pairs"}
TYPES |= {"string": "text", "array": "a list", "boolean": "true or false"}


def describe_error(error: ValidationError) -> str:
    if error.validator == "additionalProperties" and error.validator_value is False:
        unknown = sorted(map(str, set(error.instance) - set(error.schema["properties"])))[0]
        try:
            known("key", unknown, error.schema["properties"])
        except UsageError as problem:
            return str(problem)
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"the key `{missing}` is missing: add it"
    if error.validator == "enum":
        allowed = ", ".join(map(str, error.validator_value))
        return f"{shown(repr(error.instance))} is not one of {allowed}"
    if error.validator == "pattern":
        return f"`{shown(error.instance)}` is not {error.schema['description']}"
    if error.validator == "type":
        wanted = error.validator_value
        words = [TYPES.get(w, w) for w in ([wanted] if isinstance(wanted, str) else wanted)]
        what = f"{shown(repr(error.instance))} is not {' or '.join(words)}"
        return what + suggest_fix(error.instance, wanted)
    return shown(error.message)


def suggest_fix(value: Any, wanted: str | list[str]) -> str:
    """Say how to write a value that looks like one of another type; "" for other values."""
    if "string" in wanted and isinstance(value, bool | int | float):
        return ": if it is a name, put it in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return ": write a finite one"
    if {"integer", "number"} & {*listed(wanted)} and isinstance(value, str):
        with suppress(ValueError, OverflowError):
            number = float(value)
            return f": write {int(number) if number.is_integer() else number}, without quotes or _"
    return ""
