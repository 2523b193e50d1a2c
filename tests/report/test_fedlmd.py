"""Every table and figure of FedLMD, and what they are made with: `fedgrid.report.fedlmd`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis import measures, verdicts
from fedgrid.analysis.published import list_published_cells
from fedgrid.report import _product, comparison, sweep
from made import STUDIES
from made_products import KINDS

STUDY = STUDIES["fedlmd"]
BEST = {"metric": "best", "tail": 1}


def module(name: str):
    return _product.load_product("fedlmd", name, STUDY["products"].get(name, {}))


def curve(percents: list[float], method: str = "fedavg", **names) -> pd.DataFrame:
    """A run with these accuracies after rounds 1, 2, ..., and 10 percent before."""
    by_round = {r: p / 100 for r, p in enumerate([10, *percents])}
    about = {"rounds": len(percents)} | BEST | names
    return made.evaluations(by_round, method=method, **about)


def compared(*runs: pd.DataFrame) -> pd.DataFrame:
    return comparison.draw(pd.concat(runs), STUDY, "quick").set_index("method")


# --- best rounds and speed-ups ---------------------------------------------------------------


def test_the_last_moving_average_stands_beside_the_best_with_its_difference_to_the_published():
    names = {"dataset": "cifar10", "partition": "dir0.05", "protocol": "fedlmd"}
    found = compared(curve([20, 60, 40], **names), curve([20, 70, 10], seed=1, **names))
    row = found.loc["fedavg"]
    # 35.44, as above, and 0.6 * (0.6 * 14 + 0.4 * 70) + 0.4 * 10 = 25.84
    assert row["smoothed"] == pytest.approx((35.44 + 25.84) / 2)
    assert row["smoothed_difference"] == pytest.approx(row["smoothed"] - 33.02)
    assert row["difference"] == pytest.approx(65 - 33.02)
    cells = comparison.wide(found.reset_index())
    assert cells.loc[("FedAvg", "smoothed")].tolist() == ["30.64 (-2.38)"]
    about = "its last moving average (and the difference to the published value)"
    assert about in comparison.caption(found.reset_index())


def test_the_claims_of_the_study_are_judged_by_the_best_and_by_the_last_average():
    for name in ("claims", "contrasts"):
        table = product_of_claims("quick", name)
        assert {"verdict_smoothed", "changes"} <= {*table}
        assert not {"verdict_best", "verdict_tail"} & {*table}  # best is the protocols' own


def test_a_speed_up_is_a_ratio_of_first_rounds():
    # FedAvg is best, 50 %, after round 4; the other has that after round 2, a third one never.
    runs = curve([20, 30, 30, 50, 50, 40]), curve([20, 55, 20, 20, 60, 20], "fedlmd")
    found = compared(*runs, curve([20, 20, 20, 20, 20, 49], "fedntd"))
    assert found["speedup"].to_dict() == {"fedavg": 1, "fedlmd": 2, "fedntd": 1}


def test_a_speed_up_is_the_mean_over_seeds():
    runs = [curve([20, 50], seed=s) for s in range(2)]
    runs += [curve([50, 20], "fedlmd"), curve([20, 50], "fedlmd", seed=1)]
    assert compared(*runs)["speedup"]["fedlmd"] == 1.5


def test_claims_speak_of_the_comparisons_of_their_sentences():
    printed = measures.measure_printed(STUDY)
    of = {c["says"]: len(verdicts.compute_differences(c, printed)) for c in STUDY["claims"]}
    assert of["From Tab. 1, we can find that FedLMD has significant superiority"] == 3
    # 8 others in 14 settings; of speed-ups 7, since FedAvg has none
    assert of["FedLMD outperforms the previous results in the vast most of cases"] == 112
    assert of["FedLMD clearly converges faster than the other methods"] == 98


def test_a_claim_over_a_method_that_failed_in_print_has_no_numbers_to_name():
    claim = {"measure": "speed-up", "method": "fedlmd", "over": "fednova", "least": 0}
    found = verdicts.judge_printed(
        claim | {"partition": "dir0.05"}, measures.measure_printed(STUDY), STUDY
    )
    assert found["published"] == "1 of 1 comparison: none has two numbers"
    assert found["published_verdict"] == "consistent"


def test_claims_of_speed_ups_are_decided_by_the_runs():
    runs = pd.concat([
        *(curve([20, 50, 50, 60], seed=s) for s in (0, 1)),
        *(curve([60, 50, 50, 50], "fedlmd", seed=s) for s in (0, 1)),
        *(curve([20, 60, 50, 50], "fedntd", seed=s) for s in (0, 1)),
        *(curve([20], "scaffold", seed=s, diverged=True) for s in (0, 1)),
    ])  # fmt: skip
    claim = {"measure": "speed-up", "method": "fedlmd", "over": ["fedntd", "scaffold"], "least": 0}
    found = verdicts.compare_claim(claim, measures.measure_speedups(runs)).set_index("over")
    assert found["difference"].to_dict() == {"fedntd": 4 - 2, "scaffold": np.inf}
    words = {"fedntd": verdicts.HOLDS, "scaffold": verdicts.UNDECIDED}  # a lost run is no win
    assert found["verdict"].to_dict() == words


def test_the_logarithm_of_a_speed_up_tells_who_is_later():
    runs = pd.concat([
        curve([20, 50, 40, 30]),
        curve([50, 50, 40, 30], "fedlmd"),
        curve([20, 30, 40, 50], "fedntd"),
        curve([20, 30, 40, 40], "fedrs"),  # never as good: as if in round 4, the last
        curve([20], "scaffold", diverged=True),
    ])  # fmt: skip
    found = measures.measure_log_speedups(runs).set_index("method")["value"]
    expected = {"fedavg": 1, "fedlmd": 2, "fedntd": 0.5, "fedrs": 0.5, "scaffold": 0}
    with np.errstate(divide="ignore"):
        logs = np.log([*expected.values()])
    assert found[[*expected]].tolist() == pytest.approx(logs.tolist())


def test_a_claim_of_a_logarithmic_speed_up_can_fail():
    later = [[20, 50, 40, 40], [20, 30, 50, 40], [20, 50, 40, 40]]
    runs = pd.concat(
        curve(of, name, seed=seed)
        for seed, second in enumerate(later)
        for name, of in {"fedavg": [50, 40, 40, 40], "fedlmd": second}.items()
    )
    claim = {"method": "fedlmd", "over": "fedavg", "least": 0}
    found = {
        name: verdicts.compare_claim({"measure": name, **claim}, measure(runs))["verdict"].item()
        for name, measure in {
            "speed-up": measures.measure_speedups,
            "log speed-up": measures.measure_log_speedups,
        }.items()
    }
    assert found == {"speed-up": verdicts.UNDECIDED, "log speed-up": verdicts.FAILS}


def test_accuracies_that_move_less_are_steadier():
    runs = pd.concat([
        curve([20, 50, 40, 60]),
        curve([20, 30, 40, 45], "fedlmd"),
        curve([20], "scaffold", diverged=True),
    ])  # fmt: skip
    found = measures.measure_steadiness(runs).set_index("method")["value"].to_dict()
    expected = {"fedavg": -(10 + 30 + 10 + 20) / 4, "fedlmd": -35 / 4, "scaffold": -np.inf}
    assert found == pytest.approx(expected)


def test_claims_of_no_run_at_the_quick_scale_are_those_of_the_papers_setting():
    found = product_of_claims("quick").set_index("says")["ours"]
    without = found[found == "no runs at this scale"].index
    assert [*without] == [s for s in found.index if "CIFAR-10 (alpha = 0.05)" in s or "E = 10" in s]


@pytest.mark.slow
def test_every_claim_has_runs_at_the_papers_scale():
    ours = product_of_claims("paper").set_index("says")["ours"]
    found = ours.str.extract(r"(?:of )?(\d+) (?:holds?|do(?:es)? not hold|(?:is|are) undecided)")[0]
    assert found.notna().all()
    expected = {"[Fig. 6] FedLMD exhibited greater": 8 * 3, "[Fig. 7, local epochs]": 6}
    expected |= {"When E = 10": 3, "the optimal accuracy of each method": 4 * 4}
    expected |= {"earlier turn switching": 4, "higher beta": 3, "temperature tau": 5}
    expected |= {"these network architectures": 4 * 3}
    for words, number in expected.items():
        assert found[found.index.str.contains(words, regex=False)].tolist() == [str(number)]


def product_of_claims(scale: str, name: str = "claims") -> pd.DataFrame:
    """A row per claim, of made-up runs of its whole grid."""
    found = {}
    for key, text in STUDY["products"][name]["from"].items():
        kind, _, grid = text.partition("/")
        runs = made.GRID.runs("fedlmd", scale, grid)
        found[key] = made.read(made.collected(kind, runs, KINDS))
    found = {key: of.assign(**BEST) if "tail" in of else of for key, of in found.items()}
    return module(name).draw(STUDY, scale, **found)


def test_a_method_stands_beside_what_is_published():
    names = {"partition": "dir0.05", "protocol": "fedlmd"}
    found = compared(*(curve([20, 50], m, **names) for m in ("fedavg", "fedlmd")))
    assert found["published"].to_dict() == {"fedavg": 33.02, "fedlmd": 50.45}
    assert found["difference"]["fedlmd"] == pytest.approx(50 - 50.45)
    cells = comparison.wide(found.reset_index())
    assert cells.loc[("FedLMD", "published")].tolist() == ["50.45 (5.26x)"]
    assert cells.loc[("FedLMD", "ours")].tolist() == ["50.00 (1.00x)"]
    assert cells.columns.tolist() == [("CIFAR-10", "alpha=0.05")]


def test_a_protocol_of_no_printed_column_has_nothing_published_beside_it():
    protocols = ("fedlmd", "fedlmd-e10")
    found = compared(*(curve([20, 50], partition="dir0.05", protocol=p) for p in protocols))
    assert found.set_index("protocol")["published"].to_dict() == pytest.approx(
        {"fedlmd-e10": np.nan, "fedlmd": 33.02}, nan_ok=True
    )


def test_printed_speed_ups_are_two_hundred_rounds_over_a_number_of_rounds():
    cells = list_published_cells(STUDY)
    printed = pd.to_numeric(cells["published_speedup"], errors="coerce")
    over = {
        rounds: {round(rounds / n, 2) for n in range(1, rounds + 1)} for rounds in range(1, 201)
    }
    assert set(printed.dropna()) <= over[200]
    default = printed[(cells["dataset"] == "cifar10") & (cells["partition"] == "dir0.05")].dropna()
    assert [best for best, possible in over.items() if set(default) <= possible] == [200]


# --- sweeps ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        # a series is the file that has the hyper-parameter, or of a protocol's field the method
        (["fedlmd", "fedlmd", "fedlmd_tf"], {("fedlmd", 2.0): 50, ("fedlmd", 0.5): 60,
                                             ("fedlmd_tf", 1.0): 70}),
        ([np.nan] * 3, {("a", 2.0): 50, ("b", 0.5): 60, ("c", 1.0): 70}),
    ],
)  # fmt: skip
def test_a_sweep_is_along_a_field_of_a_method_or_of_the_protocol(of, expected):
    methods = {"a": ("2.0", 50), "b": ("0.5", 60), "c": ("1.0", 70)}
    runs = pd.concat(curve([percent], name) for name, (_, percent) in methods.items())
    rows = [made.NAMES | {"method": name, "field": "beta", "value": value} for name, (value, _)
            in methods.items()]  # fmt: skip
    found = sweep.draw_field("beta", runs, pd.DataFrame(rows).assign(of=of))
    assert found["at"].is_monotonic_increasing
    assert found.set_index(["series", "at"])["mean"].to_dict() == expected


# --- labels and predictions ------------------------------------------------------------------


def test_the_map_of_a_lost_run_ends_early():
    about = made.NAMES | {"clients": 20, "participation": 0.2, "sampler": "round", "rounds": 4}
    rounds = {"fedavg": [10, 10], "fednova": [0]}  # predictions; the last of a lost model: none
    said = pd.DataFrame([
        made.SUMMED | about | {"method": name, "round": at, "class": 0, "predicted": predicted}
        for name, of in rounds.items()
        for at, predicted in enumerate(of, start=1)
    ])  # fmt: skip
    counts = pd.DataFrame({"client": range(20), "class": 0, "samples": 1}).assign(**made.NAMES)
    table = module("figure2").draw(said, counts, STUDY, "quick")
    shares = table.groupby("what")["share"].apply(list).to_dict()
    assert shares == {"labels": [1, 1], "fedavg": [1, 1], "fednova": [0]}
    assert "A map ends early" in module("figure2").caption(table)
    whole = table[table["what"] != "fednova"]
    assert "ends early" not in module("figure2").caption(whole)
