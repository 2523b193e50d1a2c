"""The scale `small`: real data, the papers' clients and local work, a small network."""

import pytest

from fedgrid.study.jobs import run_content
from made import GRID, STUDIES

SMALL = [name for name, study in STUDIES.items() if "small" in study["scales"]]

# What stays the paper's. The studies say which protocol is the paper's, and which is the small one.
PAPER = {
    "fedsls-small": "fedsls",
    "normalization-small": "normalization",
    "fedlmd-small": "fedlmd",
    "privatization-small": "privatization-fecifar",
    "privatization-small-speakers": "privatization-shakespeare-code",
}
KEPT = ("recipe", "sampler", "local", "local_unit", "batch", "most_steps", "augment", "client_test")
KEPT += ("client_test_from", "evaluate_clients", "optimiser", "metric", "clients", "participation")
# What is not: a fifth of the clients takes part, and the text at hand has fewer speakers.
OTHER = {
    "normalization-small": {"participation": 0.2},
    "privatization-small-speakers": {"clients": 256},
}
# Endings of the names of placebos.
PLACEBOS = ("+swapped", "+random", "+forgets", "+resets", "_random")


@pytest.mark.parametrize("small", PAPER)
def test_clients_and_local_work_are_the_papers(small):
    ours, theirs = GRID.protocol(small), GRID.protocol(PAPER[small])
    wanted = {field: theirs[field] for field in KEPT} | OTHER.get(small, {})
    assert {field: ours[field] for field in KEPT} == wanted
    assert ours["rounds"] < theirs["rounds"]


def test_on_a_gpu_all_but_initial_weights_and_rounds_is_the_papers():
    ours, theirs = GRID.protocol("fedsls-gpu"), GRID.protocol("fedsls")
    assert {field for field in theirs if ours[field] != theirs[field]} == {"weights", "rounds"}


@pytest.mark.parametrize("scale", STUDIES["privatization"]["scales"])
def test_automatic_methods_are_there_with_two_steps_a_batch_and_with_one(scale):
    runs = [GRID.resolve(run) for run in GRID.runs("privatization", scale, "figure10")]
    twice = {
        (file, options["shared_step"])
        for run in runs
        for file, options in run["method"].items()
        if file.startswith("auto")
    }
    assert twice == {(f"auto{end}", step) for end in ("cs", "sa", "hs") for step in (True, False)}


@pytest.mark.parametrize("study", [name for name in SMALL if name != "baselines"])
def test_a_placebo_has_three_seeds_of_its_method(study):
    found: dict[tuple, set[int]] = {}
    for run in GRID.runs(study, "small", "everything"):
        key = tuple(run[axis] for axis in ("protocol", "dataset", "partition", "method"))
        found.setdefault(key, set()).add(run["seed"])
    for (*place, method), seeds in found.items():
        for ending in (one for one in PLACEBOS if one in method):
            of_method = found.get((*place, method.replace(ending, "")), set())
            assert len(of_method & seeds) >= 3, method


@pytest.mark.parametrize("study", SMALL)
def test_everything_has_every_run(study):
    grids = STUDIES[study]["scales"]["small"]["grids"]
    runs = {
        name: {tuple(run.values()) for run in GRID.runs(study, "small", name)} for name in grids
    }
    assert set().union(*runs.values()) == runs["everything"]


@pytest.mark.parametrize("study", SMALL)
def test_no_method_has_a_rate_of_its_own_but_for_another_optimiser(study):
    """Nothing is tuned for a method that is not tuned for the others."""
    for run in map(GRID.resolve, GRID.runs(study, "small", "everything")):
        own = run["own"]
        assert own.keys() <= {"late"} or own["optimiser"] != run["protocol"]["optimiser"]
        tuned = STUDIES[study].get("tuned", {})
        assert not any(run["dataset"] in tuned.get(part, {}) for part in run["method"])
        assert run_content(run)["protocol"]["lr"] == own.get("lr", run["protocol"]["lr"])
