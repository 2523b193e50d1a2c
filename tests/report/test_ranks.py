"""Ranks of methods, each with its best candidate: `fedgrid.report.ranks`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis.inference import compare_in_blocks
from fedgrid.analysis.looks import PALE
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
    assert 0 < table["friedman_p"].iloc[0] < 1
    two = drawn(placebos={"good": "placebo"})  # methods, which are too few
    assert np.isnan(two["friedman_p"].iloc[0])


FEW: dict[str, list[float | None]] = {
    "fedavg": [50, 53, 56],
    "good": [59, 62.5, 65],
    "small": [51, 54.5, 57],
    "good_random": [40, 43.4, 46],
    "trivial-a1": [54, 56.5, 60],
    "trivial-a2": [52, 55.3, 58],
}
TRIVIAL = {"controls": ["trivial-a1", "trivial-a2"]}


def few(**options) -> pd.DataFrame:
    """A cell with three seeds: `good` gains 9 points, `small` 1, and both placebos harm."""
    runs = made.runs(FEW, protocol="p-lr0.1").assign(validation_from="test")
    averaged = (runs["accuracy"] + 0.03 + 0.001 * runs["seed"]).where(runs["method"] == "fedavg")
    runs = runs.assign(validation_accuracy=runs["accuracy"], averaged_accuracy=averaged)
    names = runs[["method", "seed"]].drop_duplicates().itertuples(index=False)
    settings = []
    for method, seed in names:
        file, dash, _ = method.partition("-")
        of_run = {"": {"lr": 0.1}, file: {"a": method[-1]} if dash else {}}
        settings.append(made.recorded(of_run, method=method, seed=seed, protocol="p-lr0.1"))
    given = {"placebos": {"good": "good_random", "small": "good_random"}} | options
    table = ranks.draw(runs, pd.concat(settings), made.STUDY, "quick", **given)
    return table.set_index("family")


def test_p_is_of_ranked_families_and_the_best_control_and_corrected_for_the_methods():
    model = ["fedavg", "good", "small", "trivial-a1"]
    table, p = few(**TRIVIAL), compare_in_blocks(pd.DataFrame(FEW)[model], "fedavg")
    assert table["p"].dropna().to_dict() == pytest.approx(p.drop("trivial-a1").to_dict())
    assert [*table["p_holm"].dropna().index] == ["good", "small"]
    assert table.loc["good", "p_holm"] == pytest.approx(2 * p["good"])
    assert table.loc["small", "p_holm"] == pytest.approx(p["small"])
    assert np.isnan(table.loc["fedavg", "p"])


def test_a_family_with_a_run_that_diverged_has_no_p_and_the_others_have():
    cell = pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, 2.0], "c": [2.0, 2.5]})
    found = ranks.find_p({name: cell[name] for name in cell}, ["b", "c"], p="a")
    assert found["p"].isna().to_dict() == {"a": True, "b": True, "c": False}


def test_controls_are_families_without_a_rank_and_the_best_is_compared_with():
    table = few(**TRIVIAL)
    assert table.loc[TRIVIAL["controls"], "rank"].isna().all()
    assert {*table["control"]} == {"trivial-a1"}
    row = table.loc["good"]
    by_hand = np.mean([59 - 54, 62.5 - 56.5, 65 - 60])
    assert row["beyond_control"] == pytest.approx(by_hand, abs=1e-4)
    assert row["beyond_control_low"] < row["beyond_control"] < row["beyond_control_high"]
    assert row["control_p"] < row["control_p_holm"] < 0.05
    assert table.loc["small", "beyond_control"] < 0
    assert np.isnan(table.loc["trivial-a1", "beyond_control"])
    assert {*few()["control"].isna()} == {True}
    assert "trivial" in few().index  # without the option they are candidates of one family


def test_the_mean_of_the_last_models_is_a_family_of_the_same_runs():
    table = few(averaged={"mean": "fedavg"}, controls=["mean"])
    assert table.loc["mean", ["mean", "gain", "control"]].tolist() == [56.1, 3.1, "mean"]
    assert table.loc["mean", "chosen"] == table.loc["fedavg", "chosen"]
    assert np.isnan(table.loc["mean", "rank"])
    lacks = drawn(averaged={"mean": "fedavg"}, controls=["mean"])
    assert "mean" not in lacks.index.get_level_values("family")
    said = ranks.caption(lacks.reset_index(), averaged={"mean": "fedavg"})
    assert "Without the mean of FedAvg's last models: no run has its score" in said
    assert "Without" not in ranks.caption(table.reset_index(), averaged={"mean": "fedavg"})


def test_a_new_family_needs_a_name_of_its_own():
    with pytest.raises(UsageError, match="makes the family good, and these runs have one"):
        few(averaged={"good": "fedavg"})


def test_the_caption_names_the_methods_that_are_better_after_the_correction():
    table = few(**TRIVIAL).reset_index()
    said = ranks.caption(table)
    assert (
        "alpha=0.1: good and small are better than FedAvg (2 without correction), good is better "
        "than the best control trivial-a1 (1 without correction) and small is better than the "
        "placebo." in ranks.caption(table.assign(placebo_verdict=["no control", *[np.nan] * 5]))
    )
    assert "No control, because it is worse than FedAvg: the placebo of good and small." in said
    assert "The best control is chosen by the same scores, which favours it." in said
    other = table.assign(p_holm=table["p_holm"] * 0 + 0.06)
    assert "no method is better than FedAvg (2 without correction)" in ranks.caption(other)
    lower = table.assign(of="loss")
    assert "no method is better than FedAvg (0 without correction)" in ranks.caption(lower)
    one_seed = table.assign(gain_low=np.nan)
    assert "better than FedAvg" not in ranks.caption(one_seed)


def test_a_placebo_that_harms_is_marked_as_no_control():
    table = few()
    assert table.loc[["good", "small"], "placebo_verdict"].tolist() == ["no control"] * 2
    assert drawn(placebos={"good": "placebo"})["placebo_verdict"].dropna().eq("undecided").all()
    shown = ranks.wide(table.reset_index()).iloc[0]
    assert shown["CIFAR-10, alpha=0.1", "minus its placebo"].endswith("], no control")
    assert ", p = " in shown["CIFAR-10, alpha=0.1", "minus FedAvg"]


def test_open_marks_are_not_different_and_the_best_control_is_a_line():
    table = few(**TRIVIAL).reset_index()
    table.loc[table["family"] == "small", "p_holm"] = 0.06
    _, axes = ranks.plot(table, made.STUDY).axes
    faces = {
        line.get_ydata()[0]: line.get_markerfacecolor()
        for line in axes.lines
        if len(line.get_ydata()) == 1 and line.get_color() != PALE
    }
    assert [faces[place] == "white" for place in (0, 1)] == [False, True]
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [table.set_index("family").loc["trivial-a1", "gain"]]


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


def test_the_figure_says_what_its_signs_and_units_are_and_how_many_seeds_a_panel_has():
    table = drawn(placebos={"good": "placebo"}).reset_index()
    figure = ranks.plot(table, made.STUDY)
    (legend,) = figure.legends
    assert "placebo of the method" in [text.get_text() for text in legend.get_texts()]
    for axes in figure.axes[1:]:
        assert axes.get_title().endswith("\n2 seeds")
        assert axes.get_xlabel().split() == ["gain", "over", "FedAvg", "(points)"]


def test_a_run_that_diverged_is_said_in_its_cell():
    table = drawn(placebos={"good": "placebo"}).reset_index()
    lost = (table["family"] == "placebo") & (table["partition"] == "dir0.1")
    table.loc[lost, ["mean", "gain", "diverged"]] = np.nan, np.nan, 1
    shown = ranks.wide(table).loc["placebo", "digits, alpha=0.1"]
    assert shown.tolist()[:2] == ["1/2 diverged", ""]
