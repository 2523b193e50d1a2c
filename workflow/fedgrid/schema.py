"""Check config.yaml and the studies against their schemas; one sentence for what is wrong."""

from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from fedgrid.names import UsageError, known, shown

CHANGES_RESULTS = False


def check(
    name: str, value: Any, schema: Path, part: str | None = None, required: bool = True
) -> None:
    """UsageError that names the key, what it is and what it may be, if there is anything wrong.

    `part` is one of the schema's definitions, if `value` is to be checked against that. Unless it
    is `required` to be whole, keys of the first level may be left out.
    """
    rules = yaml.safe_load(schema.read_text())
    rules = rules["$defs"][part] if part else rules
    rules = rules if required else rules | {"required": []}
    errors = Draft202012Validator(rules).iter_errors(value)
    if error := best_match(errors):
        where = ".".join(shown(part) for part in error.absolute_path if isinstance(part, str))
        raise UsageError(f"{name}: {where + ': ' if where else ''}{said(error)}")


TYPES = {"integer": "a whole number", "number": "a number", "object": "`key: value` pairs"}
TYPES |= {"string": "text", "array": "a list", "boolean": "true or false"}


def said(error: ValidationError) -> str:
    """The error in words."""
    if error.validator == "additionalProperties" and error.validator_value is False:
        unknown = sorted(map(str, set(error.instance) - set(error.schema["properties"])))[0]
        try:
            known("key", unknown, error.schema["properties"])
        except UsageError as problem:
            return str(problem)
    if error.validator == "enum":
        there = ", ".join(map(str, error.validator_value))
        return f"{shown(repr(error.instance))} is not one of {there}"
    if error.validator == "pattern":
        return f"`{shown(error.instance)}` is not {error.schema['description']}"
    if error.validator == "type":
        wanted = error.validator_value
        words = [TYPES.get(w, w) for w in ([wanted] if isinstance(wanted, str) else wanted)]
        return f"{shown(repr(error.instance))} is not {' or '.join(words)}"
    return shown(error.message)
