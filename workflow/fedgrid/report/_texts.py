"""Texts that several products write in the same way."""

import pandas as pd

from fedgrid.analysis import tables


def write_numbers(column: pd.Series, form: str) -> pd.Series:
    """Write each number by a form such as `{:.2f}`; the text of a missing one is empty."""
    return column.astype(float).map(form.format, na_action="ignore").astype(object).fillna("")


def count(table: pd.DataFrame, column: str, word: str) -> str:
    """Write the numbers of a column with a word: `1 thread`, `2 seeds`, `2 or 3 seeds`."""
    number = tables.join_values(table, column)
    return f"{number} {word}{'s' * (number != '1')}"
