"""Finished runs that are kept with the study, beside the published values: no new run is needed.

`python -m fedgrid.reference` writes the study's file of these runs; the study's notes say how they
were made.
"""

import pandas as pd

from fedgrid.analysis import figures, metrics, tables
from fedgrid.analysis.published import join_published, kept_cells
from fedgrid.partitions import write_label


def draw(study: dict, scale: str) -> pd.DataFrame:
    """Return a row per cell: percent over seeds, published percent, seconds, machine and code."""
    table = join_published(kept_cells(study), study)
    table = table.drop(columns=["published_std", "published_speedup"])
    table = table.assign(difference=table["mean"] - table["published"])
    for axis in ("method", "dataset"):
        table[f"{axis}_label"] = [figures.label(study, name, axis) for name in table[axis]]
    return table.round(4)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell with its protocol; variants of a protocol share a published value."""
    shown = pd.DataFrame({
        "method": table["method_label"], "dataset": table["dataset_label"],
        "partition": table["partition"].map(write_label), "protocol": table["protocol"],
        "seeds": table["seeds"], "published": table["published"], "ours": table["mean"],
        "difference": table["difference"].map("{:+.2f}".format, na_action="ignore"),
        "last round": table["final"], "smoothed": table["smoothed"],
        "s/round": table["seconds_per_round"].map("{:.0f}".format),
    })  # fmt: skip
    return shown.round(2).set_index("method")


def caption(table: pd.DataFrame) -> str:
    """Describe the numbers and their origin."""
    seeds, smoothed = tables.each(table, "seeds"), bool(table["smoothed"].notna().any())
    average = tables.COUNTED["smoothed"].format(words=metrics.words("accuracy"))
    return (
        f"The {tables.counted(table)} in percent of the runs kept with the study ({seeds} seed"
        f"{'s' * (seeds != '1')}, {tables.each(table, 'rounds')} rounds, on "
        f"{tables.each(table, 'device')}), beside published values"
        + f" and the {average}" * smoothed
        + "."
    )
