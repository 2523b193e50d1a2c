"""Which printed accuracies the test sets can give, and how their last digits are distributed.

No run is needed: `analysis/granularity.py` computes it from the study's published tables and from
what these state of their values: `decimals`, `test_images`, `runs`, `evaluations`. A value that two
tables print counts in both. Published entries without `rows` are not tables of accuracies.
"""

from decimal import Decimal

import pandas as pd

from fedgrid.analysis import figures, granularity
from fedgrid.analysis.published import list_published_rows
from fedgrid.runtime.names import UsageError
from fedgrid.study.records import Study

DECIMALS = 2  # of a table that does not state them
LEVEL = 0.01  # a row's last digits are remarked on if p is below
WHOLE = "all"  # the dataset of the row for a whole table
COLUMNS = ["table", "dataset", "values", "decimals", "test_images", "runs", "evaluations", "step"]
COLUMNS += ["possible", "impossible", "last_digits", "even_digits", "p_even", "p_uniform"]
COLUMNS += ["coarsest_step", "least_n", "largest_n", "verdict", "dataset_label"]


def draw(study: Study, scale: str) -> pd.DataFrame:
    """Return a row per published table and dataset, and one for a table of several datasets."""
    published = study.get("published", {}).items()
    rows = [row for name, table in published if "rows" in table for row in list_rows(name, table)]
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["dataset_label"] = [figures.label(study, name) for name in table["dataset"]]
    return table


def list_rows(name: str, table: dict) -> list[dict]:
    by_dataset = list_values(name, table)
    parts = {dataset: [dataset] for dataset in by_dataset}
    if len(parts) > 1:
        parts[WHOLE] = [*by_dataset]
    stated = read_statements(table)
    return [
        {"table": name, "dataset": part}
        | summarise_values({d: by_dataset[d] for d in datasets}, stated)
        for part, datasets in parts.items()
    ]


def list_values(name: str, table: dict) -> dict[str, list[Decimal]]:
    """Return the printed percentages by dataset; values that are not numbers are left out."""
    by_dataset: dict[str, list[Decimal]] = {}
    for _, dataset, _, _, percent, *_ in list_published_rows(table):
        if isinstance(percent, int | float):
            by_dataset.setdefault(dataset, []).append(
                as_printed(name, percent, read_statements(table))
            )
    return by_dataset


def as_printed(name: str, percent: float, stated: dict) -> Decimal:
    """Return a percentage as it was printed; UsageError if it has more decimals."""
    value, unit = Decimal(str(percent)), Decimal(1).scaleb(-stated["decimals"])
    if value % unit:
        raise UsageError(
            f"published.{name} has {percent}, and its values have {stated['decimals']} decimals: "
            "set `decimals` of this table"
        )
    return value.quantize(unit)


def read_statements(table: dict) -> dict:
    """Read what a published table states of its values; None for what it does not state."""
    return {
        "decimals": int(table.get("decimals", DECIMALS)),
        "test_images": table.get("test_images"),
        "runs": table.get("runs"),
        "evaluations": table.get("evaluations", 1),
    }


def summarise_values(by_dataset: dict[str, list[Decimal]], facts: dict) -> dict:
    """Compute the numbers and the verdict of one row, for the values of some datasets."""
    decimals, values = facts["decimals"], [v for part in by_dataset.values() for v in part]
    sizes = {dataset: find_test_images(dataset, facts) for dataset in by_dataset}
    stated = facts | {"test_images": find_common_size(sizes.values())}
    row = (
        stated
        | {"values": len(values), "step": compute_step(stated)}
        | count_possible(by_dataset, facts)
    )
    row |= examine_digits(values, decimals)
    row["coarsest_step"] = float(granularity.coarsest_step(values, decimals))
    row["least_n"] = granularity.least_fit(values, decimals)
    row["largest_n"] = granularity.largest_fit(values, decimals)
    return row | {"verdict": write_verdict(row, [*sizes.values()])}


def find_test_images(dataset: str, stated: dict) -> int | None:
    """Return the number of test images of a dataset, None if the table does not state it."""
    images = stated["test_images"]
    return images.get(dataset) if isinstance(images, dict) else images


def find_common_size(sizes) -> int | None:
    different = {*sizes}
    return different.pop() if len(different) == 1 else None


def count_measurements(images: int, stated: dict) -> int:
    """Count the evaluated images behind one value, over all runs and evaluations."""
    return int(images * (stated["runs"] or 1) * stated["evaluations"])


def compute_step(stated: dict) -> float | None:
    images = stated["test_images"]
    return None if images is None else 100 / count_measurements(images, stated)


def count_possible(by_dataset: dict[str, list[Decimal]], stated: dict) -> dict:
    """Count the possible values, and list the others; None without the sizes of test sets."""
    wrong: list[Decimal] = []
    for dataset, values in by_dataset.items():
        if (images := find_test_images(dataset, stated)) is None:
            return {"possible": None, "impossible": ""}
        n = count_measurements(images, stated)
        wrong += [v for v in values if not granularity.is_possible(v, stated["decimals"], n)]
    total = sum(map(len, by_dataset.values()))
    return {"possible": total - len(wrong), "impossible": " ".join(map(str, wrong))}


def examine_digits(values: list[Decimal], decimals: int) -> dict:
    """Count the last digits 0 to 9 of the values, and test whether chance explains them."""
    counts = granularity.last_digits(values, decimals)
    return {
        "last_digits": "/".join(map(str, counts)),
        "even_digits": round(granularity.count_even(counts) / len(values), 4),
        "p_even": granularity.p_even(counts),
        "p_uniform": granularity.p_uniform(counts),
    }


# --- sentences -------------------------------------------------------------------------------


def write_verdict(row: dict, stated: list[int | None]) -> str:
    """Write the verdict: whether the test set can give the values, and what last digits show.

    It does not mention last digits if the test set is so small that it restricts them.
    """
    sizes = [size for size in stated if size is not None]
    if len(sizes) < len(stated):
        return f"The number of test images is not stated.{write_remark(row)}"
    least = min(count_measurements(size, row) for size in sizes)
    if row["impossible"]:
        return f"{write_impossible(row)} impossible for {write_source(row, sizes)}."
    if least < granularity.size_of_print(row["decimals"]):
        return f"{write_all_values(row)} possible for {write_source(row, sizes)}."
    if count_measurements(1, row) > 1:
        return f"Says nothing: each value is a mean over {write_averages(row)}.{write_remark(row)}"
    free = f"{write_source(row, sizes)}, {explain_no_result(row, sizes)}"
    return f"{write_all_values(row)} possible for {free}.{write_remark(row)}"


def explain_no_result(row: dict, sizes: list[int]) -> str:
    finest = granularity.size_of_print(row["decimals"])
    fine = ["as fine"] * (finest in sizes) + ["coarser"] * (max(sizes) > finest)
    steps = " or ".join(fine)
    return f"but this test could find no impossible value here: the printed step is {steps}"


def write_all_values(row: dict) -> str:
    """Write `All 12 values are`, or the same for one value."""
    return f"All {row['values']} values are" if row["values"] > 1 else "The only value is"


def write_impossible(row: dict) -> str:
    """Write `2 of 12 values are`, for the impossible values."""
    count = len(row["impossible"].split())
    return f"{count} of {row['values']} values {'are' if count > 1 else 'is'}"


def write_source(row: dict, sizes: list[int]) -> str:
    images = " or ".join(f"{size:,}" for size in sorted({*sizes}))
    return f"{images} images and {write_averages(row)}"


def write_averages(row: dict) -> str:
    runs, evaluations = row["runs"], row["evaluations"]
    every = "one run" if (runs or 1) == 1 else f"{runs} runs"
    every += " (assumed)" * (runs is None)
    return f"{evaluations} evaluations and {every}" if evaluations > 1 else every


def write_remark(row: dict) -> str:
    """Write a sentence if chance is unlikely to give such last digits; else return ""."""
    if row["p_even"] < LEVEL:
        what = f"{round(row['even_digits'] * row['values'])} of {row['values']} last digits"
        said = f" {what} are even, which chance gives with p = {row['p_even']:.1g}"
    elif row["p_uniform"] < LEVEL:
        said = f" The last digits are not equally frequent (p = {row['p_uniform']:.1g})"
    else:
        return ""
    coarse = row["coarsest_step"]
    images = round(100 / coarse)
    if images < granularity.size_of_print(row["decimals"]):
        said += f": the values are multiples of {coarse:g}, as of {images:,} images"
    return f"{said}."


# --- for readers -----------------------------------------------------------------------------


def wide(table: pd.DataFrame) -> pd.DataFrame:
    shown = pd.DataFrame({
        "table": table["table"], "dataset": table["dataset_label"],
        "test images": write_numbers(table["test_images"], "{:,.0f}"),
        "step": write_numbers(table["step"], "{:.2g}"),
        "last digits 0 to 9": table["last_digits"],
        "p even": write_numbers(table["p_even"], "{:.2g}"),
        "p uniform": write_numbers(table["p_uniform"], "{:.2g}"),
        "coarsest step": write_numbers(table["coarsest_step"], "{:g}"),
        "least n": write_numbers(table["least_n"], "{:,.0f}"),
        "largest n": write_numbers(table["largest_n"], "{:,.0f}"),
        "impossible": table["impossible"].astype(object).fillna(""), "verdict": table["verdict"],
    })  # fmt: skip
    return shown.set_index("table")


def write_numbers(column: pd.Series, form: str) -> pd.Series:
    return column.astype(float).map(form.format, na_action="ignore").astype(object).fillna("")


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "The study has no published tables."
    return (
        "Printed accuracies as multiples of 100/n percent, for n test images and runs: which are "
        f"possible (GRIM test), and exact tests of their last digits in {len(table)} rows; a "
        f"verdict remarks on digits with p < {LEVEL:g}. Least and largest n fit all values of the "
        "row; the largest is below the n from which every value is possible."
    )
