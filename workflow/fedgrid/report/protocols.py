"""The protocols of the runs, as the appendix of a paper states them: the fields in use.

A field is in use if papers always state it, as the learning rate, or if a protocol has another
value than by default. The runs themselves recorded the values.
"""

import json
from typing import Any

import pandas as pd

from fedgrid.analysis import figures, tables
from fedgrid.runtime.names import in_words
from fedgrid.study.protocol import FIELDS
from fedgrid.study.records import Study

UNIT = "local_unit"  # the field that says what `local` counts


def draw(settings: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per protocol and field in use, with its words, symbol, value and unit."""
    rows = settings.loc[settings["of"].isna(), ["protocol", "field", "value"]].drop_duplicates()
    rows = rows[rows["field"].isin(FIELDS)].assign(value=rows["value"].map(json.loads))
    units = rows[rows["field"] == UNIT].set_index("protocol")["value"]
    used = [
        "symbol" in FIELDS[field] or value != FIELDS[field]["default"]
        for field, value in zip(rows["field"], rows["value"], strict=True)
    ]
    table = rows[rows["field"].isin(rows["field"][used]) & (rows["field"] != UNIT)].copy()
    table["value"] = table["value"].map(write_value)
    table["words"] = [FIELDS[name].get("words", name.replace("_", " ")) for name in table["field"]]
    table["symbol"] = [FIELDS[name].get("symbol", "") for name in table["field"]]
    table["unit"] = table["protocol"].map(units).where(table["field"] == "local", "")
    figures.add_labels(table, study, ("protocol",))
    return table.assign(scale=scale)


def write_value(value: Any) -> str:
    """Write a value as papers do: 0.1, yes, none, or a list with commas."""
    if isinstance(value, list):
        return ", ".join(map(write_value, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    rows = write_texts(table).rename(columns={"words": "field", "field": "name"})
    index = ["field", "symbol"]
    order = pd.MultiIndex.from_frame(rows[index].drop_duplicates())
    found = rows.pivot(index=index, columns="protocol_label", values="text").reindex(order)
    return found[rows["protocol_label"].unique()].rename_axis(columns=None).fillna("")


def write_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Add each value with its unit as `text`; columns without any text may be missing values."""
    table = table.fillna({"symbol": "", "unit": ""})
    texts = table["value"].map(write_value) + " " + table["unit"]
    return table.assign(text=texts.str.strip())


def ranked(row: tuple, column: tuple) -> bool:
    return False


def caption(table: pd.DataFrame) -> str:
    rows = write_texts(table)
    signs = (rows["symbol"] + " = ").where(rows["symbol"] != "", "")
    rows["said"] = rows["words"] + " " + signs + rows["text"]
    parts = rows.groupby("protocol_label", sort=False)["said"]
    said = " ".join(f"{name}: {in_words(texts)}." for name, texts in parts)
    return f"Fields of the protocols ({tables.join_values(table, 'scale')} scale). {said}"
