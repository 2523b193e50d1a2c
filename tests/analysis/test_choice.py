"""The best of runs that differ in some fields, by hand: the option `best` of products."""

import json

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis import choice
from fedgrid.commands import draw
from fedgrid.report import _product, claims, contrasts
from fedgrid.runtime.names import UsageError
from fedgrid.study import products
from made import STUDIES

STUDY = {"labels": {"fedavg": "FedAvg"}}
BEST = {"over": "lr", "by": "own_mean"}


def grid(percents: dict[tuple[str, float], list], also: dict | None = None, **names) -> dict:
    """Runs and settings by (method, lr): per seed the percentages of the server's model and own.

    None instead of a pair is a run that diverged, and None in a pair is no such model.
    """
    runs, settings = [], []
    for (method, lr), values in percents.items():
        for seed, pair in enumerate(values):
            about = {"method": method, "seed": seed, "protocol": f"p-lr{lr:g}"} | names
            server, own = pair or (50, 50)
            found = made.run(server or 0, **about) if pair else made.lost(**about)
            found["own_mean"] = (
                found["accuracy"] - server / 100 + own / 100 if server else own / 100
            )
            runs.append(found if server else found.assign(accuracy=np.nan))
            fields = {"": {"lr": lr, "rounds": 10} | (also or {}), method: {}}
            settings.append(made.recorded(fields, **about))
    return {"runs": made.read(pd.concat(runs)), "settings": made.read(pd.concat(settings))}


def joined(*grids: dict) -> dict:
    return {name: pd.concat([one[name] for one in grids]) for name in grids[0]}


# The server's model is best with 0.1, the clients' own with 0.3; `moon` has no server's model.
TWO = {
    ("fedavg", 0.1): [(60, 40), (62, 42)],
    ("fedavg", 0.3): [(50, 70), (52, 72)],
    ("moon", 0.1): [(None, 80), (None, 80)],
    ("moon", 0.3): [(None, 20), (None, 20)],
}


def best(given: dict, **options) -> pd.DataFrame:
    return choice.choose_best(**given, **(BEST | options))


def protocols(found: pd.DataFrame) -> dict[str, str]:
    return found.set_index("method")["protocol"].to_dict()


def test_the_best_protocol_of_each_method_is_chosen_by_the_metric():
    found = best(grid(TWO))
    # the setting is the name without the tuned rate
    assert found[["method", "protocol", "setting", "chosen", "chosen_by"]].values.tolist() == [
        ["fedavg", "p-lr0.3", "p", "lr=0.3", "own_mean"],
        ["moon", "p-lr0.1", "p", "lr=0.1", "own_mean"],
    ]


@pytest.mark.parametrize(
    ("name", "values", "bare"),
    [
        ("p-lr0.1", {"lr": "0.1"}, "p"),
        ("p-lr0.1-batch32", {"lr": "0.1"}, "p-batch32"),
        ("p-lr0.1-batch32", {"lr": "0.1", "batch": "32"}, "p"),
        ("p-lr1e-05-momentum0.9", {"lr": "1e-05"}, "p-momentum0.9"),
        ("p-lr0.15", {"lr": "0.1"}, "p-lr0.15"),  # another value
        ("slow", {"lr": "0.1"}, "slow"),  # a name of its own
    ],
)
def test_a_setting_has_the_name_of_its_protocol_without_the_tuned_values(name, values, bare):
    assert choice.leave_out(name, {f"protocol.{n}": text for n, text in values.items()}) == bare


def test_protocols_that_differ_for_one_method_only_are_two_settings():
    """By `by_method`: `q` drops stragglers of FedAvg, and is `p` for all other methods."""
    pair = [(60, 40), (62, 42)]
    found = best(
        joined(
            grid({("moon", 0.1): pair}, also={"late": "taken"}),
            grid({("moon", 0.1): pair}, also={"late": "taken"}, protocol="q-lr0.1"),
            grid({("fedavg", 0.3): pair}, also={"late": "dropped"}, protocol="q-lr0.3"),
        )
    )
    assert {*zip(found["method"], found["protocol"], found["setting"], strict=True)} == {
        ("moon", "p-lr0.1", "p"),
        ("moon", "q-lr0.1", "q"),
        ("fedavg", "q-lr0.3", "q"),
    }


def test_a_method_without_the_metric_is_left_out():
    assert protocols(best(grid(TWO), by="accuracy")) == {"fedavg": "p-lr0.1"}


def test_the_lowest_loss_is_the_best():
    given = grid(TWO)
    given["runs"]["loss"] = given["runs"]["own_mean"]
    assert protocols(best(given, by="loss")) == {"fedavg": "p-lr0.1", "moon": "p-lr0.3"}


def tuned_alike() -> dict:
    """Two values of mu with two rates; on validation data mu = 1 with lr = 0.1 is best."""
    scores = {("fedprox-mu0.1", 0.1): 40, ("fedprox-mu1", 0.1): 70, ("fedprox-mu0.1", 0.3): 60}
    parts = [grid({("fedavg", lr): [(50, 55)] * 2 for lr in (0.1, 0.3)})]
    for (method, lr), own in (scores | {("fedprox-mu1", 0.3): 65}).items():
        part = grid({(method, lr): [(own - 10, own)] * 2})
        mu = float(method.removeprefix("fedprox-mu"))
        facts = {"": {"lr": lr, "rounds": 10}, "fedprox": {"mu": mu}}
        names = {"method": method, "protocol": f"p-lr{lr:g}"}
        recorded = [made.recorded(facts, **names, seed=seed) for seed in (0, 1)]
        parts.append(part | {"settings": made.read(pd.concat(recorded))})
    return joined(*parts)


def test_of_a_family_the_best_method_is_chosen_with_its_protocol():
    given = tuned_alike()
    found = best(given, methods=True)
    assert found[["family", "method", "chosen"]].values.tolist() == [
        ["fedavg", "fedavg", "lr=0.1"],
        ["fedprox", "fedprox-mu1", "mu=1, lr=0.1"],
    ]
    kept = choice.keep_chosen(given["runs"], found)
    assert kept.groupby("method")["seed"].nunique().to_dict() == {"fedavg": 2, "fedprox": 2}


def test_a_single_value_of_a_method_has_the_name_that_claims_have():
    given = tuned_alike()
    part = {name: table[table["method"] != "fedprox-mu1"] for name, table in given.items()}
    named = choice.name_as_chosen(part["runs"], part["settings"], BEST | {"methods": True})
    assert [*named["method"].unique()] == ["fedavg", "fedprox"]
    assert [*named["protocol"].unique()] == ["p"]
    assert made.GRID.family("fedprox-mu0.1") == "fedprox"
    assert best(part, methods=True)["family"].tolist() == ["fedavg", "fedprox"]


def test_hyper_parameters_alone_are_chosen_in_each_protocol():
    found = best(tuned_alike(), over=None, methods=True)
    chosen = found[found["family"] == "fedprox"].set_index("setting")["method"]
    assert chosen.to_dict() == {"p-lr0.1": "fedprox-mu1", "p-lr0.3": "fedprox-mu1"}


def test_partitions_and_other_protocols_are_chosen_apart():
    other = grid({("fedavg", 0.1): [(60, 90)] * 2, ("fedavg", 0.3): [(50, 70)] * 2}, partition="x")
    more = grid({("fedavg", 0.1): [(60, 95)] * 2}, {"rounds": 20}, protocol="long")
    found = best(joined(grid(TWO), other, more))
    assert found[["method", "partition", "setting", "protocol"]].values.tolist() == [
        ["fedavg", "dir0.1", "p", "p-lr0.3"],
        ["moon", "dir0.1", "p", "p-lr0.1"],
        ["fedavg", "x", "p", "p-lr0.1"],
        ["fedavg", "dir0.1", "long", "long"],
    ]


def test_the_rows_of_the_best_runs_have_the_name_of_their_setting():
    given = grid(TWO)
    kept = choice.keep_chosen(given["runs"], best(given))
    assert set(kept["protocol"]) == {"p"}
    assert kept.groupby("method")["own_mean"].max().to_dict() == {"fedavg": 1.19, "moon": 0.8}
    assert set(kept.loc[kept["method"] == "fedavg", "chosen"]) == {"lr=0.3"}
    settings = choice.keep_chosen(given["settings"], best(given))
    assert settings.loc[settings["field"] == "lr", "value"].tolist() == [0.3] * 2 + [0.1] * 2


def test_the_methods_stay_in_the_order_of_the_grid():
    given = grid(TWO)
    runs = given["runs"].sort_values("protocol", kind="stable")
    kept = choice.keep_chosen(runs, choice.choose_best(runs, given["settings"], "lr", "own_mean"))
    assert [*kept["method"].unique()] == ["fedavg", "moon"]  # although fedavg's rows came later


def test_a_protocol_with_a_diverged_run_is_chosen_only_if_all_have_one():
    lost = {("fedavg", 0.1): [(60, 40), (62, 42)], ("fedavg", 0.3): [None, (99, 99)]}
    assert protocols(best(grid(lost))) == {"fedavg": "p-lr0.1"}
    all_lost = {("fedavg", 0.3): [None, (99, 99)], ("fedavg", 0.1): [(60, 40), None]}
    assert protocols(best(grid(all_lost))) == {"fedavg": "p-lr0.3"}  # the first


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (TWO, {"by": "own_maen"}, "no metric of these runs is called `own_maen`: did you mean"),
        (TWO, {"over": "lrr"}, "no field of these protocols is called `lrr`: did you mean lr"),
        (
            {("fedavg", 0.1): [(60, 40)] * 2, ("fedavg", 0.3): [(50, 70)]},
            {},
            "the same seeds, but fedavg p-lr0.3 has other seeds than fedavg p-lr0.1",
        ),
        (
            {("fedavg", 0.1): [(60, 40)], ("fedavg", 0.3): [(None, 70)]},
            {"by": "accuracy"},
            "by `accuracy`, and the runs of fedavg have none: let all protocols",
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused_in_one_sentence(given, options, message):
    with pytest.raises(UsageError, match=message):
        best(grid(given), **options)


# --- products --------------------------------------------------------------------------------


def product(name: str, **options):
    return _product.load_product("mine", name, {"with": options})


def drawn(name: str, given: dict, **options) -> tuple:
    found = product(name, **options)
    return found, _product.draw_table(found, given, STUDY, "quick")


def test_a_product_is_drawn_of_the_best_runs_and_says_so():
    found, table = drawn("convergence", grid(TWO), metric="own_mean", best=BEST)
    assert set(table["protocol"]) == {"p"}
    assert table[["method", "chosen", "chosen_by"]].drop_duplicates().values.tolist() == [
        ["fedavg", "lr=0.3", "own_mean"],
        ["moon", "lr=0.1", "own_mean"],
    ]
    said = found.caption(made.read(table))
    assert said.endswith(
        "Of each method, the best lr by accuracy of clients' own models (mean over clients); "
        "chosen on the test data, so it is too good."
    )


def test_a_choice_on_validation_data_is_not_too_good():
    said = choice.describe_choice({"over": ["lr", "local"], "by": "validation_accuracy"})
    assert said == "Of each method, the best lr and local by validation accuracy."
    said = choice.describe_choice({"over": "lr", "by": "validation_own_mean"})
    assert said.endswith("by validation accuracy of clients' own models (mean over clients).")


@pytest.mark.parametrize(
    ("metric", "by", "right"),
    [
        ("own_mean", "validation_accuracy", "validation_own_mean"),
        ("own_worst", "validation_loss", "validation_own_mean"),
        ("accuracy", "validation_own_mean", "validation_accuracy"),
        (["accuracy", "own_mean"], "validation_accuracy", "validation_own_mean"),
        ("averaged_accuracy", "validation_accuracy", "validation_averaged_accuracy"),
        ("averaged_loss", "validation_loss", "validation_averaged_loss"),
    ],
)
def test_models_are_not_chosen_by_the_validation_of_others(metric, by, right):
    with pytest.raises(UsageError, match=f"by `{by}`, .* of other models: write `by: {right}`"):
        product("table", metric=metric, best={"over": "lr", "by": by})
    product("table", metric="own_mean", best={"over": "lr", "by": "validation_own_mean"})


def test_every_study_chooses_by_what_it_shows_and_only_if_its_entry_says_so():
    for study, about in STUDIES.items():
        for name, entry in about["products"].items():
            loaded = _product.load_product(study, name, entry)
            assert loaded.best is None or "best" in entry["with"]


def test_a_table_says_what_was_chosen_for_each_cell():
    """Although it has no column of protocols; methods have different rates."""
    found, table = drawn("table", grid(TWO), metric="own_mean", best=BEST)
    assert table[["method", "chosen", "mean"]].values.tolist() == [
        ["fedavg", "lr=0.3", 71],
        ["moon", "lr=0.1", 80],
    ]
    cells, chosen = (of(made.read(table)).iloc[:, 0].tolist() for of in (found.wide, found.below))
    assert (cells, chosen) == (["71.00 ± 1.41", "80.00 ± 0.00"], ["lr=0.3", "lr=0.1"])


def test_what_was_chosen_is_left_out_where_a_row_has_several():
    kept = pd.DataFrame({"method": ["a", "a"], "protocol": ["p", "q"]})
    kept = kept.assign(chosen=["lr=1", "lr=2"], chosen_by="accuracy")
    table = pd.DataFrame({"method": ["a"], "mean": [1.0]})
    assert [*choice.add_choice(table, kept)] == ["method", "mean"]


def test_the_metric_of_a_product_is_the_one_to_choose_by():
    _, table = drawn("convergence", grid(TWO), metric="own_mean", best={"over": "lr"})
    assert set(table["chosen_by"]) == {"own_mean"}
    _, table = drawn("convergence", grid(TWO), best={"over": "lr"})
    assert table[["method", "chosen"]].drop_duplicates().values.tolist() == [["fedavg", "lr=0.1"]]


def test_settings_are_those_of_the_best_runs():
    options = {"rows": "method", "columns": "lr", "metric": "own_mean", "best": BEST}
    _, table = drawn("table", grid(TWO), **options)
    assert table[["method", "lr", "mean"]].values.tolist() == [
        ["fedavg", "0.3", 71],
        ["moon", "0.1", 80],
    ]


def test_a_product_without_settings_of_its_own_reads_them_for_the_choice():
    found = product("convergence", best=BEST)
    assert found.needed == {"runs", "settings"}
    assert found.possible == {"runs", "settings", "metric"}
    assert product("convergence").possible == {"runs", "metric"}
    assert product("sweep", best=BEST, along="lr").needed == {"runs", "settings"}


def test_what_runs_share_is_not_chosen():
    counts = made.counts(made.NAMES | {"protocol": "p-lr0.3"})
    kept = {}
    shared = product("convergence", best=BEST)
    shared.draw = lambda runs, partition, study, scale: kept.setdefault("table", partition)
    _product.draw_table(shared, grid(TWO) | {"partition": counts}, STUDY, "quick")
    pd.testing.assert_frame_equal(kept["table"], counts)


def entry(**best) -> dict:
    sources = {"runs": "runs/main", "settings": "settings/main"}
    return {"from": sources, "formats": ["csv"], "with": {"best": best}}


def check(about: dict, name: str = "convergence") -> None:
    products.check_product("mine", name, about)


def test_an_entry_may_ask_for_the_best_runs():
    check(entry(over="lr"))
    check(entry(over=["lr", "local"], by="own_mean"))
    check(entry(over="lr"), "claims")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (entry(), "does not say in which fields the runs differ: write `with: {best: {over: lr"),
        (entry(by="accuracy"), "does not say in which fields"),
        (entry(over="lrr"), r"no field of a protocol in `best` of .* `lrr`: did you mean lr"),
        (entry(over="lr", on="accuracy"), "no key of `best` in .* is called `on`"),
        (entry(over="lr", by=["accuracy"]), "`by` in `best` is not text"),
        (entry(over="lr") | {"with": {"best": "lr"}}, "does not say in which fields"),
        (
            entry(over="lr") | {"from": {"runs": "runs/main"}},
            "`best` reads the source `settings`: name it under `from`",
        ),
    ],
)
def test_a_wrong_entry_is_refused_in_one_sentence(about, message):
    with pytest.raises(UsageError, match=message):
        check(about)


def test_the_command_draws_the_best_runs(tmp_path):
    for name, table in grid(TWO).items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    given = [f"{name}={tmp_path}/{name}.csv" for name in ("runs", "settings")]
    about = json.dumps({"with": {"metric": "own_mean", "best": BEST}})
    wanted = ["convergence", "--study", "fedsls", "--entry", about, "--out", f"{tmp_path}/a.csv"]
    draw.main([*wanted, "--sources", *given])
    assert set(pd.read_csv(tmp_path / "a.csv")["chosen"]) == {"lr=0.3", "lr=0.1"}
    with pytest.raises(UsageError, match="--sources lacks settings"):
        draw.main([*wanted, "--sources", given[0]])


# --- claims ----------------------------------------------------------------------------------


SAID = {"says": "x", "section": "1", "method": "fedavg", "least": 0}


def judged(product, *given: dict, best: dict | None = None, **sources) -> pd.DataFrame:
    of_fedavg = {key: values for key, values in TWO.items() if key[0] == "fedavg"}
    study = {"claims": [SAID | one for one in given]}
    return product.draw(study, "quick", **(grid(of_fedavg) | sources), best=best)


def test_each_measure_of_a_claim_is_of_the_runs_that_are_best_by_its_own_metric():
    given = {"measure": "accuracy"}, {"measure": "personal accuracy"}
    found = judged(contrasts, *given, best={"over": "lr"})
    assert found[["measure", "protocol", "difference"]].values.tolist() == [
        ["accuracy", "p", 61],
        ["personal accuracy", "p", 71],
    ]
    found = judged(contrasts, *given, best=BEST)  # one metric for all
    assert found["difference"].tolist() == [51, 71]
    found = judged(contrasts, given[1])
    assert found.set_index("protocol")["difference"].to_dict() == {"p-lr0.1": 41, "p-lr0.3": 71}


@pytest.mark.parametrize("file", [claims, contrasts])
def test_claims_say_how_their_runs_were_chosen(file):
    table, name = judged(file, {"measure": "accuracy"}, best={"over": "lr"}), file.__name__
    of_best, of_all = (
        _product.load_product("fedsls", name.rpartition(".")[2], {"with": options}).caption(table)
        for options in ({"best": {"over": "lr"}}, {})
    )
    assert "Of each method, the best lr by each number itself; chosen on" in of_best
    assert "best lr" not in of_all


def test_claims_without_the_settings_of_their_runs_are_refused():
    with pytest.raises(UsageError, match="`best` reads runs and their fields: name"):
        judged(claims, {}, best={"over": "lr"}, settings=None)
