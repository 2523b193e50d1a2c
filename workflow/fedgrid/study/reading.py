"""Read and check the files of studies and configurations."""

import csv
import json
from pathlib import Path
from typing import Any

import yaml

from fedgrid.runtime import cli
from fedgrid.runtime.code import source
from fedgrid.runtime.names import PACKAGE, UsageError, known, shown
from fedgrid.runtime.own_config import CONFIG, is_own
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.runtime.watch import trackers
from fedgrid.study.products import complete_product
from fedgrid.study.records import Study

# They are in the package where it is installed from a wheel, and beside it in a checkout.
HOME = PACKAGE if (PACKAGE / "studies").is_dir() else PACKAGE.parent
STUDIES, SCHEMAS = HOME / "studies", HOME / "schemas"
FLAGS = ("warm", "kept")  # keys of a configuration that are true or false


def read_config(path: Path) -> dict:
    """Read and check a configuration; a missing config.yaml counts as empty.

    A config.yaml of another program counts as empty, too, with a warning.
    """
    if path == CONFIG and not path.exists():
        return {}
    try:
        own = read_yaml(path) or {}
        check_config(path.name, own, required=False)
    except UsageError as problem:
        if path != CONFIG or is_own(path.read_text("utf-8", errors="replace")):
            raise
        cli.warn(f"the {CONFIG} of this folder is ignored, because it is not fedgrid's ({problem})")
        return {}
    return own


def read_flags(config: dict) -> dict:
    """Convert the texts `true` and `false` of the keys FLAGS to booleans.

    Snakemake leaves `--config kept=false` as text.
    """
    values = {"true": True, "false": False}
    texts = {key: config[key] for key in FLAGS if isinstance(config.get(key), str)}
    return config | {key: values.get(text.lower(), text) for key, text in texts.items()}


def check_config(name: str, config: dict, required: bool = True) -> None:
    """Raise a UsageError for a configuration, or one of its protocols, that breaks its schema."""
    check_schema(name, config, "config", required=required)
    trackers.chosen(config.get("log"))
    for protocol, fields in (config.get("protocols") or {}).items():
        check_schema(f"{name}: protocols.{protocol}", fields, "study", "protocol")
    for product, entry in (config.get("products") or {}).items():
        check_schema(f"{name}: products.{product}", entry, "study", "product")


def add_products(studies: dict[str, Study], config: dict) -> None:
    """Add the configuration's products to those of the study that it names."""
    study = known("study", config["study"], studies)
    products = studies[study]["products"]
    for name, entry in (config.get("products") or {}).items():
        if name in products:
            raise UsageError(
                f"config.yaml: products.{name} is a product of the study {study} already: give it "
                f"another name, and write `draw: {products[name].get('draw', name)}`"
            )
        products[name] = complete_product(study, name, entry)


def merge_configs(below: Any, above: Any) -> Any:
    """Return `above`; mappings are merged with `below`, as Snakemake merges configurations."""
    if not isinstance(above, dict):
        return above
    below = below if isinstance(below, dict) else {}
    return below | {key: merge_configs(below.get(key), value) for key, value in above.items()}


def check_schema(
    name: str, value: Any, rules: str, part: str | None = None, required: bool = True
) -> None:
    """Raise a UsageError for a value that breaks a schema."""
    from fedgrid.study import schema  # its import takes a tenth of a second

    schema.check_schema(name, value, SCHEMAS / f"{rules}.schema.yaml", part, required)


def read_studies(folder: Path = STUDIES) -> dict[str, Study]:
    """Return every study of a folder, by its file's name."""
    return {path.stem: read_study(path) for path in study_files(folder)}


def study_files(folder: Path = STUDIES) -> list[Path]:
    """Return the files of studies in a folder, without those that editors and systems hide."""
    return sorted(path for path in folder.glob("*.yaml") if not path.name.startswith("."))


def find_study(text: str) -> Path:
    """Return the file of a study, given by name or as a .yaml file."""
    if text.endswith(".yaml"):
        return Path(text)
    return STUDIES / f"{known('study', text, (path.stem for path in study_files()))}.yaml"


def read_study(path: Path) -> Study:
    """Read and check a study, and complete the entries of its products.

    `reference` and the entries of `curves` are replaced by the rows of the tables that they name.
    """
    study = read_yaml(path)
    if isinstance(study, dict):
        study |= read_kept(path, study)
    rules = (SCHEMAS / "study.schema.yaml").read_text("utf-8")
    source.check_once([rules, study], lambda: check_schema(path.name, study, "study"))
    entries = study["products"].items()
    products = {name: complete_product(path.stem, name, entry) for name, entry in entries}
    return study | {"products": products}


def read_yaml(path: Path) -> Any:
    """Read a YAML file; UsageError if it is damaged, or has values that JSON cannot hold."""
    try:
        content = load_yaml(path.read_bytes())
        json.dumps(content)  # products depend on it as JSON
        check_keys(path.name, content)
        return content
    except UsageError:
        raise
    except yaml.YAMLError as problem:
        what = " ".join(str(problem).replace('in "<byte string>", ', "").split())
        raise UsageError(f"{path.name} is not YAML: {what}") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read ({problem})") from None
    except (TypeError, ValueError, RecursionError) as problem:
        what = "that is neither text, number, list nor pairs"
        raise UsageError(f"{path.name} holds something {what} ({problem})") from None


def check_keys(name: str, value: Any) -> None:
    """Raise a UsageError for a key that is not text: a number, a date or null."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                said = f"the key {shown(repr(key))} is not text: put it in quotes"
                raise UsageError(f"{name}: {said}")
            check_keys(f"{name}: {shown(key)}", inner)
    for inner in value if isinstance(value, list) else ():
        check_keys(name, inner)


def read_kept(path: Path, study: dict[str, Any]) -> dict[str, Any]:
    """Read the tables that a study names as `reference` and under `curves`."""
    tables: dict[str, Any] = {key: study[key] for key in ("reference", "curves") if key in study}
    if isinstance(tables.get("curves"), dict):
        curves = tables["curves"].items()
        tables["curves"] = {
            name: read_table(path, f"curves {name}", table) for name, table in curves
        }
    if "reference" in tables:
        tables["reference"] = read_table(path, "reference", tables["reference"])
    return tables


def read_table(study: Path, key: str, name: Any) -> Any:
    """Read the rows of a table that a study names; a value other than a name is unchanged."""
    if not isinstance(name, str):
        return name
    where = f"{study.name}: the {shown(key)} {shown(name)}"
    try:
        table = csv.DictReader((study.parent / name).read_text("utf-8-sig").splitlines())
        rows = [(table.line_num, row) for row in table]
    except (OSError, ValueError, csv.Error) as problem:
        raise UsageError(f"{where} cannot be read ({problem})") from None
    for line, row in rows:
        if None in row or None in row.values():
            wanted = f"{len(table.fieldnames or ())} values, as its first line names"
            raise UsageError(f"{where}, line {line}, has not {wanted}")
    return [row for _, row in rows]
