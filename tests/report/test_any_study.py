"""Products for any study, by hand: `table`, `sweep`, `tuned`, `clients`, curves of a metric."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import made
from fedgrid.analysis import fields, figures
from fedgrid.analysis.readable import find_best, write_cells
from fedgrid.partitions import write_label
from fedgrid.report import (
    _product,
    clients,
    comparison,
    configuration,
    convergence,
    sweep,
    table,
    tuned,
)
from fedgrid.runtime.names import UsageError

STUDY = {"labels": {"fedavg": "FedAvg", "fedprox": "FedProx", "cifar10": "CIFAR-10"}}
FILES = {"prox": "fedprox", "moon": "moon", "fedavg": "fedavg"}  # by the start of a method's name


def grid(percents: dict, lr: float = 0.1, validation: dict | None = None, also=None, **names):
    """Runs and settings by (method, value of mu): a percentage per seed, or None if one diverged.

    The validation accuracy is the test accuracy, or that of `validation`, in percent.
    """
    runs, settings = [], []
    for (method, mu), values in percents.items():
        file = FILES[method.split("-")[0]]
        of_protocol = {"lr": lr, "augment": ["crop"]} | (also or {})
        parts = {"": of_protocol, file: {} if mu is None else {"mu": mu}}
        for seed, percent in enumerate(values):
            about = {"method": method, "seed": seed} | names
            run = made.lost(**about) if percent is None else made.run(percent, **about)
            if validation is not None:
                chosen = validation.get((method, mu), values)[seed]
                run["validation_accuracy"] = np.nan if chosen is None else chosen / 100
            runs.append(run)
            settings.append(made.recorded(parts, **about))
    return pd.concat(runs), pd.concat(settings)


def both(*pairs: tuple[pd.DataFrame, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Several grids in one: sources as they are read from their files."""
    runs, settings = zip(*pairs, strict=True)
    return {"runs": made.read(pd.concat(runs)), "settings": made.read(pd.concat(settings))}


MUS = {("prox-c", 1): [56, 54], ("prox-a", 0.01): [50, 52], ("prox-b", 0.1): [60, 62]}
PLAIN = {("fedavg", None): [40, 42]}


def plotted(module, found: pd.DataFrame, study: dict = STUDY, **options):
    """The figure of a table as it is read again, laid out without a warning."""
    with figures.use_style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = _product.bind_options(module.plot, options)(made.read(found), study)
        figure.canvas.draw()
    return figure


# --- fields ----------------------------------------------------------------------------------


def test_values_are_texts_that_are_equal_for_equal_numbers():
    values = [1, 1.0, 0.1, 1e-05, True, None, "A", ["crop"]]
    found = ["1", "1", "0.1", "1e-05", "true", "none", "A", '["crop"]']
    assert [fields.write_value(value) for value in values] == found


def test_fields_are_read_after_they_were_written():
    parts = {"": {"switch": None, "augment": [], "lr": 0.1}, "fedprox": {"mu": 1, "damped": True}}
    found = fields.read_fields(made.read(made.recorded(parts))).iloc[0].to_dict()
    assert found == {
        **{"fedprox.damped": "true", "fedprox.mu": "1"},
        **{"protocol.augment": "[]", "protocol.lr": "0.1", "protocol.switch": "none"},
    }


def test_a_field_that_a_run_has_twice_needs_its_file():
    parts = {"": {"beta": 1}, "fedavgm": {"beta": 2}}
    every = fields.read_fields(made.recorded(parts))
    with pytest.raises(UsageError, match=r"several .* `beta`: write fedavgm.beta or protocol.beta"):
        fields.select_field(every, "beta")
    assert fields.select_field(every, "fedavgm.beta").tolist() == ["2"]
    with pytest.raises(UsageError, match="no field of these runs is called `bata`: did you mean"):
        fields.select_field(every, "bata")
    assert fields.write_fields(every, [*every]).tolist() == ["fedavgm.beta=2, protocol.beta=1"]


def test_a_hyper_parameter_is_not_taken_for_a_partitions_alpha():
    every = fields.read_fields(made.recorded({"feddyn": {"alpha": 0.1}, "fedprox": {"mu": 1}}))
    label = write_label("dir0.1")
    (text,) = fields.write_fields(every, [*every])
    assert text == "feddyn.alpha=0.1, mu=1"
    assert label not in text.split(", ")


def test_methods_of_the_same_files_are_a_family():
    settings = pd.concat(
        made.recorded({"": {"lr": 1}} | parts, method=method)
        for method, parts in {
            "prox-a": {"fedprox": {"mu": 1}},
            "prox-b": {"fedprox": {"mu": 2}},
            "alone": {"moon": {"mu": 1}},
            "both-a": {"fedprox": {"mu": 1}, "scaffold": {}},
            "both-b": {"scaffold": {}, "fedprox": {"mu": 2}},
            "fedavg": {},
        }.items()
    )
    families = fields.find_families(made.read(settings))
    assert families == {
        **{"prox-a": "fedprox", "prox-b": "fedprox", "alone": "moon", "fedavg": "fedavg"},
        **{"both-a": "fedprox+scaffold", "both-b": "fedprox+scaffold"},
    }
    assert fields.name_groups(families) == families | {"alone": "alone"}


def test_a_file_without_hyper_parameters_is_not_shown_in_the_configuration():
    _, settings = grid(MUS | PLAIN)
    found = configuration.draw(made.read(settings), {}, "quick")
    assert found["field"].notna().all()
    assert len(found) == 2 + 3  # two fields of the protocol, and mu of three methods


# --- tables ----------------------------------------------------------------------------------


def tabled(pairs=(MUS | PLAIN,), **options) -> pd.DataFrame:
    return table.draw(study=STUDY, scale="quick", **both(*map(grid, pairs)), **options)


def test_a_table_along_fields_by_hand():
    other = grid(MUS | PLAIN, lr=0.3, protocol="q")
    sources = both(grid(MUS | PLAIN), other)
    options = {"rows": ["mu"], "columns": ["lr", "dataset", "partition"]}
    found = table.draw(study=STUDY, scale="quick", **sources, **options)
    shown = table.wide(found, **options)
    assert shown.index.tolist() == ["-", "0.01", "0.1", "1"]  # fedavg has no mu
    assert shown.columns.names == ["lr", "dataset", "partition"]
    assert [name for name, *_ in shown.columns] == ["0.1", "0.3"]
    assert shown.loc["0.1"].tolist() == ["61.00 ± 1.41"] * 2


def test_a_table_of_seeds_and_one_of_no_columns():
    found = tabled(rows=["method", "seed"])
    assert table.wide(found, rows=["method", "seed"]).iloc[:2, 0].tolist() == ["56.00", "54.00"]
    assert ": 2 seeds," in table.caption(found)
    found = tabled(columns=[])
    shown = table.wide(found, columns=[]).loc["FedAvg"]
    assert shown.to_dict() == {"test accuracy": "41.00 ± 1.41"}


def test_a_cell_has_the_decimals_that_are_asked_for_or_an_interval():
    found = tabled()
    half = stats.t.ppf(0.975, 1) * np.sqrt(2) / np.sqrt(2)  # 40 and 42
    cell = table.wide(found, decimals=1, spread="interval").loc["FedAvg"].item()
    assert cell == f"41.0 [{41 - half:.1f}, {41 + half:.1f}]"
    assert "95 % interval" in table.caption(found, spread="interval")
    alone = table.draw(made.run(50), STUDY, "quick")
    assert table.wide(alone, decimals=0, spread="interval").iloc[0, 0] == "50"
    shown = comparison.wide(comparison.draw(made.run(50), made.STUDY, "quick"), decimals=1)
    assert shown.iloc[0, 0].startswith("50.0")
    for wrong in ({"decimals": 9}, {"decimals": True}, {"spread": "sd"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            tabled(**wrong)


def private(method: str = "fedper", **names) -> pd.DataFrame:
    """A run whose server has no complete model: only clients' own models have an accuracy."""
    return made.measured({"own_mean": {8: 0.5, 10: 0.7}}, method=method, **names)


def captioned(product: str, table: pd.DataFrame, **options) -> str:
    """The caption of a product as its files have it."""
    return _product.load_product("mine", product, {"with": options}).caption(made.read(table))


def test_a_method_without_an_accuracy_beside_one_with_it_is_explained():
    runs = pd.concat([made.run(50), private()])
    found = table.draw(runs, STUDY, "quick")
    assert table.wide(found).iloc[:, 0].to_dict() == {"FedAvg": "50.00", "fedper": ""}
    said = captioned("table", found)
    assert said.endswith(
        "The server has no accuracy with fedper, because clients keep a part of the model: `with: "
        "{metric: own_mean}` shows that of clients' own models, also with `draw: table`."
    )
    assert "no accuracy" not in captioned("table", table.draw(made.run(50), STUDY, "quick"))
    lost = pd.concat([made.run(50), made.lost(method="fedprox")])
    assert "no accuracy" not in captioned("table", table.draw(lost, STUDY, "quick"))
    own = table.draw(private(), STUDY, "quick", metric="own_mean")
    assert "no accuracy" not in captioned("table", own, metric="own_mean")


@pytest.mark.parametrize("module", [table, convergence])
def test_runs_without_an_accuracy_of_the_server_say_which_metric_there_is(module):
    with pytest.raises(UsageError, match=r"no accuracy of the server's .* `with: {metric: own_mea"):
        module.draw(private(), STUDY, "quick")
    with pytest.raises(UsageError, match="no metric of these runs is called `acuracy`"):
        module.draw(private(), STUDY, "quick", metric="acuracy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "metod"}, "no row or column is called `metod`: did you mean method"),
        ({"rows": "mu", "columns": ["methods"]}, "no row or column is called `methods`"),
        ({"rows": "lr"}, "runs of more than one method: name `method`, or a field"),
        ({"rows": "method", "columns": "method"}, "`method` is twice in"),
        ({"rows": []}, "`rows` of the table is empty"),
        ({"metric": "acc"}, "no metric of these runs is called `acc`: did you mean accuracy"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_one_sentence(options, message):
    with pytest.raises(UsageError, match=message) as found:
        tabled(**options)
    assert "\n" not in str(found.value)


def test_a_field_of_a_table_needs_the_settings():
    runs, _ = grid(MUS)
    with pytest.raises(UsageError, match=r"no axis .a field needs the source `settings`. .* `mu`"):
        table.draw(runs, STUDY, "quick", rows="mu")


# --- sweeps ----------------------------------------------------------------------------------


def swept(*pairs, along="mu", **options) -> pd.DataFrame:
    return sweep.draw(STUDY, "quick", along=along, **both(*pairs), **options)


@pytest.mark.parametrize(
    ("values", "scale"),
    [((0.1, 0.7), "linear"), ((0.1, 1), "log"), ((0, 1), "linear"), ((-1, 100), "linear")],
)
def test_an_axis_of_positive_numbers_that_are_far_apart_is_logarithmic(values, scale):
    low, high = values
    found = swept(grid({("prox-a", low): [50], ("prox-b", high): [60]}))
    (axes,) = plotted(sweep, found, along="mu").axes
    assert axes.get_xscale() == scale


def test_texts_are_categories_in_the_order_of_the_runs():
    given = {("prox-a", "none"): [50], ("prox-b", "head"): [60], ("prox-c", "all"): [55]}
    (axes,) = plotted(sweep, swept(grid(given)), along={"mu": "layers"}).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["none", "head", "all"]
    assert axes.lines[0].get_ydata().tolist() == [50, 60, 55]
    assert axes.get_xlabel() == "layers"


def test_runs_that_differ_in_another_field_are_lines_of_their_own():
    found = swept(grid(MUS | PLAIN), grid(MUS | PLAIN, lr=0.3, protocol="q"))
    names = {"FedProx, lr=0.1", "FedProx, lr=0.3", "FedAvg, lr=0.1", "FedAvg, lr=0.3"}
    (axes,) = plotted(sweep, found, along="mu").axes
    lines = {line.get_label(): line for line in axes.lines}
    assert {name for name in lines if not name.startswith("_")} == names
    one, other = (lines[f"FedProx, lr={lr}"] for lr in (0.1, 0.3))
    assert one.get_color() == other.get_color()
    assert one.get_linestyle() != other.get_linestyle()
    assert found["seeds"].tolist() == [2] * 8


def test_a_logarithmic_axis_has_the_values_that_have_room():
    given = {(f"prox-{mu}", mu): [50] for mu in (1, 1.1, 5, 100)}
    (axes,) = plotted(sweep, swept(grid(given)), along="mu").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "5", "100"]


def test_a_field_that_follows_from_the_swept_one_makes_no_line():
    given = {("prox-a", 1): [50], ("prox-b", 2): [60]}
    pairs = [
        grid(given, lr, also={"batch": batch, "local": 5}, protocol=f"p{lr}")
        for lr, batch in ((0.1, 8), (0.2, 16))
    ]
    found = swept(*pairs, along="lr")
    assert found["among"].tolist() == ["mu=1", "mu=2", "mu=1", "mu=2"]
    assert found["at"].tolist() == ["0.1", "0.1", "0.2", "0.2"]


def test_settings_have_panels_of_their_own():
    places = [("cifar10", "dir0.1"), ("cifar10", "dir0.5"), ("digits", "dir0.1")]
    pairs = [grid(MUS, dataset=dataset, partition=partition) for dataset, partition in places]
    figure = plotted(sweep, swept(*pairs), along="mu")
    titles = [axes.get_title() for axes in figure.axes]
    alpha = "\N{GREEK SMALL LETTER ALPHA}"
    expected = [f"CIFAR-10, {alpha}=0.1", f"CIFAR-10, {alpha}=0.5", f"digits, {alpha}=0.1"]
    assert titles[:3] == expected
    assert [len(axes.lines) > 0 for axes in figure.axes] == [True, True, True, False]
    figure = plotted(sweep, swept(*pairs[:2], along=["mu", "lr"]), along=["mu", "lr"])
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["", "", "\N{GREEK SMALL LETTER MU}", "lr"]


def test_a_sweep_of_another_metric_says_so():
    runs, settings = grid(MUS)
    runs["loss"] = 2 * runs["accuracy"]
    sources = {"runs": runs, "settings": settings}
    found = sweep.draw(STUDY, "quick", along="mu", metric="loss", **sources)
    assert found["mean"].tolist() == pytest.approx([1.02, 1.22, 1.1])
    (axes,) = plotted(sweep, found, along="mu").axes
    assert axes.get_ylabel() == "test loss"
    assert sweep.caption(found).startswith("The mean test loss of the last 4 rounds: 2 seeds")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"along": "nu"}, "no field of these runs is called `nu`: did you mean mu"),
        ({}, "needs one of two options"),
        ({"along": "mu", "fields": {"mu": "mu"}}, "needs one of two options"),
        ({"along": "mu", "settings": None}, "needs the source `settings`"),
        ({"fields": {"mu": "mu"}}, "needs the source `mu`"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_in_one_sentence(options, message):
    given = {**both(grid(MUS)), **options}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(UsageError, match=message):
        sweep.draw(STUDY, "quick", **given)


def test_the_same_run_under_two_names_is_refused():
    with pytest.raises(UsageError, match=r"several runs of prox-d .* the same settings: leave all"):
        swept(grid(MUS | {("prox-d", 1): [50, 52]}))


# --- tuned -----------------------------------------------------------------------------------


def chosen(*pairs, **options) -> pd.DataFrame:
    return tuned.draw(study=STUDY, scale="quick", **both(*pairs), **options)


# The test accuracy is best at 0.1, the validation accuracy at 1: 72 against 70 and 60.
VALIDATION = {("prox-a", 0.01): [60, 60], ("prox-b", 0.1): [68, 72], ("prox-c", 1): [71, 73]}


def own(pair, validation: dict | None = None):
    """The same runs, whose clients' own models have the server's accuracy, and their validation."""
    runs, settings = pair
    runs["own_mean"] = runs["accuracy"]
    if validation:
        runs["validation_own_mean"] = runs["method"].map(validation) / 100
    return runs, settings


def test_own_models_are_chosen_by_their_own_validation_and_not_by_the_servers():
    """The server's validation accuracy is best with mu = 1, and that of own models with 0.01."""
    theirs = {"prox-a": 90, "prox-b": 80, "prox-c": 70}
    found = chosen(own(grid(MUS, validation=VALIDATION), theirs), metric="own_mean")
    row = found[["chosen", "mean", "deciding_score", "deciding_metric"]].iloc[0]
    assert row.tolist() == ["mu=0.01", 51, 90, "validation_own_mean"]
    words = "validation accuracy of clients' own models (mean over clients)"
    assert tuned.wide(found)[f"{words} (%)"].tolist() == ["90.00"]
    assert f"with the best mean {words}: 2 seeds" in tuned.caption(found)


def test_the_best_score_of_each_setting_is_marked_in_tuned():
    wide = tuned.wide(chosen(grid(MUS | {("moon", 1): [40, 40]}, validation={})))
    best, second = find_best(write_cells(wide), tuned.ranked, lowest=False)
    heads = [head for head in wide if best[head].any()]
    assert heads == ["test accuracy (%)"]
    assert second[heads[0]].sum() == best[heads[0]].sum() == 1


def test_a_loss_is_chosen_by_the_validation_loss():
    runs, settings = grid(MUS, validation=VALIDATION)
    runs["loss"], runs["validation_loss"] = runs["accuracy"], runs["accuracy"]
    found = tuned.draw(runs, settings, STUDY, "quick", metric="loss")
    assert found[["chosen", "deciding_metric"]].values.tolist() == [["mu=0.01", "validation_loss"]]
    assert tuned.wide(found)["validation loss"].tolist() == ["0.51"]


def test_tuned_on_test_data_says_so():
    found = chosen(grid(MUS, validation=VALIDATION), chosen_on="test")
    row = found[["chosen", "deciding_score", "chosen_on"]].iloc[0]
    assert row.tolist() == ["mu=0.1", 61, "test"]
    assert "were chosen on the test data" in tuned.caption(found)
    assert "validation accuracy (%)" not in tuned.wide(found)


def test_a_candidate_with_a_diverged_run_is_not_chosen():
    lost = {("prox-a", 0.01): [50, 52], ("prox-b", 0.1): [None, 90]}
    found = chosen(grid(lost, validation={}))
    assert found[["chosen", "candidates", "mean"]].values.tolist() == [["mu=0.01", 2, 51]]
    found = chosen(grid({("prox-a", 0.01): [None, 52], ("prox-b", 0.1): [None, 90]}, validation={}))
    assert found[["chosen", "diverged"]].values.tolist() == [["mu=0.01", 1]]
    assert tuned.wide(found).iloc[0].tolist()[-2:] == ["", "1/2 diverged"]


def test_the_first_of_equal_candidates_is_chosen():
    # as floating-point numbers 0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1
    given = {("prox-b", 0.1): [0.3, 0.2, 0.1], ("prox-a", 0.01): [0.1, 0.2, 0.3]}
    assert chosen(grid(given, validation={}))["chosen"].tolist() == ["mu=0.1"]


OTHER_SEEDS = grid({("prox-a", 1): [50, 51], ("prox-b", 2): [50]}, validation={})
TUNED = grid(MUS, validation={})
LOST = grid(MUS, validation={("prox-b", 0.1): [None, None]})
UNTUNED = {
    "no validation": (grid(MUS), {}, "by `validation_accuracy`, and these runs have none: set"),
    "no validation of own models": (
        own(grid(MUS, validation=VALIDATION)),
        {"metric": "own_mean"},
        "by `validation_own_mean`, and .* none: set `validation` .* with `validation_from: cli",
    ),
    "seeds": (OTHER_SEEDS, {}, "same seeds, but prox-b p has other seeds than prox-a p"),
    "chosen on": (TUNED, {"chosen_on": "tests"}, "no value of `chosen_on` is called `tests`: did"),
    "over": (TUNED, {"over": "lrr"}, "no field of these protocols .* `lrr`: did you"),
    "some without": (LOST, {}, "`validation_accuracy`, and the runs of prox-b have none: leave"),
}


@pytest.mark.parametrize(("pair", "options", "message"), UNTUNED.values(), ids=UNTUNED)
def test_what_cannot_be_tuned_is_refused_in_one_sentence(pair, options, message):
    with pytest.raises(UsageError, match=message):
        chosen(pair, **options)


def test_runs_without_their_settings_are_named():
    (runs, settings) = grid(MUS, validation={})
    with pytest.raises(UsageError, match=r"`settings` lacks the run prox-c cifar10 dir0.1 p 0"):
        tuned.draw(runs, settings[settings["method"] != "prox-c"], STUDY, "quick")


# --- clients ---------------------------------------------------------------------------------

ELEVEN = [k / 10 for k in range(11)]  # deciles of 0, 10, ..., 100 percent are 10, 20, ..., 90


def test_clients_by_hand():
    rows = pd.concat([
        made.client_rows(ELEVEN, [0.5] * 11),
        made.client_rows([0.9] * 11, [0.5] * 11, round=5),  # not the last round
        made.client_rows([k / 2 for k in ELEVEN], [0.7] * 11, seed=1),
        made.client_rows([0.8] * 11, [None] * 11, method="fedper"),
    ])  # fmt: skip
    rows.loc[(rows["client"] == 10) & (rows["seed"] == 0), "samples"] = 110
    found = clients.draw(made.read(rows), STUDY, "quick").set_index("method")
    first = found.loc["fedavg"]
    # seed 0: (450 * 10 + 110 * 100) / 210 weighted; seed 1: 25
    assert first["own_weighted"] == pytest.approx(((10 * 450 + 110 * 100) / 210 + 25) / 2, abs=1e-3)
    assert (first["own_mean"], first["own_worst"], first["own_best"]) == (37.5, 0, 75)
    # The variance of 0, 10, ..., 100 is 1000; that of their halves 250.
    assert first["own_spread"] == pytest.approx(0.75 * np.sqrt(1000), abs=1e-3)
    assert first["own_spread_std"] == pytest.approx(np.sqrt(1000 / 8), abs=1e-3)
    assert [first[f"own_decile{k}"] for k in range(1, 10)] == [7.5 * k for k in range(1, 10)]
    assert first["own_mean_std"] == pytest.approx(25 / np.sqrt(2), abs=1e-3)
    assert (first["server_mean"], first["seeds"], first["clients"]) == (60, 2, 11)
    assert np.isnan(found.loc["fedper", "server_mean"])
    assert found.loc["fedper", "own_decile5"] == 80
    shown = clients.wide(found.reset_index())
    assert shown.loc["FedAvg", ("own model", "mean")].tolist() == ["37.50 ± 17.68"]
    assert shown.loc["fedper", ("server's model", "mean")].tolist() == [""]


def test_clients_of_a_run_that_ended_early_have_no_numbers():
    rows = pd.concat([
        made.client_rows(ELEVEN, ELEVEN),
        made.client_rows(ELEVEN, ELEVEN, seed=1, round=5),
        made.client_rows(ELEVEN, ELEVEN, method="moon"),
    ])  # fmt: skip
    found = clients.draw(rows, STUDY, "quick").set_index("method")
    assert found["diverged"].to_dict() == {"fedavg": 1, "moon": 0}
    assert found["own_mean"].to_dict() == pytest.approx({"fedavg": np.nan, "moon": 50}, nan_ok=True)
    assert clients.wide(found.reset_index()).loc["FedAvg"].iloc[0, 0] == "1/2 diverged"
    assert "a run that diverged has no numbers" in clients.caption(found.reset_index())


# --- curves of a metric ----------------------------------------------------------------------


def test_curves_of_a_metric_skip_rounds_without_it():
    metrics = {"accuracy": {0: 0.1, 5: 0.4, 10: 0.5}, "own_mean": {0: 0.2, 10: 0.8}}
    runs = pd.concat([
        made.measured(metrics),
        made.measured(metrics | {"own_mean": {0: 0.2, 10: 0.6}}, seed=1),
    ])  # fmt: skip
    found = convergence.draw(runs, STUDY, "quick", metric="own_mean")
    assert found["round"].tolist() == [0, 10]
    assert found["mean"].tolist() == [20, 70]
    (axes,) = plotted(convergence, found).axes
    assert axes.get_ylabel() == "accuracy of clients' own\nmodels (mean over\nclients) (%)"
    assert convergence.caption(found).startswith("Accuracy of clients' own models (mean over")
