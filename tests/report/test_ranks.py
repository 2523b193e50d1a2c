"""Ranks of methods, each with its best candidate: `fedgrid.report.ranks`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.report import ranks
from fedgrid.runtime.names import UsageError

# Accuracies in percent of validation and test by candidate and seed; the last field is the rate.
CELLS = {
    ("digits", "dir0.1"): {
        ("fedavg", 0.1): ([50, 52], [40, 44]),
        ("fedavg", 0.2): ([60, 62], [60, 64]),
        ("good", 0.1): ([70, 72], [66, 68]),
        ("good", 0.2): ([60, 60], [80, 80]),
        ("placebo", 0.1): ([71, 71], [65, 69]),
        ("placebo", 0.2): ([10, 10], [20, 20]),
    },
    ("digits", "dir0.5"): {
        ("fedavg", 0.1): ([80, 80], [80, 82]),
        ("fedavg", 0.2): ([70, 70], [70, 72]),
        ("good", 0.1): ([90, 90], [70, 90]),
        ("good", 0.2): ([80, 80], [75, 77]),
        ("placebo", 0.1): ([75, 75], [70, 71]),
        ("placebo", 0.2): ([70, 70], [70, 72]),
    },
}


def sources() -> dict[str, pd.DataFrame]:
    """Runs of these cells and their settings."""
    runs, settings = [], []
    for (dataset, partition), candidates in CELLS.items():
        for (method, rate), (validation, test) in candidates.items():
            about = {"dataset": dataset, "partition": partition, "protocol": f"p-lr{rate}"}
            for seed, (seen, score) in enumerate(zip(validation, test, strict=True)):
                names = about | {"method": method, "seed": seed}
                run = made.run(score, **names).assign(validation_accuracy=seen / 100)
                runs.append(run.assign(validation_from="test"))
                settings.append(made.recorded({"": {"lr": rate}, method: {}}, **names))
    return {"runs": pd.concat(runs), "settings": pd.concat(settings)}


def drawn(**options) -> pd.DataFrame:
    table = ranks.draw(**sources(), study=made.STUDY, scale="quick", over="lr", **options)
    return table.set_index(["family", "partition"])


def test_the_candidate_is_chosen_on_validation_data_and_shown_on_test_data():
    table = drawn()
    assert table.loc[("fedavg", "dir0.1"), ["chosen", "mean"]].tolist() == ["lr=0.2", 62.0]
    assert table.loc[("good", "dir0.1"), ["chosen", "mean"]].tolist() == ["lr=0.1", 67.0]
    assert (table["candidates"] == 2).all()


def test_ranks_are_of_test_scores_and_placebos_have_none():
    table = drawn(placebos={"good": "placebo"})
    assert table["rank"].xs("dir0.1", level=1).to_dict() == pytest.approx(
        {"good": 1, "fedavg": 2, "placebo": np.nan}, nan_ok=True
    )
    mean = table["mean_rank"].groupby(level=0).first()
    assert mean["good"] == pytest.approx((1 + 2) / 2)
    assert mean["fedavg"] == pytest.approx((2 + 1) / 2)


def test_differences_are_taken_seed_by_seed():
    table = drawn(placebos={"good": "placebo"})
    row = table.loc[("good", "dir0.1")]
    assert row["gain"] == pytest.approx(np.mean([66 - 60, 68 - 64]))
    assert row["gain_low"] < row["gain"] < row["gain_high"]
    assert row["beyond_placebo"] == pytest.approx(np.mean([66 - 65, 68 - 69]))
    assert np.isnan(table.loc[("fedavg", "dir0.1"), "gain"])


def test_the_critical_difference_is_that_of_demsar():
    # Demšar (JMLR 2006): 4 classifiers on 14 data sets, q = 2.569, CD = 1.25.
    assert ranks.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_friedmans_test_is_that_of_all_ranked_methods():
    table = drawn()
    assert table["cells"].eq(2).all()
    assert 0 < table["p"].iloc[0] < 1
    assert np.isnan(drawn(placebos={"good": "placebo"})["p"].iloc[0])  # two methods are too few


def test_its_forms_can_be_drawn():
    table = drawn(placebos={"good": "placebo"}).reset_index()
    shown = ranks.wide(table)
    assert shown.loc["good", ("digits, alpha=0.1", "test accuracy")] == "67.00"
    assert shown.loc["good", ("digits, alpha=0.1", "minus FedAvg")].startswith("+5.00 [")
    assert "Friedman" in ranks.caption(drawn().reset_index())
    assert "A gain is the difference to FedAvg in a cell, with" in ranks.caption(table)


def test_the_caption_names_the_methods_whose_intervals_are_above_the_baseline():
    table = drawn(placebos={"good": "placebo"}).reset_index()
    none = ranks.caption(table)
    assert "digits, alpha=0.1: no method is better than FedAvg, and no method is better" in none
    here = (table["family"] == "good") & (table["partition"] == "dir0.1")
    table.loc[here, ["gain_low", "beyond_placebo_low"]] = 0.1
    said = "alpha=0.1: good is better than FedAvg, and good is better than the placebo."
    assert said in ranks.caption(table)
    assert said not in ranks.caption(table.assign(of="loss"))  # which is better if it is lower
    table[["gain_low", "beyond_placebo_low"]] = np.nan  # one seed
    assert "better than FedAvg" not in ranks.caption(table)


def test_two_settings_of_a_cell_have_columns_and_panels_of_their_own():
    first = drawn(placebos={"good": "placebo"}).reset_index()
    table = pd.concat([first, first.assign(setting="other")], ignore_index=True)
    heads = {head for head, _ in ranks.wide(table).columns}
    assert {"digits, alpha=0.1, p", "digits, alpha=0.1, other"} < heads
    titles = [axes.get_title() for axes in ranks.plot(table, made.STUDY).axes]
    assert len({*titles}) == 5


def marks(axes) -> dict[float, set[float]]:
    """The places of marks in a panel, by row."""
    found = {}
    for line in axes.lines:
        if line.get_marker() not in ("", "None", None):
            found.setdefault(float(line.get_ydata()[0]), set()).add(float(line.get_xdata()[0]))
    return found


def test_the_figure_has_ranks_and_the_gains_of_methods_and_placebos_in_each_cell():
    table = drawn(placebos={"good": "placebo"}).reset_index()
    first, *cells = ranks.plot(table, made.STUDY).axes
    assert marks(first) == {0: {1.5}, 1: {1.5}}
    families = [text.get_text() for text in first.get_yticklabels()]
    for axes, partition in zip(cells, ("dir0.1", "dir0.5"), strict=True):
        own = table[table["partition"] == partition].set_index("family")["gain"]
        found = {round(x, 6) for x in marks(axes)[families.index("good")]}
        assert found == {own["good"], own["placebo"]}


def test_a_run_that_diverged_is_said_in_its_cell():
    table = drawn(placebos={"good": "placebo"}).reset_index()
    lost = (table["family"] == "placebo") & (table["partition"] == "dir0.1")
    table.loc[lost, ["mean", "gain", "diverged"]] = np.nan, np.nan, 1
    shown = ranks.wide(table).loc["placebo", "digits, alpha=0.1"]
    assert shown.tolist()[:2] == ["1/2 diverged", ""]


def test_a_placebo_that_is_no_method_is_refused_and_one_without_runs_is_not():
    with pytest.raises(UsageError, match="method in `placebos`"):
        drawn(placebos={"good": "plazebo"})
    assert drawn(placebos={"good": "placebo", "fedlc": "fedlc_random"})["rank"].notna().any()
