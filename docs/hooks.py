"""Tables of the documentation that are read from the studies and the package, not written by hand.

A line `<!-- products fedsls -->` of a page is replaced by what the function of this name gives. The
package must be importable: `make docs` sets PYTHONPATH.
"""

import re
from pathlib import Path

import yaml

from fedgrid.__main__ import stages
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.store import kept as stored
from fedgrid.study.grid import Grid
from fedgrid.study.paths import SUMMED
from fedgrid.study.products import product_module
from fedgrid.study.protocol import AXES, PROTOCOL
from fedgrid.study.reading import read_studies, read_study
from fedgrid.study.schema import read_rules

ROOT = Path(__file__).parents[1]
STUDIES, SCHEMA = ROOT / "workflow/studies", ROOT / "workflow/schemas/study.schema.yaml"
MARK = re.compile(r"^<!-- (\w+)((?: [\w.]+)*) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_) -> str:
    """Replace the marks of a page."""
    return MARK.sub(lambda found: TABLES[found[1]](*found[2].split()), markdown)


def rows_of(head: tuple[str, ...], rows: list[tuple]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(escape, line)) + " |" for line in lines)


def escape(value: object) -> str:
    """Return a value for a cell of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(names) -> str:
    """Return names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


# -- studies --------------------------------------------------------------------------------------


def study(name: str) -> dict:
    """Return a study as fedgrid reads it."""
    return read_study(STUDIES / f"{name}.yaml")


def studies() -> str:
    """Return a row per study: its page and its paper."""
    names = [path.stem for path in sorted(STUDIES.glob("[!.]*.yaml"))]
    return rows_of(
        ("study", "paper"), [(f"[`{n}`](studies/{n}.md)", study(n)["title"]) for n in names]
    )


def products(name: str) -> str:
    """Return a row per product of a study: what it shows, and in which formats."""
    about = study(name)["products"]
    shown = [
        (f"`{p}`", of.get("caption") or source.summary(product_module(name, p, of)), formats(of))
        for p, of in about.items()
    ]
    return rows_of(("product", "what it shows", "formats"), shown)


def formats(product: dict) -> str:
    """Return the formats of a product."""
    return " ".join(product["formats"])


def claims(name: str) -> str:
    """Return a row per claim of a study, by the number that `results/claims/<number>.csv` has."""
    about = study(name).get("claims", [])
    shown = [(n, of["says"], of["section"]) for n, of in enumerate(about, start=1)]
    return rows_of(("claim", "the paper's sentence", "section"), shown)


def scales(name: str) -> str:
    """Return a row per scale of a study: its data, protocols and number of different runs."""
    everything = Grid(read_studies())
    return rows_of(
        ("scale", "datasets", "runs"),
        [(f"`{scale}`", *size(everything, name, scale)) for scale in study(name)["scales"]],
    )


def kept(scale: str) -> str:
    """Return a row per study: how many runs of a scale are kept with it, of how many, hours."""
    everything, rows = Grid(read_studies()), []
    for name in sorted(n for n, study in everything.studies.items() if scale in study["scales"]):
        index = stored.read_index(stored.store_folder(name, scale))
        runs = [entry for path, entry in index.items() if path.startswith("runs/")]
        hours = sum(float(entry["seconds"]) for entry in runs) / 3600
        rows.append((f"`{name}`", len(runs), size(everything, name, scale)[1], f"{hours:.1f}"))
    return rows_of(("study", "kept runs", "of", "hours"), rows)


def size(everything, name: str, scale: str) -> tuple[str, int]:
    """Return the datasets of a scale, and how many different runs its grids have."""
    grids = everything.studies[name]["scales"][scale]["grids"]
    runs = {
        tuple(run.values()): run for grid in grids for run in everything.runs(name, scale, grid)
    }
    return code(sorted({run["dataset"] for run in runs.values()})), len(runs)


# -- the package ----------------------------------------------------------------------------------


def registry(kind: str) -> str:
    """Return a row per file of a registry, such as methods: what it is."""
    return rows_of(
        ("name", "what it is"),
        [(f"`{n}`", source.summary(f"{kind}.{n}")) for n in registered(kind)],
    )


def methods() -> str:
    """Return a row per method: what it is, and its hyper-parameters with their defaults."""

    def given(name: str) -> str:
        return code(f"{key}={value!r}" for key, value in keywords(name).items())

    def keywords(name: str) -> dict:
        return source.keywords(f"methods.{name}", "method")

    shown = [(f"`{n}`", source.summary(f"methods.{n}"), given(n)) for n in registered("methods")]
    return rows_of(("method", "what it is", "hyper-parameters and defaults"), shown)


def fields() -> str:
    """Return a row per field of a protocol: its values, its default, and what it means."""
    rules = read_rules(SCHEMA)["$defs"]["protocol"]["properties"]
    shown = [
        (f"`{name}`", values_of(rules[name]), f"`{default!r}`", rules[name].get("description", ""))
        for name, default in PROTOCOL.items()
    ]
    return rows_of(("field", "values", "default", "meaning"), shown)


LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
LIMITS |= {"exclusiveMaximum": "below"}


def values_of(rule: dict) -> str:
    """Return which values a rule of the schema allows."""
    if choices := rule.get("enum") or rule.get("items", {}).get("enum"):
        return ("a list of " if "items" in rule else "") + code(choices)
    kind = {"integer": "whole number", "string": "text", "object": "mapping"}.get(rule["type"])
    limits = [f"{words} {rule[key]:g}" for key, words in LIMITS.items() if key in rule]
    return " ".join([kind or rule["type"], " and ".join(limits)]).strip()


def partitions() -> str:
    """Return a row per kind of partition: an example of its names, and what it is."""
    shown = [
        (f"`{source.literal(f'partitions.{n}', 'EXAMPLE')}`", source.summary(f"partitions.{n}"))
        for n in registered("partitions")
    ]
    return rows_of(("such as", "what it is"), shown)


def commands() -> str:
    """Return a row per stage: its command, and what it does."""
    shown = [(f"`fedgrid {name}`", source.summary(f"commands.{name}")) for name in stages()]
    return rows_of(("command", "what it does"), shown)


def listing(module: str, *names: str) -> str:
    """Return the code of classes of a module, whose fields are explained by comments."""
    text, there = source.path(module).read_text(), source.definitions(module)
    lines = text.splitlines()
    parts = ["\n".join(lines[first_line(there[n]) - 1 : there[n].end_lineno]) for n in names]
    return "```python\n" + "\n\n\n".join(parts) + "\n```"


def first_line(node) -> int:
    """Return the number of the first line of a definition, with its decorators."""
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


# -- columns --------------------------------------------------------------------------------------


def dictionary() -> dict:
    """Return what is known of every CSV: `files` with their columns, and the `columns`."""
    return yaml.safe_load((ROOT / "docs/columns.yaml").read_text())


def columns_of(name: str, files: dict[str, list[str]]) -> list[str]:
    """Return the columns of a file; `*other` stands for those of another file, or of its run."""
    every = files | {"run": [*AXES, *SUMMED]}
    found = [
        columns_of(one[1:], every) if one.startswith("*") else [one] for one in every.get(name, [])
    ]
    return [*dict.fromkeys(column for one in found for column in one)]


def fields_of_runs() -> str:
    """Return the fields of a protocol that every table of runs has."""
    return f"{code(SUMMED)}."


def files_with_columns() -> str:
    """Return a row per kind of CSV, by its path: what a row of it is, its columns."""
    about = sorted(dictionary()["files"], key=lambda of: of["path"])
    rows = [(f"`{of['path']}`", of["row"], code(shown(of["columns"]))) for of in about]
    return rows_of(("file", "a row is", "columns"), rows)


def shown(columns: list[str]) -> list[str]:
    """Return columns as readers see them; those of a run are named together."""
    return [f"*{one[1:]}" if one.startswith("*") else one for one in columns]


def columns() -> str:
    """Return a row per column of any CSV, by its name: its unit, and what it means."""
    about = sorted(dictionary()["columns"].items(), key=lambda of: of[0].lower().strip("<"))
    rows = [(f"`{name}`", unit, meaning) for name, (unit, meaning) in about]
    return rows_of(("column", "unit", "meaning"), rows)


TABLES = {
    function.__name__: function
    for function in (
        *(studies, products, claims, scales, kept, registry, methods, fields, commands, listing),
        *(files_with_columns, fields_of_runs, columns, partitions),
    )
}
