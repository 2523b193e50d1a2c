"""Load a product of a study with its entry's options, and draw its table and its caption."""

import inspect
import traceback
from argparse import Namespace
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from textwrap import fill as fill_text
from types import SimpleNamespace

from fedgrid.runtime import cli
from fedgrid.runtime.code import contract
from fedgrid.runtime.names import NothingToDrawError, UsageError, listed
from fedgrid.store.kept import CHANGED, read_index
from fedgrid.store.trained_again import read_noted
from fedgrid.study import products
from fedgrid.study.paths import COLLECTED, OF_RUN, TEXTS
from fedgrid.study.records import Product, Study

FUNCTIONS = ("draw", "caption", "wide", "below", "ranked", "plot")  # of a product's file
KEPT = "kept"  # the column of a table with runs that are kept with the study
CITED = "cited"  # the column with the citations of published values (`analysis/published.py`)
NOTHING = "nothing"  # the only column of a table without rows: why there are none
FEW = 3  # rows of a table of which each cell may have a line of its own
NO_ROWS = "There is nothing to draw: {}."


def draw_or_explain(product: SimpleNamespace, tables: dict, study: Study, asked: Namespace):
    """Draw a product's table; return the product and the table.

    If there is nothing to draw, both are replaced by a product and a table that say why.
    """
    try:
        return product, draw_table(product, tables, study, asked.scale)
    except NothingToDrawError as reason:
        cli.warn(f"{asked.product}: there is nothing to draw: {reason}")
        return explain_no_rows(product, str(reason))
    except KeyError as problem:
        *_, innermost = traceback.walk_tb(problem.__traceback__)
        asked_of_pandas = innermost[0].f_globals["__name__"].startswith("pandas.")
        if not asked_of_pandas or all(problem.args[0] in table for table in tables.values()):
            raise
        raise UsageError(f"a source of {asked.product} has no column {problem}") from None


def explain_no_rows(product: SimpleNamespace, reason: str):
    import pandas as pd

    from fedgrid.analysis import figures

    stand_in = SimpleNamespace(
        caption=lambda table: NO_ROWS.format(reason), wide=lambda table: table.iloc[:0]
    )
    if hasattr(product, "plot"):
        stand_in.plot = lambda table, study: figures.make_blank()
    return stand_in, pd.DataFrame({NOTHING: [reason]})


def load_product(name: str, product: str, entry: Product) -> SimpleNamespace:
    """Load the functions of a product's file, and bind the entry's options that each takes.

    `name` is the study's name. The result's `needed` are the sources that the product must have,
    and `possible` those that it may have; None allows any.
    """
    module, options = products.product_module(name, product, entry), entry.get("with", {})
    file = contract.imported(module)
    needed, possible = products.list_parameters(module, options)
    others = {*options, *products.GIVEN}
    loaded = SimpleNamespace(needed={*needed} - others, possible=possible and {*possible} - others)
    for function in (name for name in FUNCTIONS if hasattr(file, name)):
        setattr(loaded, function, bind_options(getattr(file, function), options))
    loaded.size = options.get(products.SIZE)
    loaded.best = products.read_best(module, options)
    if loaded.best and "metric" in options:
        from fedgrid.analysis import choice

        for shown in listed(options["metric"]):
            choice.check_best(shown, loaded.best)
    if hasattr(loaded, "caption"):
        chosen = loaded.best or options.get(products.BEST)
        loaded.caption = partial(write_caption, loaded.caption, chosen)
    return loaded


def describe_kept(product: str, paths: dict[str, Path], tables: dict, store: Path) -> str:
    """Write what the note of a product says of kept runs; "" if no source has any.

    A warning says what has changed in the code since they were made. The folder of a source is its
    kind. A source in any other folder counts as a table of runs.
    """
    if not any(KEPT in table for table in tables.values()):
        return ""
    from fedgrid.report import _kept as kept

    kinds = {name: path.parent.name for name, path in paths.items()}
    sources = [(kinds[n] if kinds[n] in COLLECTED else "runs", tables[n]) for n in paths]
    changes = kept.describe_changes(sources)
    for sentence in changes:
        cli.warn(f"{product}: {sentence} To train them again, add --config kept=false")
    index = read_index(store)
    again = kept.describe_again(sources, read_noted(store))
    said = [kept.describe_kept(sources, index), *([again] if again else changes)]
    return " ".join(filter(None, [*said, kept.describe_processors(sources, index)]))


def add_kept_column(table, said: str):
    return table.assign(**{KEPT: said}) if said else table


def drop_kept(table):
    """Drop the columns about kept runs, which the functions of products do not expect."""
    return table.drop(columns=[KEPT, CHANGED], errors="ignore")


def write_caption(caption: Callable, best: dict | None, table) -> str:
    """Write a product's caption, also how its runs were chosen and why cells are empty."""
    from fedgrid.analysis import choice, tables
    from fedgrid.analysis.symbols import write_symbols

    shown = drop_kept(table)
    parts = [caption(shown)]
    if best is not None:
        parts.append(choice.describe_choice(best))
    parts[-1] += tables.describe_empty(shown)
    return write_symbols(" ".join(parts))


def write_note(table) -> str:
    """Write from where a table's values are: published ones, and kept runs; "" if it has none."""
    found = [table[name].iloc[0] for name in (CITED, KEPT) if name in table and len(table)]
    return " ".join(filter(None, found))


def draw_table(product: SimpleNamespace, tables: dict, study: Study, scale: str):
    """Draw the product's table; with `best` from the best runs only, with what was chosen."""
    from fedgrid.analysis import figures

    study = reduce(figures.tell_apart, tables.values(), study)
    if not product.best:
        return product.draw(**tables, study=study, scale=scale)
    from fedgrid.analysis import choice

    chosen = choice.choose_best(tables["runs"], tables["settings"], **product.best)
    kept = {
        name: choice.keep_chosen(table, chosen) if name in OF_RUN else table
        for name, table in tables.items()
    }
    taken = inspect.signature(product.draw).parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    given = {name: table for name, table in kept.items() if any_name or name in taken}
    return choice.add_choice(product.draw(**given, study=study, scale=scale), kept["runs"])


def bind_options(function: Callable, options: dict) -> Callable:
    taken = inspect.signature(function).parameters
    return partial(function, **{name: value for name, value in options.items() if name in taken})


def write_text(product, path: Path, columns: int | None = None) -> str:
    """Write a finished table and its caption as plain text, for a terminal with so many columns."""
    table = read_table(path)
    if NOTHING in table:
        return NO_ROWS.format(table[NOTHING].iloc[0])
    try:
        bodies = [write_body(of, columns) for of in lay_out(product, table)] if len(table) else []
        return "\n\n".join(filter(None, (product.caption(table), *bodies, write_note(table))))
    except KeyError as problem:
        if problem.args[0] in table:
            raise
        raise UsageError(f"{path} is another table: it has no column {problem}") from None


def write_body(wide, columns: int | None) -> str:
    """Write a laid-out table in lines of at most so many columns, as far as its cells allow.

    A table that does not fit has several columns below each other, or, if it has few rows, a line
    for each cell.
    """
    text = wide.to_string(na_rep="")
    if columns is None or max(map(len, text.splitlines())) <= columns:
        return text
    if len(wide) > FEW:
        return wide.to_string(na_rep="", line_width=columns)
    rows = wide.reset_index().fillna("").to_dict("records")
    cells = ([f"{name}: {value}" for name, value in row.items() if value != ""] for row in rows)
    fill = partial(fill_text, width=columns, subsequent_indent="    ")
    return "\n\n".join("\n".join(map(fill, of)) for of in cells)


def read_table(path: Path):
    """Read the table of a product's .csv file; UsageError if it is not a table."""
    import pandas as pd

    as_text = {"dtype": str, "keep_default_na": False, "na_values": [""]}
    try:
        names = pd.read_csv(path, usecols=lambda column: column in TEXTS, **as_text)
        return pd.read_csv(path).assign(**names.dropna(axis="columns", how="all"))
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path} cannot be read as a table ({problem})") from problem


def lay_out(product, table) -> list:
    """Return what readers see of a product: its table, laid out, and one below it if it has one."""
    table = drop_kept(table)
    wide = product.wide(table) if hasattr(product, "wide") else table.set_index(table.columns[0])
    below = product.below(table) if hasattr(product, "below") else None
    return [wide] if below is None else [wide, below]
