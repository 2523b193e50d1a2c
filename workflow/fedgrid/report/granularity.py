"""Which printed accuracies the test sets can give, and how their last digits are distributed.

No run is needed: it is computed from the study's published tables and from what these state of
their values: `decimals`, `test_images`, `runs`, `evaluations`. A value that two tables print counts
in both. Published entries without `rows` are not tables of accuracies.

An accuracy that is measured once on n images is a multiple of 100/n percent. A mean over s runs is
a multiple of 100/(n s), and the same holds for a mean over several evaluations of a run. Below, a
number of images is the product of all of these. A printed value is possible if one of these
multiples is rounded to it: the GRIM test (Brown and Heathers, Social Psychological and Personality
Science 2017). A multiple half-way between two printed values may be rounded to either. With at
least 100 * 10**decimals images every value is possible.

Printed values are `Decimal` numbers in percent, with as many decimals as are printed. The counts
are of whole numbers, so that nothing is lost in rounding.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np
import pandas as pd
from scipy import stats

from fedgrid.analysis import figures
from fedgrid.analysis.published import list_published_rows
from fedgrid.report._texts import write_numbers
from fedgrid.runtime.names import UsageError
from fedgrid.study.records import Study

DIGITS = 10
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
    counts, finest = last_digits(values, decimals), size_of_print(decimals)
    row = stated | {
        "test_images": common,
        "values": len(values),
        "step": None if common is None else 100 / count_measurements(common, stated),
        **count_possible(by_dataset, sizes, stated),
        "last_digits": "/".join(map(str, counts)),
        "even_digits": round(sum(counts[::2]) / len(values), 4),
        "p_even": p_even(counts),
        "p_uniform": p_uniform(counts),
        "coarsest_step": float(coarsest_step(values, decimals)),
        "least_n": find_fit(values, decimals, range(1, finest + 1)),
        "largest_n": find_fit(values, decimals, range(finest - 1, 0, -1)),
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
        wrong += [v for v in values if not is_possible(v, stated["decimals"], n)]
    total = sum(map(len, by_dataset.values()))
    return {"possible": total - len(wrong), "impossible": " ".join(map(str, wrong))}


# --- what test sets can give -----------------------------------------------------------------


def is_possible(value: Decimal, decimals: int, images: int) -> bool:
    """Whether some number of correct images, 0 to `images`, gives the printed percentage."""
    shown, whole = int(value.scaleb(decimals)), 2 * size_of_print(decimals)
    least = -(-images * (2 * shown - 1) // whole)  # rounded up
    most = images * (2 * shown + 1) // whole  # rounded down
    return max(least, 0) <= min(most, images)


def size_of_print(decimals: int) -> int:
    """Return the least number of images with which every value from 0 to 100 is possible."""
    return 100 * 10**decimals


def find_fit(values: Sequence[Decimal], decimals: int, sizes: Iterable[int]) -> int | None:
    """Return the first number of images that can give all values; None if no number can."""
    fits = (n for n in sizes if all(is_possible(value, decimals, n) for value in values))
    return next(fits, None)


def coarsest_step(values: Sequence[Decimal], decimals: int) -> Decimal:
    """Return the largest of 1, 0.5, 0.2, 0.1, 0.05 and so on of which all values are multiples.

    The unit is percentage points. The smallest step is that of the last printed digit.
    """
    steps = (Decimal(k).scaleb(-d) for d in range(decimals + 1) for k in ((5, 2, 1) if d else (1,)))
    return next(step for step in steps if not any(value % step for value in values))


# --- last digits -----------------------------------------------------------------------------


def last_digits(values: Sequence[Decimal], decimals: int) -> list[int]:
    ends = [int(value.scaleb(decimals)) % DIGITS for value in values]
    return [ends.count(digit) for digit in range(DIGITS)]


def p_even(counts: Sequence[int]) -> float:
    """Return p of the exact two-sided binomial test that half of the last digits are even."""
    return float(stats.binomtest(sum(counts[::2]), sum(counts)).pvalue)


def p_uniform(counts: Sequence[int]) -> float:
    """Return p of the exact chi-square test that all last digits are equally likely.

    That is the probability of a statistic as large as the one observed. With equal expectations
    the statistic grows with the sum of the squared counts, a whole number, whose distribution is
    computed digit by digit. The counts of the digits are taken as independent Poisson numbers,
    which are multinomial where their sum is that of the counts.
    """
    total, bound = sum(counts), sum(count**2 for count in counts)
    chances = stats.poisson.pmf(np.arange(total + 1), total / len(counts))
    # by sum of counts, and sum of squares up to `bound`
    chances_of_sums = np.zeros((total + 1, bound + 1))
    chances_of_sums[0, 0] = 1
    for _ in counts:
        chances_of_sums = add_digit(chances_of_sums, chances)
    return float(chances_of_sums[total, bound] / chances_of_sums[total].sum())


def add_digit(before: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Add one digit to the distribution; its last column has all sums of squares from it on."""
    after = np.zeros_like(before)
    last = before.shape[1] - 1
    for count, chance in enumerate(chances):
        part, kept = before[: len(before) - count], max(last - count**2, 0)
        after[count:, last - kept : last] += chance * part[:, :kept]
        after[count:, last] += chance * part[:, kept:].sum(axis=1)
    return after


# --- sentences -------------------------------------------------------------------------------


def write_verdict(row: dict, stated: list[int | None]) -> str:
    """Write the verdict: whether the test set can give the values, and what last digits show.

    It does not mention last digits if the test set is so small that it restricts them.
    """
    sizes = [size for size in stated if size is not None]
    if len(sizes) < len(stated):
        return f"The number of test images is not stated.{write_remark(row)}"
    runs, evaluations = row["runs"], row["evaluations"]
    finest = size_of_print(row["decimals"])
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
    if images < size_of_print(row["decimals"]):
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


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "The study has no published tables."
    return (
        "Printed accuracies as multiples of 100/n percent, for n test images and runs: which are "
        f"possible (GRIM test), and exact tests of their last digits in {len(table)} rows; a "
        f"verdict remarks on digits with p < {LEVEL:g}. Least and largest n fit all values of the "
        "row; the largest is below the n from which every value is possible."
    )
