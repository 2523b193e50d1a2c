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
    figures.add_labels(table, study, ["dataset"])
    return table


def list_rows(name: str, table: dict) -> list[dict]:
    """Return the rows of a published table: one per dataset, and one for all of several."""
    stated = {
        "decimals": int(table.get("decimals", DECIMALS)),
        "runs": table.get("runs"),
        "evaluations": table.get("evaluations", 1),
    }
    by_dataset: dict[str, list[Decimal]] = {}
    for _, dataset, _, _, percent, *_ in list_published_rows(table):
        if isinstance(percent, int | float):
            value = as_printed(name, percent, stated["decimals"])
            by_dataset.setdefault(dataset, []).append(value)
    parts = {dataset: {dataset: values} for dataset, values in by_dataset.items()}
    if len(parts) > 1:
        parts[WHOLE] = by_dataset
    images = table.get("test_images")
    sizes = images if isinstance(images, dict) else dict.fromkeys(by_dataset, images)
    return [
        {"table": name, "dataset": part, **summarise_values(values, sizes, stated)}
        for part, values in parts.items()
    ]


def as_printed(name: str, percent: float, decimals: int) -> Decimal:
    """Return a percentage as it was printed; UsageError if it has more decimals."""
    value, unit = Decimal(str(percent)), Decimal(1).scaleb(-decimals)
    if value % unit:
        raise UsageError(
            f"published.{name} has {percent}, and its values have {decimals} decimals: set "
            "`decimals` of this table"
        )
    return value.quantize(unit)


def summarise_values(by_dataset: dict[str, list[Decimal]], sizes: dict, stated: dict) -> dict:
    """Compute the numbers and the verdict of one row, for the values of some datasets.

    `sizes` has the number of test images of each dataset for which the table states it.
    """
    decimals, values = stated["decimals"], [v for part in by_dataset.values() for v in part]
    images = [sizes.get(dataset) for dataset in by_dataset]
    common = images[0] if len({*images}) == 1 else None
    counts = granularity.last_digits(values, decimals)
    row = stated | {
        "test_images": common,
        "values": len(values),
        "step": None if common is None else 100 / count_measurements(common, stated),
        **count_possible(by_dataset, sizes, stated),
        "last_digits": "/".join(map(str, counts)),
        "even_digits": round(granularity.count_even(counts) / len(values), 4),
        "p_even": granularity.p_even(counts),
        "p_uniform": granularity.p_uniform(counts),
        "coarsest_step": float(granularity.coarsest_step(values, decimals)),
        "least_n": granularity.least_fit(values, decimals),
        "largest_n": granularity.largest_fit(values, decimals),
    }
    return row | {"verdict": write_verdict(row, images)}


def count_measurements(images: int, stated: dict) -> int:
    """Count the evaluated images behind one value, over all runs and evaluations."""
    return int(images * (stated["runs"] or 1) * stated["evaluations"])


def count_possible(by_dataset: dict[str, list[Decimal]], sizes: dict, stated: dict) -> dict:
    """Count the possible values, and list the others; None without the sizes of test sets."""
    wrong: list[Decimal] = []
    for dataset, values in by_dataset.items():
        if sizes.get(dataset) is None:
            return {"possible": None, "impossible": ""}
        n = count_measurements(sizes[dataset], stated)
        wrong += [v for v in values if not granularity.is_possible(v, stated["decimals"], n)]
    total = sum(map(len, by_dataset.values()))
    return {"possible": total - len(wrong), "impossible": " ".join(map(str, wrong))}


# --- sentences -------------------------------------------------------------------------------


def write_verdict(row: dict, stated: list[int | None]) -> str:
    """Write the verdict: whether the test set can give the values, and what last digits show.

    It does not mention last digits if the test set is so small that it restricts them.
    """
    sizes = [size for size in stated if size is not None]
    if len(sizes) < len(stated):
        return f"The number of test images is not stated.{write_remark(row)}"
    runs, evaluations = row["runs"], row["evaluations"]
    finest = granularity.size_of_print(row["decimals"])
    averages = "one run" if (runs or 1) == 1 else f"{runs} runs"
    averages += " (assumed)" * (runs is None)
    averages = f"{evaluations} evaluations and {averages}" if evaluations > 1 else averages
    images = " or ".join(f"{size:,}" for size in sorted({*sizes}))
    source = f"for {images} images and {averages}"
    if row["impossible"]:
        count = len(row["impossible"].split())
        found = f"{count} of {row['values']} values {'are' if count > 1 else 'is'}"
        return f"{found} impossible {source}."
    every = f"All {row['values']} values are" if row["values"] > 1 else "The only value is"
    if min(count_measurements(size, row) for size in sizes) < finest:
        return f"{every} possible {source}."
    if count_measurements(1, row) > 1:
        return f"Says nothing: each value is a mean over {averages}.{write_remark(row)}"
    steps = " or ".join(["as fine"] * (finest in sizes) + ["coarser"] * (max(sizes) > finest))
    free = f"but this test could find no impossible value here: the printed step is {steps}"
    return f"{every} possible {source}, {free}.{write_remark(row)}"


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
