"""The settings of the runs: every field of the protocols, every hyper-parameter of the methods.

The runs themselves recorded them, so a later change of a file does not show here.
"""

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.study.records import Study


def draw(settings: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per value: of a protocol, or of a method on a dataset."""
    settings = settings[settings["field"].fillna("") != ""]
    of_protocol = settings["of"].isna()
    kinds = {
        "protocol": settings[of_protocol].assign(name=settings["protocol"], dataset=""),
        "method": settings[~of_protocol].assign(name=settings["method"]),
    }
    table = pd.concat(part.assign(kind=kind) for kind, part in kinds.items())
    columns = ["kind", "name", "dataset", "of", "field", "value"]
    runs = table.groupby(columns, sort=False, dropna=False).size().rename("runs")
    return runs.reset_index().assign(scale=scale)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per protocol field and method; a value that datasets share is written once."""
    named = table.astype({"of": object, "dataset": object}).fillna({"of": "", "dataset": ""})
    field = (named["of"] + " " + named["field"]).str.strip()
    rows = named.assign(field=field).groupby(["kind", "name", "field", "value"], sort=False)
    datasets = rows["dataset"].agg(lambda names: ", ".join(filter(None, names)))
    return datasets.to_frame().reset_index("value")


def caption(table: pd.DataFrame) -> str:
    return f"The settings that the runs recorded: {tables.join_values(table, 'scale')} scale."
