"""Both sides of lemma 3.1 and proposition 3.4: `analysis/mixtures.py`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis import mixtures
from fedgrid.analysis.mixtures import LEMMA, PROPOSITION
from fedgrid.runtime.names import UsageError


def measured(losses=(1.0, 0.7, 0.8), divergences=(0.1, 0.2, 0.9), **names) -> pd.DataFrame:
    """What is measured of whole models at the weights 0, 0.5 and 1, and of mixed features."""
    whole = pd.DataFrame({"beta": [0, 0.5, 1], "loss": losses, "divergence": divergences})
    table = pd.concat([whole, pd.DataFrame({"alpha": [0.5], "beta": [0.5], "loss": [9.0]})])
    return table.assign(evaluate_clients="cohort", rounds=3, **(made.NAMES | names))


def gaps(table: pd.DataFrame, statement: str) -> dict:
    sides = mixtures.compare_sides(table)
    of = sides[sides["statement"] == statement].set_index(["seed", "beta"])
    return of["gap"].to_dict()


def test_the_gaps_by_hand():
    every = measured().assign(evaluate_clients="all", loss=0.0)
    table = pd.concat([measured(), measured(losses=(0, 1, 4), seed=1), every], ignore_index=True)
    assert gaps(table, PROPOSITION) == pytest.approx({(0, 0.5): 0.2, (1, 0.5): 1})
    of_lemma = {(seed, beta): gap for seed in (0, 1) for beta, gap in ((0.5, 0.1), (1, 0.8))}
    assert gaps(table, LEMMA) == pytest.approx(of_lemma)


def test_a_statement_counts_the_weights_at_which_it_is_true():
    table = pd.concat([measured(), measured((1, 2, 1), (0.5, 0.5, 0.6), seed=1)])
    assert mixtures.count_kept(table, PROPOSITION).tolist() == [1, 0]
    assert mixtures.count_kept(table, LEMMA).tolist() == [1, 0.5]  # the minimizer is not unique


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_run_that_diverged_says_nothing_of_a_statement(loss):
    table = pd.concat([measured(losses=(loss, loss, 0.8)), measured(seed=1)])
    assert mixtures.count_kept(table, PROPOSITION).tolist() == [1]


def test_the_clients_have_one_of_two_names():
    with pytest.raises(UsageError, match="evaluate_clients"):
        mixtures.select_features(measured(), "everyone")
