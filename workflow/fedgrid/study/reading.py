"""Read and check the files of studies and configurations."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from fedgrid.runtime import cli
from fedgrid.runtime.code import source
from fedgrid.runtime.names import (
    UsageError,
    followed_by,
    in_words,
    known,
    refuse_twice,
    shown,
    within,
)
from fedgrid.runtime.own_config import CONFIG, is_own
from fedgrid.runtime.places import SCHEMAS, paper, roots
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.runtime.watch import trackers
from fedgrid.study.chosen import expand_study
from fedgrid.study.own_files import check_own_files
from fedgrid.study.products import complete_product
from fedgrid.study.records import Study

T = TypeVar("T")
GIVEN = "the configuration"  # files and --config together, where an error names a place


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


def check_config(name: str, config: dict, required: bool = True) -> None:
    check_schema(name, config, "config", required=required)
    with within(name):
        trackers.chosen(config.get("log"))
    for protocol, fields in (config.get("protocols") or {}).items():
        check_schema(f"{name}: protocols.{protocol}", fields, "study", "protocol")
    for product, entry in (config.get("products") or {}).items():
        check_schema(f"{name}: products.{product}", entry, "study", "product")


def add_products(studies: Mapping[str, Study], config: dict) -> None:
    study, every = config["study"], Studies(studies)
    if study not in every.left_out:
        with within(GIVEN):
            known("study", study, every)
    products = every.named(study)["products"]
    for name, entry in (config.get("products") or {}).items():
        if name in products:
            raise UsageError(
                f"{GIVEN}: products.{name} is a product of the study {study} already: give it "
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
    from fedgrid.runtime import schema  # its import takes a tenth of a second

    schema.check_schema(name, value, SCHEMAS / f"{rules}.schema.yaml", part, required)


class Studies(dict[str, Study]):
    """Studies by name; `left_out` has, by name, the mistake for which another one is left out."""

    def __init__(self, studies: Mapping[str, Study] = MappingProxyType({})):
        super().__init__(studies)
        self.left_out: dict[str, UsageError] = {**getattr(studies, "left_out", {})}

    def named(self, name: str) -> Study:
        """Return a study; UsageError for an unknown one, and the mistake of one left out."""
        if name in self.left_out:
            raise self.left_out[name]
        return self[known("study", name, self)]

    def known(self, kind: str, name: str, among: Iterable[str]) -> str:
        """Return a known name; the UsageError for another one says which studies are left out."""
        try:
            return known(kind, name, among)
        except UsageError as problem:
            if not self.left_out:
                raise
            there = f"it may be in {in_words(self.left_out)}, left out because of a mistake"
            raise followed_by(problem, f"If it is new, {there}") from None


def read_studies(folder: Path | None = None) -> Studies:
    """Return the studies of a folder, or all, by names of files; those not right are left out."""
    if folder is None:
        check_own_files()
    studies = Studies()
    for path in study_files(folder):
        try:
            studies[path.stem] = read_study(path)
        except UsageError as problem:
            studies.left_out[path.stem] = problem
    return studies


def use_studies(
    studies: Mapping[str, Study], use: Callable[[Studies], T], asked: str = "", say=cli.warn
) -> T:
    """Return what `use` gives for the studies, without those in which it finds a mistake.

    For each study that is left out, `say` is called with a sentence. UsageError if the mistake is
    in no study, or in the study that is `asked` for.
    """
    studies = Studies(studies)
    while True:
        try:
            used = use(studies)
            break
        except UsageError as problem:
            files = problem.where.partition(":")[0].split(" and ")
            wrong = [name for name in studies if f"{name}.yaml" in files and name != asked]
            if not wrong:
                raise
            for name in wrong:
                del studies[name]
                studies.left_out[name] = problem
    for name, mistake in studies.left_out.items():
        say(f"the study {name} is left out, because it has a mistake: {mistake}")
    return used


def study_files(folder: Path | None = None) -> list[Path]:
    """Return the files of studies in a folder, or in the package and the folder of a paper."""
    tops = [folder] if folder else [root / "studies" for root in roots("studies")]
    found: dict[str, Path] = {}
    for path in (path for top in tops for path in sorted(top.glob("[!.]*.yaml"))):
        if found.setdefault(path.name, path) != path:
            refuse_twice(path)
    return sorted(found.values(), key=lambda path: path.name)


def find_study(text: str) -> Path:
    """Return the file of a study; `text` is its name, or a path that ends in .yaml."""
    files = {path.stem: path for path in study_files()}
    return Path(text) if text.endswith(".yaml") else files[known("study", text, files)]


def check_place(place: Path) -> None:
    """Refuse a place beside fedgrid's own studies, from the folder of a paper."""
    own = paper()
    if own and not place.is_relative_to(own):
        raise UsageError(
            f"{place} is beside a study of fedgrid, where nothing is written from {own}: copy the "
            "file of the study to studies/ under another name"
        )


def read_study(path: Path) -> Study:
    """Read and check a study, and complete the entries of its products.

    `reference` and the entries of `curves` are replaced by the rows of the tables that they name.
    """
    check_schema(path.name, path.stem, "study", "name")
    study = read_yaml(path)
    if isinstance(study, dict):
        study |= read_kept(path, study)
    rules = [path.read_text("utf-8") for path in sorted(SCHEMAS.iterdir())]
    source.check_once([rules, study], lambda: check_schema(path.name, study, "study"))
    entries = study["products"].items()
    with within(path.name):
        products = {name: complete_product(path.stem, name, entry) for name, entry in entries}
    return expand_study(path, study | {"products": products})


def read_yaml(path: Path) -> Any:
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
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                said = f"the key {shown(repr(key))} is not text: put it in quotes"
                raise UsageError(f"{name}: {said}")
            check_keys(f"{name}: {shown(key)}", inner)
    for inner in value if isinstance(value, list) else ():
        check_keys(name, inner)


def read_kept(path: Path, study: dict[str, Any]) -> dict[str, Any]:
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
