"""Correct the configuration that Snakemake gives, by fedgrid's rules (`runtime/plain_yaml.py`).

Snakemake reads files by YAML 1.1, which takes some texts for other values, and leaves everything
inside of `--config protocols={...}` as text.
"""

from pathlib import Path
from typing import Any

from fedgrid.runtime.names import registered
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.reading import check_config, read_yaml
from fedgrid.study.resolving import list_defaults
from fedgrid.study.variants import TRUTH, read_value

FLAGS = ("warm", "kept")  # keys of a configuration that are true or false


def read_given(config: dict, files: dict[Path, dict]) -> dict:
    """Read a configuration by fedgrid's rules; `files` has the content of each file by Snakemake.

    UsageError, with the file's name, for a file that is not a configuration.
    """
    for path, theirs in files.items():
        ours = read_yaml(path)
        check_config(path.name, ours, required=False)
        config = restore_values(config, theirs, ours)
    return convert_config(read_flags(config))


def restore_values(value: Any, theirs: Any, ours: Any) -> Any:
    """Replace what Snakemake read (`theirs`) inside a value by what fedgrid reads (`ours`).

    Parts that differ from `theirs`, because `--config` changed them, stay. Keys are those of
    `ours`.
    """
    if not all(isinstance(inner, dict) for inner in (value, theirs, ours)):
        return ours if repr(value) == repr(theirs) else value
    names = dict(zip(theirs, ours, strict=True)) if len(theirs) == len(ours) else {}
    return {
        names.get(key, key): restore_values(inner, theirs[key], ours[names.get(key, key)])
        if key in theirs and names.get(key, key) in ours
        else inner
        for key, inner in value.items()
    }


def read_flags(config: dict) -> dict:
    """Convert the texts `true` and `false` of the keys FLAGS to booleans.

    Snakemake leaves `--config kept=false` as text.
    """
    texts = {key: config[key] for key in FLAGS if isinstance(config.get(key), str)}
    return config | {key: TRUTH.get(text.lower(), text) for key, text in texts.items()}


def convert_config(config: dict) -> dict:
    """Convert texts to numbers in the protocols and variants of a configuration."""
    converted = dict(config)
    for key, convert in (("protocols", convert_protocol), ("variants", convert_variant)):
        if isinstance(config.get(key), dict):
            converted[key] = {name: convert(entry) for name, entry in config[key].items()}
    return converted


def convert_protocol(entry: Any) -> Any:
    converted = convert_texts(entry, PROTOCOL)
    if isinstance(converted, dict) and isinstance(own := converted.get("by_method"), dict):
        converted["by_method"] = {part: convert_texts(of, PROTOCOL) for part, of in own.items()}
    return converted


def convert_variant(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    there = registered("methods")
    return {
        part: convert_texts(given, list_defaults(part) if part in there else {})
        for part, given in entry.items()
    }


def convert_texts(fields: Any, defaults: dict) -> Any:
    """Convert each text to the type of the field's default, if it can be read as such a value."""
    if not isinstance(fields, dict):
        return fields
    texts = {k: v for k, v in fields.items() if isinstance(v, str) and k in defaults}
    read = {k: read_value(text, defaults[k]) for k, text in texts.items()}
    return fields | {k: value for k, value in read.items() if value is not None}
