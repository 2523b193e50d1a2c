"""What the front page of the report shows: its table, its row per claim, and its figure."""

import base64
import re
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedgrid.analysis import tables
from fedgrid.page import marks
from fedgrid.report import _formats, _product
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.products import product_module
from fedgrid.study.records import Product, Study

HERE = Path(__file__).parent
WARNING = "This scale shows that everything works. It says nothing about the paper's claims."


def render_front(study: Study, **shown: Any) -> str:
    """Render the front page as HTML, to be put into Snakemake's report."""
    loader = FileSystemLoader(HERE)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    page = made.get_template("front.html.jinja")
    warning = WARNING if shown["scale"] == "quick" else ""
    return page.render(title=study["title"], marks=marks, warning=warning, **shown)


def show_table(name: str, study: Study, product: str, path: Path) -> dict[str, Any] | None:
    """Return heading, caption and HTML of a product's table; None if the table has no rows."""
    entry = study["products"][known(f"product of {name}", product, study["products"])]
    loaded, table = _product.load_product(name, product, entry), _product.read_table(path)
    if table.empty or _product.NOTHING in table:
        return None
    return {
        "name": write_title(product),
        "says": describe_product(name, product, entry),
        "caption": loaded.caption(table),
        "body": _formats.write_body(loaded, table, study, "front-table"),
        "marked": hasattr(loaded, "ranked"),
    }


def describe_product(name: str, product: str, entry: Product) -> str:
    """Return what a product shows, in one sentence."""
    return entry.get("caption") or source.summary(product_module(name, product, entry))


def read_claims(path: Path) -> list[dict[str, Any]]:
    """Return what is shown of each claim: sentence, marks, the deciding difference."""
    table = _product.read_table(path)
    if missing := {"published_verdict", "our_verdict", "difference"} - {*table.columns}:
        raise UsageError(f"{path} is no table of claims: it has no column {min(missing)}")
    return [show_claim(row) for row in table.to_dict("records")]


def show_claim(row: dict) -> dict[str, Any]:
    """Return what is shown of one claim."""
    printed, ours = (
        "" if pd.isna(row[key]) else row[key] for key in ("published_verdict", "our_verdict")
    )
    decided = ours if pd.notna(row["difference"]) else marks.NO_RUNS
    digits = 2 if abs(row["difference"]) >= 0.1 else 3
    return {
        "number": row["claim"],
        "says": row["says"],
        "printed": marks.find_mark(printed),
        "ours": marks.find_mark(decided or marks.NO_RUNS),
        "difference": tables.write_interval(
            row["difference"], row["low"], row["high"], "+", digits
        ),
        "seeds": "" if pd.isna(row["seeds"]) else f"{row['seeds']:.0f}",
    }


def show_figure(name: str, study: Study, product: str, image: Path) -> dict[str, str]:
    """Return the heading and the picture of a figure, which is an SVG file."""
    known(f"product of {name}", product, study["products"])
    says = describe_product(name, product, study["products"][product])
    return {"name": write_title(product), "says": says, "address": embed_picture(image)}


def embed_picture(path: Path) -> str:
    """Return an SVG file as an address that holds all of it."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise UsageError(f"{path} cannot be read ({problem.strerror})") from None
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def write_title(product: str) -> str:
    """Return the heading of a product: `Table 1` of table1."""
    return re.sub(r"(\d+)$", r" \1", product).capitalize()
