"""What the documentation reads from the studies and the package, and nobody writes by hand.

A line `<!-- figures fedsls -->` and what follows it up to `<!-- end -->` are replaced by what the
function of this name gives. On a forge nothing is replaced, and the text between them is read. The
package must be importable: `make docs` sets PYTHONPATH. The page of verdicts is made anew and is a
part of the site, and so are the figures that `make docs` has drawn in results/.
"""

import csv
import re
from functools import cache
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedgrid.__main__ import stages
from fedgrid.analysis.claim_text import write_test
from fedgrid.page.write import write_page
from fedgrid.runtime.code import source
from fedgrid.runtime.names import listed, registered
from fedgrid.runtime.schema import read_rules
from fedgrid.store import kept as stored
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.paths import SUMMED
from fedgrid.study.products import product_module
from fedgrid.study.protocol import AXES, PROTOCOL

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "workflow/schemas/study.schema.yaml"
RESULTS, VERDICTS = ROOT / "results", ROOT / "results/verdicts.html"
DEFAULT = "fedsls"  # the study of config.yaml
SHOWN = ("small", "quick")  # scales whose products the pages show, the better one first
FORMS = ("svg", "html", "csv")  # the first one that a product has is shown
PICTURES = "pictures"  # the folder of the site with figures
MARK = re.compile(r"^<!-- (\w+)((?: [\w.]+)*) -->\n.*?\n<!-- end -->$", re.MULTILINE | re.DOTALL)


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


@cache
def everything() -> Grid:
    """Return the studies; a warning says which are left out because of a mistake."""
    return read_grid()


def study(name: str) -> dict:
    """Return a study as fedgrid reads it; UsageError with the mistake of one that is left out."""
    return everything().studies.named(name)


def studies() -> str:
    """Return a row per study: its page and its paper."""
    rows = [(f"[`{n}`](studies/{n}.md)", of["title"]) for n, of in everything().studies.items()]
    return rows_of(("study", "paper"), rows)


def papers() -> str:
    """Return a row per study of a paper: authors, title, venue and address."""
    every = everything().studies.items()
    rows = [(f"`{name}`", cite(of)) for name, of in every if of.get("cite")]
    return rows_of(("study", "paper"), rows)


def cite(about: dict) -> str:
    """Return how the paper of a study is cited; a text without authors says so."""
    of = about["cite"]
    authors = of.get("authors", "(the text that we have names no authors)")
    return f"{authors}: [{about['title']}]({of['url']}). {of['venue']} {of['year']}."


def findings() -> str:
    """Return a row per paper, as README.md has it: our difference, the printed one, a placebo's."""
    with (VERDICTS.with_suffix("") / "headlines.csv").open() as file:
        rows = [show_finding(row) for row in csv.DictReader(file)]
    head = "comparison", "we find [95 %]", "printed", "its placebo", "the sentence"
    return rows_of(head, rows)


def show_finding(row: dict) -> tuple[str, ...]:
    """Return the cells of a finding, in percentage points."""
    ours = write_effect(row["difference"], row["low"], row["high"])
    gain = write_effect(*(row[f"placebo_gain{end}"] for end in ("", "_low", "_high")))
    printed = write_number(row["printed"]) if row["printed"] else "no number"
    return row["label"], ours, printed, f"{row['placebo']}: {gain}", row["verdict"]


def write_effect(mean: str, low: str, high: str) -> str:
    """Return a mean in bold with its interval."""
    return f"**{write_number(mean)}** [{write_number(low)}, {write_number(high)}]"


def write_number(text: str) -> str:
    """Return a number with its sign and one decimal."""
    return f"{float(text):+.1f}".replace("-", "\N{MINUS SIGN}")


def claims(name: str) -> str:
    """Return a row per claim of a study, by the number that `results/claims/<number>.csv` has."""
    about, verdicts = study(name), read_verdicts(name)
    rows = [
        (
            f"[{n}](../verdicts.html#{name}-{n})",
            *(of["says"], of["section"], write_test(of, about)),
            verdicts.get(str(n), "not tested"),
        )
        for n, of in enumerate(about.get("claims", []), start=1)
    ]
    return rows_of(("claim", "the paper's sentence", "section", "we test", "verdict"), rows)


def read_verdicts(name: str) -> dict[str, str]:
    """Return the verdict on each tested claim by its number, with its scale: the first of SHOWN."""
    found: dict[str, str] = {}
    for scale in SHOWN:
        path = VERDICTS.with_suffix("") / f"{name}_{scale}_claims.csv"
        for row in csv.DictReader(path.open()) if path.exists() else ():
            if row["comparisons"] != "0":
                found.setdefault(row["claim"], f"{row['our_verdict']} ({scale})")
    return found


def headline(name: str) -> str:
    """Return what was found with a study: its headline, and how its claims stand."""
    said = study(name).get("headline", {}).get("says", "")
    return "\n\n".join([f"**{said}**"] * bool(said) + [tally(name)])


def omissions() -> str:
    """Return a row per part of a comparison that is left out: how many methods are better then."""
    path = RESULTS / "studies/baselines/small/omissions.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    cells = [(of["left_out"], of["better"], of["more"], of["fewer"]) for of in rows]
    return rows_of(("left out", "better than FedAvg", "more", "fewer"), cells)


def tally(name: str) -> str:
    """Return how many claims of a study have which verdict, by scale, with a link to the page."""
    link = f"[Each with its evidence](../verdicts.html#{name})."
    path = VERDICTS.with_suffix("") / "tally.csv"
    if not path.exists():
        return link
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row.pop("study") == name]
    filled = [row for row in rows if {*row.values()} - {row["column"]} - {"0", row["claims"]}]
    head = ("numbers of", *(name for name in rows[0] if name != "column"))
    table = rows_of(head, [(*row.values(),) for row in filled])
    said = [of for scale in SHOWN for of in untested(name, scale)]
    return "\n\n".join([table] * bool(filled) + said + [link])


def untested(name: str, scale: str) -> list[str]:
    """Return a sentence about the claims that a scale does not test; none if it has no runs."""
    path = VERDICTS.with_suffix("") / f"{name}_{scale}_untested.csv"
    if not path.exists():
        return []
    with path.open() as file:
        every, *reasons = csv.DictReader(file)
    why = [f"{row['untested']}, because {row['reason']} ({row['numbers']})" for row in reasons]
    said = f"At the scale `{scale}`, {every['untested']} of {every['claims']} claims have no runs"
    return [": ".join(filter(None, [said, "; ".join(why)])) + "."]


def scales(name: str) -> str:
    """Return a row per scale of a study: its data, protocols and number of different runs."""
    return rows_of(
        ("scale", "datasets", "runs"),
        [(f"`{scale}`", *size(name, scale)) for scale in study(name)["scales"]],
    )


def kept(scale: str) -> str:
    """Return a row per study: how many runs of a scale are kept with it, of how many, hours."""
    rows = []
    for name in sorted(n for n, study in everything().studies.items() if scale in study["scales"]):
        index = stored.read_index(stored.store_folder(name, scale))
        runs = [entry for path, entry in index.items() if path.startswith("runs/")]
        hours = sum(float(entry["seconds"]) for entry in runs) / 3600
        rows.append((f"`{name}`", len(runs), size(name, scale)[1], f"{hours:.1f}"))
    return rows_of(("study", "kept runs", "of", "hours"), rows)


def size(name: str, scale: str) -> tuple[str, int]:
    """Return the datasets of a scale, and how many different runs its grids have."""
    grids = study(name)["scales"][scale]["grids"]
    runs = {
        tuple(run.values()): run for grid in grids for run in everything().runs(name, scale, grid)
    }
    return code(sorted({run["dataset"] for run in runs.values()})), len(runs)


# -- pictures -------------------------------------------------------------------------------------


def gallery() -> str:
    """Return every table and figure of every study: what it shows, its command, its picture."""
    names = [*everything().studies]
    names.sort(key=lambda name: "published" not in study(name))  # the studies of papers first
    return "\n\n".join(f"## {study(name)['title']}\n\n{figures(name, '')}" for name in names)


def figures(name: str, up: str = "../") -> str:
    """Return the products of a study with their commands; `up` leads to the folder of the site."""
    products = study(name)["products"].items()
    entries = [show_product(name, product, of, up) for product, of in products]
    entries.sort(key=lambda entry: ("<img" not in entry, "<table" not in entry))
    return "\n".join(['<div class="gallery" markdown>', *entries, "</div>"])


def show_product(name: str, product: str, of: dict, up: str) -> str:
    """Return what a product shows, the command that draws it, and the product if it is drawn."""
    form = next(form for form in FORMS if form in of["formats"])
    says = of.get("caption") or source.summary(product_module(name, product, of))
    scale = next((one for one in SHOWN if place_of(name, one, product, form).exists()), "")
    asked = " ".join([f"study={name}"] * (name != DEFAULT) + [f"scale={scale}"] * bool(scale))
    command = f"snakemake --cores 2{f' --config {asked} --' * bool(asked)} results/{product}.{form}"
    shown = SHOW[form](place_of(name, scale, product, form), up) if scale else ""
    parts = [f"**{product}**. {says}", "", shown, f"`{command}`", ""]
    return "\n".join(['<figure class="product" markdown>', *parts, "</figure>", ""])


def place_of(name: str, scale: str, product: str, form: str) -> Path:
    """Return where a product of a study is at a scale."""
    return RESULTS / f"studies/{name}/{scale}/{product}.{form}"


def show_picture(path: Path, up: str) -> str:
    """Return a figure as a picture that leads to itself."""
    address = f"{up}{PICTURES}/{path.relative_to(RESULTS / 'studies').as_posix()}"
    return f'<a href="{address}"><img alt="{path.stem}" src="{address}"></a>\n'


def show_table(path: Path, up: str) -> str:
    """Return the table of a file in HTML, in a box in which it scrolls."""
    table = path.read_text().partition("<table")[2].partition("</table>")[0]
    return f'<div class="shown" tabindex="0"><table{table}</table></div>\n' * bool(table)


SHOW = {"svg": show_picture, "html": show_table, "csv": lambda path, up: ""}


def list_pictures() -> list[Path]:
    """Return the figures that have been drawn, at the scales that are shown."""
    found = (RESULTS / "studies").glob("*/*/*.svg")
    return sorted(path for path in found if path.parent.name in SHOWN)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the pages of verdicts, and add them, their tables and the figures to the site."""
    written = write_page(VERDICTS, everything(), RESULTS, sorted(everything().studies))
    added = {path.relative_to(RESULTS): path for path in written}
    added |= {Path(PICTURES, *path.parts[-3:]): path for path in list_pictures()}
    for place, path in added.items():
        files.append(File.generated(config, place.as_posix(), abs_src_path=str(path)))
    return files


# -- the package ----------------------------------------------------------------------------------


def registry(kind: str) -> str:
    """Return a row per file of a registry, such as methods: what it is."""
    return rows_of(
        ("name", "what it is"),
        [(f"`{n}`", source.summary(f"{kind}.{n}")) for n in registered(kind)],
    )


def methods() -> str:
    """Return a table of methods per section: what each is, its paper, its hyper-parameters."""
    sections = yaml.safe_load((ROOT / "docs/papers.yaml").read_text())
    listed = {name for papers in sections.values() for name in papers}
    own = {name: None for name in registered("methods") if name not in listed}
    sections |= {"Others": own} if own else {}
    return "\n\n".join(
        f"### {title}\n\n"
        + rows_of(
            ("method", "what it is", "hyper-parameters and defaults"),
            [(f"`{n}`", link_paper(n, paper), defaults(n)) for n, paper in papers.items()],
        )
        for title, papers in sections.items()
    )


def link_paper(name: str, paper: str | None) -> str:
    """Return what a method is, with a link to its paper, if there is one."""
    return source.summary(f"methods.{name}") + (f" [Paper]({paper})" if paper else "")


def defaults(name: str) -> str:
    """Return the hyper-parameters of a method with their defaults."""
    given = source.keywords(f"methods.{name}", "method")
    return code(f"{key}={value!r}" for key, value in given.items())


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
    first, *others = listed(rule["type"])
    kind = {"integer": "whole number", "string": "text", "object": "mapping"}.get(first, first)
    limits = [f"{words} {rule[key]:g}" for key, words in LIMITS.items() if key in rule]
    word = f", or `{rule['pattern'].strip('^$')}`" if others else ""  # a text beside the numbers
    return " ".join([kind, " and ".join(limits)]).strip() + word


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
        *(
            studies,
            papers,
            claims,
            headline,
            omissions,
            figures,
            gallery,
            scales,
            kept,
            registry,
            methods,
        ),
        *(fields, commands, listing),
        *(files_with_columns, fields_of_runs, columns, partitions),
    )
}
