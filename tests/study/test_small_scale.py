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
FEDSLS = ["fedavg", "fedprox", "moon", "feddecorr", "fedau", "fedsls"]
FEDSLS += ["fedsl-f2", "fedsl-f4", "fedsl-f8"]


def cells(study: str, grid: str) -> dict[tuple, set[int]]:
    """The seeds of every dataset, partition and method of a grid at the small scale."""
    found: dict[tuple, set[int]] = {}
    for run in GRID.runs(study, "small", grid):
        key = tuple(run[axis] for axis in ("dataset", "partition", "method"))
        found.setdefault(key, set()).add(run["seed"])
    return found


def names(study: str, grid: str, axis: str) -> set:
    """The names of an axis in a grid at the small scale."""
    return {run[axis] for run in GRID.runs(study, "small", grid)}


@pytest.mark.parametrize("small", PAPER)
def test_clients_and_local_work_are_the_papers(small):
    ours, theirs = GRID.protocol(small), GRID.protocol(PAPER[small])
    wanted = {field: theirs[field] for field in KEPT} | OTHER.get(small, {})
    assert {field: ours[field] for field in KEPT} == wanted
    assert ours["rounds"] < theirs["rounds"]


def test_on_a_gpu_all_but_initial_weights_and_rounds_is_the_papers():
    ours, theirs = GRID.protocol("fedsls-gpu"), GRID.protocol("fedsls")
    assert {field for field in theirs if ours[field] != theirs[field]} == {"weights", "rounds"}


def test_fedsls_has_all_methods_at_three_alphas_and_more_seeds_where_it_matters():
    table, controls = cells("fedsls", "table1"), cells("fedsls", "controls")
    for partition in ("dir0.5", "dir0.1", "dir0.05"):
        for method in FEDSLS:
            assert table["cifar10", partition, method] >= {0, 1, 2}
    for partition in ("dir0.1", "dir0.05"):
        for method in ("fedavg", "uniform", "fedsls", "fedsls+swapped", "fedsls+random"):
            assert controls["cifar10", partition, method] == {0, 1, 2, 3, 4}


def test_fedsls_compares_dynamic_weights_and_classes_and_has_the_placebo():
    controls, claims = cells("fedsls", "controls"), cells("fedsls", "claims")
    for partition in ("dir0.5", "dir0.1", "dir0.05"):
        assert controls["cifar10", partition, "fedsls_dynamic+swapped"] == {0, 1, 2}
        assert claims["cifar10", partition, "fedsls_dynamic"] == {0, 1, 2}
    for method in ("fedsls-max", "fedsls-sum"):
        assert claims["cifar10", "dir0.05", method] == {0, 1, 2}
    maps = GRID.experiment("fedsls", "small", "fidelity")
    assert maps["encoders"]["saliency"] == maps["encoders"]["untrained"] == 3


def test_the_curve_of_what_weights_can_do_has_five_powers_and_its_points():
    powers = {"uniform", "power-exponent0.5", "fedavg", "power-exponent1.5", "power-exponent2"}
    points = {"fedsls", "fedsls+swapped", "fedsls+random", "fedau", "fedavg+norm"}
    assert names("fedsls", "concentration", "method") >= powers | points
    assert names("fedsls", "concentration", "partition") == {"dir0.5", "dir0.1", "dir0.05"}


def test_normalisation_has_six_methods_with_it_without_it_and_with_its_placebo():
    table = cells("normalization", "table1")
    assert len(table) == 6 * 3 * 2
    assert all(seeds == {0, 1, 2} for seeds in table.values())


def test_fedlmd_has_two_partitions_and_equal_weights_where_these_differ():
    table = cells("fedlmd", "table3")
    methods = {m for _, partition, m in table if partition == "dir0.05"}
    assert methods == {m for data, p, m in table if (data, p) == ("cifar10", "shards2")}
    assert len(methods) == 9
    assert all(seeds == {0, 1, 2} for seeds in table.values())
    placebos = {"fedlmd_random", "fedntd_random"}
    assert placebos <= names("fedlmd", "controls", "method")
    equal = {f"{name}-uniform" for name in ("fedlmd", "fedntd", *placebos)} | {"uniform"}
    found = {m: p for _, p, m in cells("fedlmd", "controls") if m in equal}
    assert found == dict.fromkeys(equal, "dir0.05")


def test_fedlmd_without_a_teacher_has_its_table_its_figure_and_its_placebo():
    assert {m for *_, m in cells("fedlmd", "table2")} == {
        *("fedavg", "fedavg_ls", "fedntd_tf", "fedlmd_tf")
    }
    for grid, method in [("figure5", "fedlmd_tf"), ("controls", "fedlmd_tf_random")]:
        seeds = {p: of for (_, p, m), of in cells("fedlmd", grid).items() if m == method}
        assert seeds == {"dir0.05": {0, 1, 2}, "shards2": {0, 1, 2}}
    assert {"fedlmd_tf", "fedntd"} == names("fedlmd", "sweeps", "method") - {"fedlmd_tf-beta3"}


def test_privatisation_has_seven_ways_and_their_placebos_on_images_and_text():
    ways = {"AB", "aB", "Ab", "ab", "AaB", "ABb", "AaBb"}
    placebos = {f"{way}+forgets" for way in ways - {"AB", "ab"}} | {"AaB+resets", "ABb+resets"}
    assert names("privatization", "ways", "method") == ways | placebos
    assert names("privatization", "ways", "dataset") == {"cifar10", "tinyshakespeare"}
    assert names("privatization", "ways", "seed") == {0, 1, 2}


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


def test_splits_and_autohs_have_placebos_with_the_seeds_of_their_methods():
    found = cells("privatization", "claims")
    for method in ("AutoHS", "AutoHS+text"):
        assert found["cifar10", "classes5", f"{method}+forgets"] == {0, 1, 2}
    for kind, split in (("SPS", 2), ("SPS", 4), ("SSP", 2), ("SSP", 4)):
        for name in (f"{kind}-split{split}", f"{kind}+forgets-split{split}"):
            assert found["cifar10", "classes5", name] == {0, 1, 2}


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
        assert not own or own["optimiser"] != run["protocol"]["optimiser"]
        tuned = STUDIES[study].get("tuned", {})
        assert not any(run["dataset"] in tuned.get(part, {}) for part in run["method"])
        assert run_content(run)["protocol"]["lr"] == own.get("lr", run["protocol"]["lr"])
