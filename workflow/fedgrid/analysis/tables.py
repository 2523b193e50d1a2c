"""How tables are laid out and described: cells, headings, and sentences for captions."""

import numpy as np
import pandas as pd

from fedgrid.partitions import parse_name, write_label

ACCURACY = "{mean:.2f} ± {std:.2f}"  # the text of a cell
LOST = "{diverged:g}/{seeds:g} diverged"  # the text of a cell with runs that diverged


def with_alpha(table: pd.DataFrame) -> pd.DataFrame:
    """Add the Dirichlet concentration of every partition that has one, beside its name."""
    table, drawn = table.copy(), table["partition"].map(parse_name)
    alpha = [float(number) if kind == "dirichlet" else np.nan for kind, number in drawn]
    table.insert(table.columns.get_loc("partition") + 1, "alpha", alpha)
    return table


def wide(
    table: pd.DataFrame, form: str = ACCURACY, lost: str = LOST, index: str = "method"
) -> pd.DataFrame:
    """Return a row per `index`, a column per dataset and partition, as text; `lost` if diverged."""
    facts = table.to_dict("records")
    text = [(lost if cell["diverged"] else form).format(**cell) for cell in facts]
    text = [one.replace(" ± nan", "") for one in text]  # one seed has no deviation
    named = table.assign(cell=text, partition=table["partition"].map(write_label))
    axes = [name for name in ("method", "protocol", "dataset", "partition") if name != index]
    columns = [name for name in axes if varies(named, name)]
    rows, order = named[index].unique(), named.set_index(columns).index.unique()
    cells = named.pivot(index=index, columns=columns, values="cell")
    return cells.reindex(index=rows, columns=order)


def varies(table: pd.DataFrame, name: str) -> bool:
    """Whether an axis belongs in the heading: methods and protocols if a dataset has several."""
    several = bool((table.groupby("dataset")[name].nunique() > 1).any())
    return several or name in ("dataset", "partition")


def each(table: pd.DataFrame, name: str) -> str:
    """Return the values of a column for a sentence: `2 or 3`."""
    values = dict.fromkeys(table[name].dropna())
    return " or ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)


COUNTED = {
    "best": "best test accuracy over all rounds",
    "smoothed": "last moving average of test accuracies",
    "tail": "mean accuracy of the last {} rounds",
}


def counted(table: pd.DataFrame) -> str:
    """Return the score of the runs behind a product, in words."""
    ways = (COUNTED[metric].format(each(table, "tail")) for metric in table["metric"].unique())
    return " or ".join(ways)


def scope(table: pd.DataFrame) -> str:
    """Seeds, rounds and scale of the runs behind a product, for its caption."""
    seeds, scale = each(table, "seeds"), each(table, "scale")
    return f"{seeds} seed{'s' * (seeds != '1')}, {each(table, 'rounds')} rounds, {scale} scale"
