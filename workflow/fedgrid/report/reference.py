"""Finished runs that are kept with the study, beside the published values: no run is needed for it.

`python -m fedgrid.reference` makes the study's file of them; the study's notes say how they were
made.
"""

import pandas as pd

from fedgrid import figures, tables


def draw(study: dict, scale: str) -> pd.DataFrame:
    """A row per cell: percent over seeds, published percent, seconds per round, what made it."""
    table = tables.beside_published(tables.kept(study), study)
    table = table.drop(columns=["published_std", "published_speedup"])
    table = table.assign(difference=table["mean"] - table["published"])
    for axis in ("method", "dataset"):
        table[f"{axis}_label"] = [figures.label(study, name, axis) for name in table[axis]]
    return table.round(4)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """A row per cell; its protocol, since the variants of one are compared with the same value."""
    shown = pd.DataFrame({
        "method": table["method_label"], "dataset": table["dataset_label"],
        "partition": table["partition"].map(tables.written), "protocol": table["protocol"],
        "seeds": table["seeds"], "published": table["published"], "ours": table["mean"],
        "difference": table["difference"].map("{:+.2f}".format, na_action="ignore"),
        "last round": table["final"], "smoothed": table["smoothed"],
        "s/round": table["seconds_per_round"].map("{:.0f}".format),
    })  # fmt: skip
    return shown.round(2).set_index("method")


def caption(table: pd.DataFrame) -> str:
    """What the numbers are, and where they come from."""
    seeds, smoothed = tables.each(table, "seeds"), bool(table["smoothed"].notna().any())
    return (
        f"The {tables.counted(table)} in percent of the runs kept with the study ({seeds} seed"
        f"{'s' * (seeds != '1')}, {tables.each(table, 'rounds')} rounds, on "
        f"{tables.each(table, 'device')}), beside published values"
        + f" and the {tables.COUNTED['smoothed']}" * smoothed
        + "."
    )
