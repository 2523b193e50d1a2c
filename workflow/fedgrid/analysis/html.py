"""Tables for screens, in HTML: laid-out tables with labels for names, the best numbers bold."""

import pandas as pd
from markupsafe import Markup, escape

from fedgrid.analysis.readable import NAMES, Ranked, find_best, list_levels, write_name
from fedgrid.study.records import Study


def write_table(
    wide: pd.DataFrame, study: Study, ranked: Ranked, lowest: bool = False, kind: str = "product"
) -> Markup:
    """Return a laid-out table as an HTML table of the class `kind`.

    In each column the best of the `ranked` numbers, which is the `lowest` or the highest, is bold.
    """
    cells = wide.astype(object).where(wide.notna(), "").map(str)
    best, _ = find_best(cells, ranked, lowest)
    shown = cells.map(escape).mask(best, cells.map(lambda text: Markup("<b>{}</b>").format(text)))
    for axis in ("index", "columns"):
        setattr(shown, axis, label_index(getattr(wide, axis), study))
    return Markup(shown.to_html(border=0, escape=False, classes=kind))


def label_index(index: pd.Index, study: Study) -> pd.Index:
    """Replace the names in an index by their labels, escaped for HTML."""
    levels = [
        [str(escape(write_name(study, str(value), str(name)) if name in NAMES else value))
         for value in level]
        for name, level in zip(index.names, list_levels(index), strict=True)
    ]  # fmt: skip
    heads = [str(name or "").removesuffix("_") for name in index.names]
    if index.nlevels == 1:
        return pd.Index(levels[0], name=heads[0] or None)
    return pd.MultiIndex.from_arrays(levels, names=heads)
