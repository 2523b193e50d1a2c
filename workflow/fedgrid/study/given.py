"""A configuration as Snakemake gives it, read by the rules of fedgrid (`runtime/plain_yaml.py`).

Snakemake reads files by YAML 1.1, and leaves everything inside of `--config protocols={...}` as
text.
"""

from pathlib import Path
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.reading import check_config, read_flags, read_yaml
from fedgrid.study.variants import read_value


def read_given(config: dict, files: dict[Path, dict]) -> dict:
    """Return a configuration by the rules of fedgrid; `files` has what Snakemake read of each.

    UsageError, with the file's name, for a file that is not a configuration.
    """
    for path, theirs in files.items():
        ours = read_yaml(path)
        check_config(path.name, ours, required=False)
        config = as_written(config, theirs, ours)
    return with_numbers(read_flags(config))


def as_written(value: Any, theirs: Any, ours: Any) -> Any:
    """Return a value, but as `ours` where it is as `theirs`; keys are those of `ours`."""
    if not all(isinstance(one, dict) for one in (value, theirs, ours)):
        return ours if repr(value) == repr(theirs) else value
    names = dict(zip(theirs, ours, strict=True)) if len(theirs) == len(ours) else {}
    return {
        names.get(key, key): as_written(one, theirs[key], ours[names.get(key, key)])
        if key in theirs and names.get(key, key) in ours
        else one
        for key, one in value.items()
    }


def with_numbers(config: dict) -> dict:
    """Return a configuration whose protocols and variants have numbers in place of their texts."""
    readings = {"protocols": of_protocol, "variants": of_variant}
    found = {key: config[key] for key in readings if isinstance(config.get(key), dict)}
    return config | {
        key: {name: readings[key](entry) for name, entry in entries.items()}
        for key, entries in found.items()
    }


def of_protocol(entry: Any) -> Any:
    """Return a protocol's entry with numbers, also those of its `by_method`."""
    found = typed(entry, PROTOCOL)
    if isinstance(entry, dict) and isinstance(entry.get("by_method"), dict):
        own = {part: typed(of, PROTOCOL) for part, of in entry["by_method"].items()}
        return found | {"by_method": own}
    return found


def of_variant(entry: Any) -> Any:
    """Return a variant's entry with numbers among the hyper-parameters of its files."""
    if not isinstance(entry, dict):
        return entry
    there = {
        part: source.keywords(f"methods.{part}", "method")
        for part in entry.keys() & {*registered("methods")}
    }
    return {part: typed(given, there.get(part, {})) for part, given in entry.items()}


def typed(fields: Any, defaults: dict) -> Any:
    """Return fields in which a text is a value of the default's type, if it can be read as one."""
    if not isinstance(fields, dict):
        return fields
    texts = {k: v for k, v in fields.items() if isinstance(v, str) and k in defaults}
    read = {k: read_value(text, defaults[k]) for k, text in texts.items()}
    return fields | {k: value for k, value in read.items() if value is not None}
