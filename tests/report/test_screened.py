"""Methods that a screening chooses to run again: `fedgrid.report.screened`."""

import pandas as pd
import pytest

import made
from fedgrid.report import screened

METHODS = ("fedavg", "moon", "fedprox", "fedlc", "fedlc_random", "uniform")
SCORES = {"dir0.1": (50, 52, 55, 70, 90, 10), "dir0.5": (60, 50, 70, 80, 90, 10)}  # in percent


def drawn(**options) -> pd.DataFrame:
    """The table of these scores: FedAvg is a control, and FedLC has a placebo."""
    runs, settings = [], []
    for partition, scores in SCORES.items():
        for method, score in zip(METHODS, scores, strict=True):
            names = {"method": method, "partition": partition, "protocol": "p-lr0.1"}
            for seed in (5, 6):
                run = made.run(score, seed=seed, **names).assign(validation_accuracy=0.5)
                runs.append(run.assign(validation_from="test"))
                settings.append(made.recorded({"": {"lr": 0.1}, method: {}}, seed=seed, **names))
    given = {"over": "lr", "placebos": {"fedlc": "fedlc_random"}, "always": ["fedavg"]} | options
    sources = {"runs": pd.concat(runs), "settings": pd.concat(settings)}
    return screened.draw(**sources, study=made.STUDY, scale="quick", **given)


@pytest.mark.parametrize(
    ("keep", "confirmed"),
    [
        (1, {"fedlc", "fedlc_random", "fedavg"}),
        (2, {"fedlc", "fedlc_random", "fedavg", "fedprox"}),
        (9, {"fedlc", "fedlc_random", "fedavg", "fedprox", "moon", "uniform"}),
    ],
)
def test_the_best_methods_are_confirmed_with_their_placebos_and_the_controls(keep, confirmed):
    table = drawn(keep=keep)
    assert {*table.loc[table["confirm"], "family"]} == confirmed
    assert (table.groupby("family")["confirm"].nunique() == 1).all()  # the same in all cells


def test_placebos_and_controls_have_no_rank():
    ranks = drawn().groupby("family")["mean_rank"].first()
    assert ranks.dropna().to_dict() == {"fedlc": 1.0, "fedprox": 2.0, "moon": 3.0, "uniform": 4.0}


def test_the_placebo_of_a_method_that_is_not_confirmed_is_not_either():
    table = drawn(keep=0, always=None)
    assert not table["confirm"].any()


def test_the_row_of_a_choice_has_the_seeds_that_chose_it():
    assert {*drawn()["tried_with"]} == {"5 6"}
