"""What tables and captions say of how their runs were scored: `fedgrid.report`."""

import pytest

import made
from fedgrid.report import _product


def drawn(runs, study: str = "mine", name: str = "table", **options):
    """A product with these options, and its table of runs."""
    product = _product.load_product(study, name, {"with": options})
    return product, _product.draw_table(product, {"runs": runs}, made.STUDY, "quick")


@pytest.mark.parametrize(("unit", "rounds", "mean"), [("rounds", 4, 50), ("epochs", 2, 51)])
def test_table1_counts_the_last_evaluations_in_rounds_or_in_local_epochs(unit, rounds, mean):
    runs = made.run(50, tail=4, local=2)  # evaluated in rounds 8 and 10
    product, table = drawn(runs, "fedsls", "table1", tail=unit)
    assert table["mean"].tolist() == [mean]
    assert f"of the last {rounds} rounds" in product.caption(table)


def test_a_tail_that_is_longer_than_the_run_is_the_whole_run():
    product, table = drawn(made.evaluations({0: 0.1, 5: 0.2, 10: 0.4}, tail=100))
    assert table["mean"].tolist() == [30]
    assert "of the last 10 rounds" in product.caption(table)


def test_cells_of_fewer_seeds_say_how_many():
    runs = made.runs({"fedavg": [50, 60], "fedprox": [55]})
    product, table = drawn(runs)
    assert product.wide(table).loc["FedAvg"].item() == "55.00 ± 7.07"  # as many as in most cells
    assert product.wide(table).loc["FedProx"].item() == "55.00 (1 seed)"
    _, fedavg = drawn(runs[runs["method"] == "fedavg"])
    assert "seed" not in product.wide(fedavg).loc["FedAvg"].item()


def test_a_caption_says_how_many_clients_are_in_no_mean_over_clients():
    values = {"accuracy": {10: 0.5}, "own_mean": {10: 0.5}}
    runs = made.measured(values, clients_without_tests=96)
    said = {}
    for metric in values:
        product, table = drawn(runs, metric=metric)
        said[metric] = product.caption(table)
    assert "without the 96 clients that have no test samples" in said["own_mean"]
    assert "without" not in said["accuracy"]
