"""The GRIM test, exact tests of last digits, and what the product says of published tables."""

from decimal import Decimal
from itertools import product
from math import comb, factorial, prod

import pytest

import made
from fedgrid.commands import draw
from fedgrid.report import _product, granularity
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid

# Client Contribution Normalization, table III.
CINIC10 = """71.16 72.54 71.38 71.68 70.44 71.96 77.24 76.54 78.52 78.30 77.74 78.06
             73.74 74.92 73.92 76.12 74.46 74.14 78.08 79.46 77.68 82.48 79.12 79.86
             76.00 77.46 76.62 78.36 77.14 77.78 78.88 81.02 80.14 84.06 81.62 81.22
             77.64 78.38 77.20 79.52 78.02 78.20 79.54 81.96 80.10 85.04 82.22 82.10"""


def numbers(text: str) -> list[Decimal]:
    return [Decimal(word) for word in text.split()]


# --- which values are possible ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "images", "expected"),
    [
        ("74.36", 10_000, True),  # 7,436 of 10,000
        ("5.19", 2800, False),  # the classic case: 28 whole numbers have no mean of 5.19
        ("5.18", 2800, True),  # 145 / 28 = 5.179
        ("5.21", 2800, True),  # 146 / 28 = 5.214
        ("33.33", 3, True),
        ("33.34", 3, False),
        ("33.34", 3 * 5, False),  # five runs: 33.33 and 40.00
        ("40.00", 3 * 5, True),
        ("0.00", 7, True),
        ("100.00", 7, True),
        ("100.01", 90_000, False),  # more than all images
        ("3.12", 32, True),  # a tie: 1 / 32 = 3.125, to the even digit
        ("3.13", 32, True),  # the same tie, up
        ("3.11", 32, False),
        ("3.14", 32, False),
    ],
)
def test_a_value_is_possible_if_a_number_of_images_gives_it(value, images, expected):
    assert granularity.is_possible(Decimal(value), 2, images) == expected


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ("71 72", "1"),
        ("71.50 72", "0.5"),
        ("71.20 72.00", "0.2"),
        ("71.50 72.20", "0.1"),
        ("71.25 72.10", "0.05"),
        ("71.22 72.10", "0.02"),
        ("71.21 72.10", "0.01"),
    ],
)
def test_the_coarsest_step_of_which_all_values_are_multiples(values, step):
    assert granularity.coarsest_step(numbers(values), 2) == Decimal(step)


# --- last digits -----------------------------------------------------------------------------


def ways(counts: tuple[int, ...]) -> int:
    """How many rows of digits have these counts."""
    return factorial(sum(counts)) // prod(map(factorial, counts))


@pytest.mark.parametrize("counts", [(4, 0, 0, 1), (2, 1, 1, 1), (3, 3, 0, 0), (0, 0, 0, 1)])
def test_the_test_of_equal_digits_is_exact(counts):
    """Against all tables of as many digits, of four different ones."""
    total, squares = sum(counts), sum(c * c for c in counts)
    every = [of for of in product(range(total + 1), repeat=4) if sum(of) == total]
    as_large = sum(ways(of) for of in every if sum(c * c for c in of) >= squares)
    expected = as_large / len(counts) ** total
    assert granularity.p_uniform(counts) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("even", range(7))
def test_the_test_of_even_digits_is_exact(even):
    total = 6
    far = [k for k in range(total + 1) if abs(2 * k - total) >= abs(2 * even - total)]
    as_far = sum(comb(total, k) for k in far)
    counts = [even, total - even, *[0] * 8]
    assert granularity.p_even(counts) == pytest.approx(as_far / 2**total, rel=1e-12)


# --- the product -----------------------------------------------------------------------------


def drawn(text: str = "", dataset: str = "cinic10", **facts):
    """The product of a study with one table of one row."""
    values = [float(word) for word in text.split()]
    columns = [[dataset, "dir0.1"]] * len(values)
    table = {"columns": columns, "rows": {"fedavg": values}, **facts}
    return granularity.draw({"published": {"table1": table}}, "quick")


ONE = {"runs": 1}
FREE = "but this test could find no impossible value here: the printed step is"
UNSTATED = "The number of test images is not stated."
EVEN = "48 of 48 last digits are even, which chance gives with p = 7e-15"
EVEN += ": the values are multiples of 0.02, as of 5,000 images."
EQUAL = "The last digits are not equally frequent (p = 5e-07): the values are multiples of 0.05"
FIVES = "1.1 2.2 3.3 5.4 6.5 1.1 2.2 3.3 5.45 6.55"  # eight zeros: 4,960 of 10 ** 10 are as uneven
VERDICTS = {
    "as fine": (
        *("71.21 5", ONE | {"test_images": 10_000}),
        f"All 2 values are possible for 10,000 images and one run, {FREE} as fine.",
    ),
    "a mean": (
        *("71.21", {"test_images": 10_000, "runs": 5, "evaluations": 20}),
        "Says nothing: each value is a mean over 20 evaluations and 5 runs.",
    ),
    "possible": (
        *("33.33 66.67", {"test_images": 3}),
        "All 2 values are possible for 3 images and one run (assumed).",
    ),
    "one value": (
        *("33.33", ONE | {"test_images": 3}),
        "The only value is possible for 3 images and one run.",
    ),
    "impossible": (
        *("33.33 66.66 10", ONE | {"test_images": 3}),
        "2 of 3 values are impossible for 3 images and one run.",
    ),
    "even": (CINIC10, {}, f"{UNSTATED} {EVEN}"),
    "even of many": (
        *(CINIC10, ONE | {"test_images": 90_000}),
        f"All 48 values are possible for 90,000 images and one run, {FREE} coarser. {EVEN}",
    ),
    "even as they must be": (
        *(CINIC10, ONE | {"test_images": 5000}),
        "All 48 values are possible for 5,000 images and one run.",
    ),
    "zeros and fives": (FIVES, {}, f"{UNSTATED} {EQUAL}, as of 2,000 images."),
}


@pytest.mark.parametrize(("values", "facts", "said"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_is_in_words(values, facts, said):
    (row,) = drawn(values, **facts).itertuples()
    assert row.verdict == said


def test_impossible_values_are_listed_as_printed():
    (row,) = drawn("33.33 66.6 10", test_images=3, runs=1).itertuples()
    assert (row.values, row.possible, row.impossible) == (3, 1, "66.60 10.00")
    assert row.step == pytest.approx(100 / 3)


def test_what_is_no_printed_accuracy_is_left_out():
    """The deviation of a mean, a word, an empty cell, a table without rows."""
    rows = {"fedavg": [[71.2, 0.3], "Failed", None, 50]}
    table = {"columns": [["mnist", "dir0.1"]] * 4, "rows": rows}
    study = {"published": {"figures": {"runs": 3}, "table1": table}}
    (row,) = granularity.draw(study, "quick").itertuples()
    assert (row.table, row.values, row.last_digits) == ("table1", 2, "2/0/0/0/0/0/0/0/0/0")


def test_a_table_of_several_datasets_has_a_row_for_all_of_them():
    columns = [["mnist", "dir0.1"], ["cifar10", "dir0.1"]]
    facts = {"test_images": {"mnist": 3, "cifar10": 7}, "runs": 1}
    table = {"columns": columns, "rows": {"fedavg": [33.33, 33.33]}, **facts}
    found = granularity.draw({"published": {"table1": table}}, "quick")
    assert found["dataset"].tolist() == ["mnist", "cifar10", "all"]
    assert found["possible"].tolist() == [1, 0, 1]
    assert found["impossible"].tolist() == ["", "33.33", "33.33"]
    assert found["verdict"].iloc[-1] == "1 of 2 values is impossible for 3 or 7 images and one run."


def test_more_decimals_than_stated_are_refused():
    with pytest.raises(UsageError, match=r"published\.table1 has 71\.215, .*2 decimals: set `dec"):
        drawn("71.215")
    assert drawn("71.215", decimals=3)["last_digits"].tolist() == ["0/0/0/0/0/1/0/0/0/0"]


def test_a_dataset_without_a_column_has_no_test_images():
    table = made.STUDIES["fedlmd"]["published"]["table5"] | {"test_images": {"mnist": 10_000}}
    published = made.STUDIES["fedlmd"]["published"] | {"table5": table}
    study = made.STUDIES["fedlmd"] | {"published": published}
    said = r"table5: no dataset of a column, in `test_images`, .*`mnist`"
    with pytest.raises(UsageError, match=said):
        Grid(made.STUDIES | {"fedlmd": study})


@pytest.mark.parametrize(("study", "values"), [("fedsls", [108]), ("fedlmd", [4, 4, 126, 15, 4])])
def test_the_tables_of_a_study_say_nothing_and_no_value_is_impossible(study, values, tmp_path):
    path = tmp_path / "granularity.csv"
    draw.main(["granularity", "--study", study, "--out", str(path)])
    table = _product.read_table(path)
    whole = table.groupby("table", sort=False)["values"].max()
    assert whole.tolist() == values
    assert (table["possible"] == table["values"]).all()
    said = "Says nothing" if study == "fedsls" else "no impossible value here"
    assert table["verdict"].str.contains(said).all()
    shown = granularity.wide(table)
    assert not shown.isna().any(axis=None)
    assert "p < 0.01" in granularity.caption(table)
