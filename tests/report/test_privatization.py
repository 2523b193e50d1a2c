"""Products of the study of privatisation ways, by hand."""

from math import sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import made
from fedgrid.analysis import figures, looks
from fedgrid.federation import cohorts
from fedgrid.federation.augment import normalise
from fedgrid.federation.stored import Data, read_statistics
from fedgrid.partitions import count_clients
from fedgrid.report.privatization import (
    bregman,
    figure3,
    figure7,
    figure8,
    figure9,
    figure10,
    table1,
    ways,
)
from fedgrid.runtime.names import UsageError
from fedgrid.study import checks
from made import GRID

STUDY = {
    "published": {
        "benchmarks": {
            "columns": ["clients", "classes", "training", "test", "global_test"],
            "values": {
                "digits": [100, 10, 400, 100, 10000],
                "femnist": [3550, 62, 181, 45, 161000],
            },
        }
    },
    "labels": {"AB": "AB", "cifar10": "FeCifar10", "protocols": {"q": "E=5"}},
}
T1 = 12.7062  # Student's quantile 0.975 with one degree of freedom


def run(method: str, seed: int, server: float | None, own: float, **names) -> pd.DataFrame:
    """A run that counts with these percentages; None is no complete server's model."""
    found = made.run(own, method, seed, **names)
    found["own_mean"] = found["accuracy"]
    return found.assign(
        accuracy=np.nan if server is None else found["accuracy"] + (server - own) / 100
    )


def runs(percents: dict[str, list[tuple]], **names) -> pd.DataFrame:
    return pd.concat(
        run(method, seed, *pair, **names)
        for method, pairs in percents.items()
        for seed, pair in enumerate(pairs)
    )


# By seeds, AaB is above its placebo by 2 and 4 points for clients, and by 1 and 1 for the server.
WAYS = {
    "AB": [(50, 60), (52, 64)],
    "AaB": [(55, 66), (57, 68)],
    "aB": [(None, 40), (None, 42)],
    "AaB+forgets": [(54, 64), (56, 64)],
}


def plotted(product, table: pd.DataFrame):
    with figures.use_style():
        figure = product.plot(made.read(table), STUDY)
        figure.canvas.draw()
    return figure


# --- the settings of the authors' code -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dataset", "share", "clients"),
    [
        ("privatization-femnist-code", "femnist", 0.001, 3597),
        ("privatization-shakespeare-code", "shakespeare", 0.01, 1129),
        ("privatization-fecifar-code", "cifar10", 0.1, 100),
        ("privatization-small-speakers-participation0.008", "tinyshakespeare", 0.01, 256),
    ],
)
def test_the_codes_protocols_have_the_codes_number_of_clients_in_a_round(
    name, dataset, share, clients
):
    protocol = GRID.protocol(name)
    asked = protocol["participation"], protocol["sampler"]
    assert count_clients(protocol["clients"], dataset) == clients
    assert cohorts.size(clients, *asked) == int(share * clients)


def test_the_code_only_scales_the_images_of_femnist():
    checks.check_protocol("p", GRID.protocol("privatization-femnist-code"), "femnist")
    meta = {"statistics": {"standard": [[0.2], [0.3]]}, "shape": [1, 28, 28], "classes": 62}
    nothing = np.zeros(0, np.uint8)
    data = Data(*[nothing] * 4, meta)
    mean, std = read_statistics(data, "scaled", Path())
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)[:, None, None, None]
    found = normalise(images, *(torch.tensor(values)[:, None, None] for values in (mean, std)))
    torch.testing.assert_close(found.flatten(), torch.tensor([0.0, 0.2, 1.0]))
    assert read_statistics(data, "standard", Path()) == ([0.2], [0.3])


@pytest.mark.parametrize("dataset", ["dialects", "tinyshakespeare"])
def test_tokens_are_not_scaled(dataset):
    protocol = GRID.protocol("privatization-quick-dialects-normalizationscaled")
    with pytest.raises(UsageError, match="has no normalization `scaled`, only standard"):
        checks.check_protocol("p", protocol, dataset)


# --- ways ------------------------------------------------------------------------------------


def test_ways_have_both_accuracies_their_placebos_and_the_paired_difference():
    table = made.read(ways.draw(runs(WAYS), STUDY, "quick")).set_index("method")
    assert table.index.tolist() == ["AB", "AaB", "aB"]
    found = table.loc["AaB"]
    assert (found["aggregation_mean"], found["personalisation_mean"]) == (56, 67)
    half = T1 * sqrt(2) / sqrt(2)  # deviation of 66 and 68
    assert found["personalisation_low"] == pytest.approx(67 - half, abs=1e-3)
    assert found["personalisation_placebo_mean"] == 64
    assert found["personalisation_gain_mean"] == 3
    assert found["personalisation_gain_high"] == pytest.approx(3 + half, abs=1e-3)
    assert found["aggregation_gain_mean"] == 1
    assert table["aggregation_mean"].isna().tolist() == [False, False, True]


def test_a_way_has_a_row_for_each_of_its_placebos():
    """The differences are of the way to each; where a placebo has no runs, there is no row."""
    both = WAYS | {"AaB+resets": [(55, 65), (55, 66)]}
    every = pd.concat([runs(both), runs(WAYS, dataset="mnist")])
    table = made.read(ways.draw(every, STUDY, "quick", placebo=["+forgets", "+resets"]))
    rows = table[["dataset", "method", "placebo"]].fillna("").itertuples(index=False, name=None)
    of_aab = [("AaB", "AaB+forgets"), ("AaB", "AaB+resets")]
    assert [*rows] == [
        *(("cifar10", *pair) for pair in (("AB", ""), *of_aab, ("aB", ""))),
        *(("mnist", *pair) for pair in (("AB", ""), *of_aab[:1], ("aB", ""))),
    ]
    found = table[table["dataset"] == "cifar10"].set_index("placebo")
    assert found.loc["AaB+forgets", "personalisation_gain_mean"] == 3
    assert found.loc["AaB+resets", "personalisation_gain_mean"] == 1.5
    assert found.loc["AaB+resets", "personalisation_placebo_mean"] == 65.5
    assert found.loc["AaB+resets", "aggregation_gain_mean"] == 1
    assert found["personalisation_mean"].tolist()[1:3] == [67, 67]
    shown = ways.wide(table).loc[("FeCifar10", "alpha=0.1", "AaB", "AaB+resets")]
    assert shown["aggregation", "placebo"] == "55.00 [55.00, 55.00]"


def test_a_way_whose_run_diverged_has_no_mean():
    lost = made.lost("AB", 1).assign(own_mean=0.5)
    table = made.read(ways.draw(pd.concat([runs({"AB": [(50, 60)]}), lost]), STUDY, "quick"))
    assert ways.wide(table)["personalisation", "way"].tolist() == ["1/2 diverged"]


# --- curves ----------------------------------------------------------------------------------


def test_both_accuracies_of_several_settings_are_rows_and_columns():
    every = pd.concat([runs(WAYS), runs(WAYS, protocol="q")])
    table = figure7.draw(every, STUDY, "quick")
    ends = table[table["round"] == 10].set_index(["what", "protocol", "method"])["mean"]
    assert ends["aggregation", "p", "AaB"] == 57
    assert ends["personalisation", "q", "aB"] == 42
    assert ("aggregation", "p", "aB") not in ends
    figure = plotted(figure7, table)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["FeCifar10, p", "FeCifar10, E=5"]
    assert [len(axes.lines) for axes in figure.axes] == [3, 3, 4, 4]
    assert "2 seeds, 10 rounds" in figure7.caption(made.read(table))


# --- figure 8 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "split", "way"),
    [
        ("", 0, "ABC"),
        ("ps", 1, "aBC"),
        ("sp", 1, "Abc"),
        ("sp", 0, "abc"),
        ("sps", 2, "AaBbC"),
        ("ssp", 2, "ABCc"),
        ("ssp", 0, "AaBbCc"),
    ],
)
def test_a_way_has_a_letter_for_each_block(kind, split, way):
    assert figure8.write_letters(kind, split, 3) == way


def split_runs() -> dict[str, pd.DataFrame]:
    methods = {"AB": {}, "b": {"sps": {"split": None}}, "a": {"sps": {"split": 1}}}
    methods |= {"c": {"ps": {"split": 3}}}
    percents = {name: [(None if name == "c" else 50, 60), (52, 64)] for name in methods}
    percents["c"] = [(None, 30), (None, 34)]
    settings = [
        made.recorded({"": {"model": "cnn"}, "uniform": {}} | parts, method=name, seed=seed)
        for name, parts in methods.items()
        for seed in (0, 1)
    ]
    return {"runs": made.read(runs(percents)), "settings": made.read(pd.concat(settings))}


def test_bars_are_in_the_order_of_kinds_and_splits():
    table = figure8.draw(**split_runs(), study=STUDY, scale="quick")
    own = table[table["what"] == "personalisation"]
    assert own["way"].tolist() == ["ABCD", "abcD", "AaBCD", "AaBbCD"]  # None: at the encoder
    assert own["mean"].tolist() == [62, 32, 62, 62]
    assert own["deviation"].tolist() == [pytest.approx(sqrt(2), abs=1e-3)] * 4  # 1 point around
    assert table[table["what"] == "aggregation"]["method"].tolist() == ["AB", "a", "b"]
    figure = plotted(figure8, table)
    upper, lower = figure.axes
    assert [bar.get_height() for bar in upper.patches] == [51, 51]
    assert [text.get_text() for text in lower.get_xticklabels()] == ["abcD", "AaBCD", "AaBbCD"]


# --- figure 9 --------------------------------------------------------------------------------


def points(seed: int, best: float) -> pd.DataFrame:
    rows = [(a, b, 0.5) for a in (0, 0.01, 1) for b in (0, 1)]
    table = pd.DataFrame(rows, columns=["alpha", "beta", "mean"])
    table.loc[(table["alpha"] == 0.01) & (table["beta"] == 1), "mean"] = best
    names = {"seed": seed, "method": "AaBb", "evaluate_clients": "cohort"}
    return table.assign(**(made.NAMES | made.SUMMED | names))


def test_the_best_point_is_marked_on_equal_cells():
    table = figure9.draw(pd.concat([points(0, 0.8), points(1, 0.6)]), STUDY, "quick")
    assert len(table) == 6
    best = table[table["best"]]
    assert best[["alpha", "beta", "mean", "seeds"]].values.tolist() == [[0.01, 1, 70, 2]]
    assert "FeCifar10 (0.01, 1) with 70.00" in figure9.caption(made.read(table))
    axes = plotted(figure9, table).axes[0]
    (star,) = axes.lines
    assert (star.get_xdata().tolist(), star.get_ydata().tolist()) == ([1], [1])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "0.01", "1"]


def test_clients_after_local_training_and_all_clients_are_two_figures():
    both = pd.concat([points(0, 0.8), points(0, 0.6).assign(evaluate_clients="all")])
    text = figure9.draw(both, STUDY, "quick")
    code = figure9.draw(both, STUDY, "quick", evaluate_clients="all")
    assert (text["mean"].max(), code["mean"].max()) == (80, 60)
    assert (
        " clients of rounds, each counted in every round, after local training, on"
        in figure9.caption(text)
    )
    assert " clients, as they are, on" in figure9.caption(code)


# --- lemma 3.1 and proposition 3.4 -----------------------------------------------------------


def test_a_theorem_has_the_least_gap_of_any_seed():
    rows = {"beta": [0, 0.5, 1], "loss": [1, 0.7, 0.8], "divergence": [0.1, 0.2, 0.9]}
    names = made.NAMES | made.SUMMED | {"method": "AaBb", "evaluate_clients": "cohort"}
    one = pd.DataFrame(rows).assign(alpha=np.nan, **names)
    two = one.assign(seed=1, loss=[1, 0.6, 0.8])
    table = bregman.draw(pd.concat([one, two]), STUDY, "quick")
    shown = bregman.wide(table)
    assert shown["least gap"].tolist() == ["0.1", "0.2"]
    assert shown["at weight"].tolist() == ["0.5", "0.5"]
    mean = table[table["statement"] == "proposition 3.4"].iloc[0]
    assert (mean["gap"], mean["seeds"]) == (pytest.approx(0.25), 2)


# --- figure 10 -------------------------------------------------------------------------------


def test_coefficients_are_below_the_accuracies():
    every = runs({"AutoCS": [(50, 60), (52, 64)]})
    every["alpha_0_1"], every["beta_0"] = every["seed"], 2.0
    table = figure10.draw(every, STUDY, "quick")
    ends = table[table["round"] == 10].set_index("curve")["mean"].to_dict()
    assert ends == {"aggregation": 52, "personalisation": 63, "alpha_0_1": 0.5, "beta_0": 2}
    top, bottom = plotted(figure10, table).axes
    of_method = [line for line in top.lines if len(line.get_xdata())]
    assert [line.get_linestyle() for line in of_method] == ["-", "--"]
    assert {line.get_color() for line in of_method} == {looks.find_colour("AutoCS")}
    assert top.get_legend_handles_labels()[1] == ["aggregation", "personalisation"]
    names = {line.get_label(): line.get_linestyle() for line in bottom.lines}
    assert names == {r"$\alpha_{0,1}$": "--", r"$\beta_{0}$": "-"}  # 1 is of the private part


def test_runs_without_coefficients_are_refused():
    with pytest.raises(UsageError, match="no run of the grid has coefficients: name methods"):
        figure10.draw(runs(WAYS), STUDY, "quick")


# --- data ------------------------------------------------------------------------------------


def test_table_1_has_means_over_clients_beside_the_printed_numbers():
    sizes = pd.DataFrame({"client": [0, 1], "training": [10, 20], "test": [3, 4]})
    names = made.NAMES | made.SUMMED | {"dataset": "digits"}
    later = sizes.assign(**(names | {"seed": 1})).assign(training=99)
    table = table1.draw(pd.concat([sizes.assign(**names), later]), STUDY, "quick", "benchmarks")
    shown = table1.wide(made.read(table))
    assert shown.loc["digits"].iloc[0].tolist() == [
        "2 (100)", "10 (10)", "15 (400)", "3.5 (100)", "355 (10,000)"
    ]  # fmt: skip
    assert shown.loc["femnist"].iloc[0].tolist()[:2] == ["(3,550)", "(62)"]
    with pytest.raises(UsageError, match="no entry of `published` is called `benchmark`: did you"):
        table1.draw(sizes.assign(**names), STUDY, "quick", "benchmark")


def test_figure_3_shows_at_most_100_clients_and_the_classes_of_all():
    counts = pd.DataFrame({"client": [0, 0, 1, 150], "class": [0, 2, 2, 1]})
    counts = counts.assign(samples=[1, 3, 5, 7], **(made.NAMES | made.SUMMED | {"clients": 151}))
    table = figure3.draw(counts, STUDY, "quick")
    ours = table[table["of"] == figure3.CLIENT]
    assert ours[["client", "class", "share"]].values.tolist() == [
        [0, 0, 0.25],
        [0, 2, 0.75],
        [1, 2, 1],
    ]
    classes = table[table["of"] == figure3.CLASS]
    assert classes.set_index("class")["samples"].to_dict() == {0: 1, 1: 7, 2: 8}
    top, _, middle, right = plotted(figure3, table).axes[:4]
    assert [bar.get_height() for bar in top.patches] == [4, 5]
    assert [bar.get_width() for bar in right.patches] == [1, 7, 8]
    assert middle.images[0].get_array().tolist() == [[0.25, 0], [0, 0], [0.75, 1]]
