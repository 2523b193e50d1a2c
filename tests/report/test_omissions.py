"""What a comparison says without a part of its rule: `fedgrid.report.omissions`."""

import pandas as pd
import pytest

import made
from fedgrid.page.evidence import draw_omissions
from fedgrid.report import omissions
from fedgrid.runtime.names import NothingToDrawError

# By method, the accuracies of seeds 0 to 3 at the rounds 8 and 10, in percent.
ACCURACIES = {
    "fedavg": [(50, 50), (52, 52), (54, 54), (52, 52)],
    "moon": [(60, 60), (62, 62), (64.1, 64.1), (62, 62)],  # better by every rule
    "fedprox": [(40, 60), (42, 62), (44, 64), (42.1, 62.1)],  # better at its last evaluation
    "feddyn": [(51, 51), (53, 53), (53.5, 53.5), (51, 51)],  # better with one seed of two
    "fedlc": [(60, 60), (62, 62), (64, 64), (62, 62)],  # better, and its placebo, too
    "fedlc_random": [(61, 61), (63, 63), (65, 65), (63, 63)],
}
GIVEN = {"over": "lr", "placebos": {"fedlc": "fedlc_random"}, "tail": 4}


def made_sources(seeds=(0, 1, 2, 3), fedavg_rates=("0.1",)) -> dict[str, pd.DataFrame]:
    """Runs with these accuracies; FedAvg may have further learning rates, which are better."""
    runs, settings = [], []
    for method, of_seeds in ACCURACIES.items():
        rates = fedavg_rates if method == "fedavg" else ("0.1",)
        for (seed, rounds), rate in ((pair, r) for pair in enumerate(of_seeds) for r in rates):
            if seed in seeds:
                names = {"method": method, "seed": seed, "protocol": f"p-lr{rate}"}
                shift = 0.0 if rate == "0.1" else 30.0
                first, last = ((value + shift) / 100 for value in rounds)
                run = made.evaluations({0: 0.1, 8: first, 10: last}, **names)
                validated = run["accuracy"]
                runs.append(run.assign(validation_accuracy=validated, validation_from="test"))
                of_run = {"": {"lr": float(rate)}, method: {}}
                settings.append(made.recorded(of_run, **names))
    return {"runs": pd.concat(runs), "settings": pd.concat(settings)}


def drawn(seeds=(0, 1, 2, 3), fedavg_rates=("0.1",), **options) -> pd.DataFrame:
    sources = made_sources(seeds, fedavg_rates)
    return omissions.draw(**sources, study=made.STUDY, scale="quick", **GIVEN | options)


def better(table: pd.DataFrame) -> dict[str, set[str]]:
    """The methods that are better, by the part that is left out."""
    names = table["better_methods"].str.split(", ")
    return {part: {*of} - {""} for part, of in zip(table["left_out"], names, strict=True)}


def test_each_part_that_is_left_out_lets_in_what_it_is_for():
    found = better(drawn())
    assert found["nothing"] == {"MOON"}
    assert found["all evaluations but the last"] == {"MOON", "FedProx"}
    assert found["the placebos"] == {"MOON", "fedlc"}
    assert "feddyn" in found["all seeds but 0"]
    assert "feddyn" not in found["all seeds but 3"]


def test_the_page_of_verdicts_has_the_table_if_its_runs_have_several_seeds():
    entry = {"from": {"runs": "runs/main", "settings": "settings/main"}, "with": GIVEN}
    study = made.STUDY | {"products": {"omissions": entry}}
    everything = made_sources()
    table = draw_omissions("fedsls", "quick", study, lambda _: everything)["omissions"]
    assert (table["better"].tolist(), {*table["others"]}) == (drawn()["better"].tolist(), {4})
    assert {*table["baseline"]} == {"FedAvg"}
    for there in ({}, {"runs": everything["runs"]}, made_sources(seeds=(0,))):
        assert draw_omissions("fedsls", "quick", study, lambda _, there=there: there) == {}
    assert draw_omissions("fedsls", "quick", made.STUDY, lambda _: {}) == {}


def test_rows_say_what_comes_and_goes():
    row = drawn().set_index("left_out").loc["the placebos"]
    assert (row["better"], row["more"], row["fewer"]) == (2, "fedlc", "")


def test_tries_that_only_the_baseline_has_count_by_the_whole_rule_only():
    found = better(drawn(fedavg_rates=("0.1", "0.4")))
    assert found["nothing"] == set()
    assert found["tries that others do not have"] == {"MOON"}
    assert "tries that others do not have" not in better(drawn())


def test_a_cell_with_one_seed_is_not_compared():
    with pytest.raises(NothingToDrawError, match="no cell of these runs has several seeds"):
        drawn(seeds=(0,))
