"""The two readings of I = 10, local steps or local epochs: FedAvg with each, and the paper's row.

The reading that is nearer to the published FedAvg row is the more likely one. If no run is of a
published dataset, as at the quick scale, the published row only shows the pattern.
"""

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.analysis.published import list_published_cells
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs
from fedgrid.study.records import Study

KEYS = ["method", "dataset", "partition"]
PRINTED = "published"  # in the column of protocols


def draw(runs: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per reading and setting, and published rows: percent; the nearer reading."""
    cells, ours = list_published_cells(study), mean_over_seeds(score_runs(runs), CELL)
    cells = cells[cells["method"].isin(runs["method"]) & cells["partition"].isin(runs["partition"])]
    same = cells[cells["dataset"].isin(runs["dataset"])]
    printed = cells if same.empty else same
    table = ours.merge(printed[[*KEYS, "published"]], how="left", on=KEYS)
    table["difference"] = table["mean"] - table["published"]
    gap = table["difference"].abs()
    least = gap.groupby([table["dataset"], table["partition"]]).transform("min")
    table["nearer"] = (gap == least).where(gap.notna())
    rows = printed.assign(protocol=PRINTED, diverged=0, mean=printed["published"])
    table = pd.concat([table, rows.rename(columns={"published_std": "std"})])
    return tables.add_alpha(table.assign(scale=scale)).round(4)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    return tables.lay_out(table, index="protocol").fillna("")


def caption(table: pd.DataFrame) -> str:
    score = f"{tables.describe_score_and_unit(table)} of FedAvg by the two readings"
    return f"The {score}: {tables.describe_scope(table)}."
