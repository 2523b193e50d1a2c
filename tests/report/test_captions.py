"""The captions of all products say how their runs were scored: `fedgrid.report`."""

import pandas as pd
import pytest

import made
from fedgrid.report import _product
from fedgrid.study.products import product_module
from made_products import MANY_RUNS, make_source

TAIL = 7
WORDS = {  # of a caption, by the way to score a run; the made-up runs have validation data
    "tail": f"of the last {TAIL} rounds",
    "best": "of the round with the best validation accuracy",
    "smoothed": "last moving average",
}
BESIDE = {"smoothed": "smoothed", "deviation": "tail"}  # columns that have another score, too
# By module, a product that it draws from runs: of FedSLS, if that has one.
DRAWN = {
    product_module(study, name, entry): (study, name)
    for study in (*made.STUDIES, "fedsls")
    for name in made.GRID.products(study, "quick")
    for entry in [made.STUDIES[study]["products"][name]]
    if any(text.startswith("runs/") for text in entry["from"].values())
    if "tail" not in entry.get("with", {})  # has a way of its own
}
OF_RUNS = [*DRAWN.values()]


def scored(study: str, name: str, way: str) -> tuple[pd.DataFrame, str]:
    """The table and the caption of a product, of runs that are scored in one way.

    Of claims the first two are judged, because that takes its time.
    """
    about = made.STUDIES[study] | {"claims": made.STUDIES[study].get("claims", [])[:2]}
    entry = about["products"][name]
    found = {key: make_source(study, text) for key, text in entry["from"].items()}
    found = {
        key: table.assign(metric=way, tail=TAIL) if "tail" in table else table
        for key, table in found.items()
    }
    product = _product.load_product(study, name, entry)
    table = made.read(_product.draw_table(product, found, about, "quick"))
    return table, product.caption(table)


@pytest.mark.parametrize("way", WORDS)
@pytest.mark.parametrize(
    ("study", "name"),
    [pytest.param(*one, marks=pytest.mark.slow) if one[1] in MANY_RUNS else one for one in OF_RUNS],
)
def test_a_caption_says_the_score_that_the_table_has(study, name, way):
    table, said = scored(study, name, way)
    beside = {BESIDE[column] for column in BESIDE if column in table}
    stated = {other for other, words in WORDS.items() if words in said}
    assert stated - beside <= {way}
    if {"metric", "tail"} <= {*table}:
        assert way in stated


@pytest.mark.parametrize(("unit", "rounds", "mean"), [("rounds", 4, 50), ("epochs", 2, 51)])
def test_table1_counts_the_last_evaluations_in_rounds_or_in_local_epochs(unit, rounds, mean):
    runs = made.run(50, tail=4, local=2)  # evaluated in rounds 8 and 10
    product = _product.load_product("fedsls", "table1", {"with": {"tail": unit}})
    table = _product.draw_table(product, {"runs": runs}, made.STUDY, "quick")
    assert table["mean"].tolist() == [mean]
    assert f"of the last {rounds} rounds" in product.caption(table)


def test_a_tail_that_is_longer_than_the_run_is_the_whole_run():
    runs = made.evaluations({0: 0.1, 5: 0.2, 10: 0.4}, tail=100)
    product = _product.load_product("mine", "table", {})
    table = _product.draw_table(product, {"runs": runs}, {}, "quick")
    assert table["mean"].tolist() == [30]
    assert "of the last 10 rounds" in product.caption(table)


def test_a_caption_says_how_many_clients_are_in_no_mean_over_clients():
    values = {"accuracy": {10: 0.5}, "own_mean": {10: 0.5}}
    runs = made.measured(values, clients_without_tests=96)
    said = {}
    for metric in values:
        product = _product.load_product("mine", "table", {"with": {"metric": metric}})
        said[metric] = product.caption(_product.draw_table(product, {"runs": runs}, {}, "quick"))
    assert "without the 96 clients that have no test samples" in said["own_mean"]
    assert "without" not in said["accuracy"]


def test_cells_of_fewer_seeds_say_how_many():
    runs = made.runs({"fedavg": [50, 60], "fedprox": [55]})
    product = _product.load_product("mine", "table", {})
    cells = product.wide(_product.draw_table(product, {"runs": runs}, {}, "quick"))
    assert cells.loc["fedavg"].item() == "55.00 ± 7.07"  # as many as in most cells
    assert cells.loc["fedprox"].item() == "55.00 (1 seed)"
    fedavg = _product.draw_table(product, {"runs": runs[runs["method"] == "fedavg"]}, {}, "quick")
    assert "seed" not in product.wide(fedavg).loc["fedavg"].item()


def test_an_ablation_says_over_how_few_pairs_an_interval_is():
    runs = made.runs({"fedavg": [50, 60, 70], "fedprox": [55, 56, 57]})
    runs = runs[(runs["method"] != "fedavg") | (runs["seed"] < 2)]
    product = _product.load_product("mine", "ablation", {"with": {"reference": "fedavg"}})
    table = _product.draw_table(product, {"runs": runs}, {}, "quick")
    gap = product.wide(table)["difference [95 % interval]"].loc["fedprox"].item()
    assert gap.endswith(" of 2 pairs")
