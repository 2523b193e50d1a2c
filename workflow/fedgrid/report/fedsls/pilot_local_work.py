"""The two readings of I = 10, local steps or local epochs: FedAvg by both, beside the paper's row.

The reading that is nearer to the published FedAvg row is the more likely one. Where the runs are of
no published dataset, as at the quick scale, the published row stands beside for its pattern only.
"""

import pandas as pd

from fedgrid import tables

KEYS = ["method", "dataset", "partition"]
PRINTED = "published"  # in the place of a protocol


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per reading and setting, and the published ones: percent; which reading is nearer."""
    ours, printed = tables.over_seeds(tables.scores(runs), tables.CELL), published(runs, study)
    table = ours.merge(printed[[*KEYS, "published"]], how="left", on=KEYS)
    table["difference"] = table["mean"] - table["published"]
    gap = table["difference"].abs()
    least = gap.groupby([table["dataset"], table["partition"]]).transform("min")
    table["nearer"] = (gap == least).where(gap.notna())
    rows = printed.assign(protocol=PRINTED, diverged=0, mean=printed["published"])
    table = pd.concat([table, rows.rename(columns={"published_std": "std"})])
    return tables.with_alpha(table.assign(scale=scale)).round(4)


def published(runs: pd.DataFrame, study: dict) -> pd.DataFrame:
    """The printed cells of the runs' method, partitions, and datasets if there are any of these."""
    cells = tables.published_cells(study)
    cells = cells[cells["method"].isin(runs["method"]) & cells["partition"].isin(runs["partition"])]
    same = cells[cells["dataset"].isin(runs["dataset"])]
    return cells if same.empty else same


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """A row per reading and for the paper, a column per dataset and partition."""
    return tables.wide(table, index="protocol").fillna("")


def caption(table: pd.DataFrame) -> str:
    """What the numbers are."""
    return f"FedAvg's test accuracy in percent by the two readings: {tables.scope(table)}."
