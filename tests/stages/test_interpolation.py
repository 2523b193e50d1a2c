"""Mixtures of a shared and a private branch: `fedgrid interpolation`."""

import json
import subprocess
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import ENVIRONMENT, copied, methods, simulate, tiny, uneven
from fedgrid import models
from fedgrid.commands import data, interpolation, partition, train
from fedgrid.datasets import digits
from fedgrid.engine.state import fill, own_model
from fedgrid.federation.federation import Pool
from fedgrid.runtime.names import UsageError
from fedgrid.stages import interpolation as stage
from fedgrid.stages.interpolation import GRID
from fedgrid.study.jobs import fingerprint_stages, list_stages_until, run_of_stage, state_gb
from fedgrid.study.protocol import AXES
from made import GRID as STUDY

PLACES = {value: place for place, value in enumerate(GRID)}


def build(seed: int):
    return models.build("cnn", (1, 6, 6), 3, seed=seed)


def played(rounds: int = 2, build=build):
    """A run with a shared and a private branch, in which not every client has taken part."""
    whole = uneven()
    sizes = [1, 2, 1, 3, 6, 0]
    ids = torch.cat([torch.from_numpy(m[:n]) for m, n in zip(whole.members, sizes, strict=True)])
    federation = replace(whole, client_tests=Pool(whole.images, whole.labels, ids, sizes))
    method = methods("ssp", split=0) | methods("uniform")
    options = {"participation": 0.34, "lr": 0.3, "weight_decay": 0.0, "augment": []}
    simulation = simulate(method, federation=federation, build=build, **options)
    simulation.play(rounds)
    assert 0 < len(simulation.run.memory) < 5
    return simulation


def test_the_grid_is_in_order_and_has_the_papers_values():
    assert [*GRID] == sorted(set(GRID))
    assert {tenth / 10 for tenth in range(11)} < {*GRID}
    assert {0.01, 0.02, 0.05, 0.95, 0.98, 0.99} < {*GRID}


def test_a_grid_by_hand():
    """h = (2 a, 1 - a), C_s(h) = h and C_p(h) = -h, so with s = sigmoid(3 a - 1)

    p = b (s, 1 - s) + (1 - b) (1 - s, s), and class 0 is predicted if a is above 1/3 and b above
    1/2, or both below.
    """
    model = SimpleNamespace(
        encode=lambda x: (x * torch.tensor([2.0, 0.0]), x * torch.tensor([0.0, 1.0])),
        classify=lambda shared, own: (shared, -own),
    )
    architecture = SimpleNamespace(live=model, precision=nullcontext)
    found = stage.right(architecture, torch.ones(3, 2), torch.tensor([0, 0, 1]))
    assert found.shape == (len(GRID), len(GRID))
    for alpha, beta in ((a, b) for a in GRID for b in GRID if b != 0.5):
        first = (alpha > 1 / 3) == (beta > 1 / 2)
        assert found[PLACES[alpha], PLACES[beta]] == (2 if first else 1), (alpha, beta)


def test_predictions_that_are_no_numbers_are_wrong():
    model = SimpleNamespace(
        encode=lambda x: (x, x), classify=lambda shared, own: (shared * torch.nan, own)
    )
    architecture = SimpleNamespace(live=model, precision=nullcontext)
    assert not stage.right(architecture, torch.ones(3, 2), torch.zeros(3).long()).any()


def held_out(engine, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The test samples of a client, and their labels."""
    pool = engine.federation.client_tests
    ids = pool.of_client(client)
    return engine.samples.normalise(pool.images[ids]), pool.labels[ids]


def assert_corner_of_the_server(engine, state, shares) -> None:
    """With all of the shared branch, a client has the accuracy of the server's model."""
    for client in range(5):
        x, y = held_out(engine, client)
        _, shared = engine.architecture.forward_server(state.server, x)
        right = (shared.argmax(1) == y).double().mean()
        assert shares[client, PLACES[1], PLACES[1]] == pytest.approx(float(right))


def test_the_corners_are_the_branches_accuracies_and_between_is_the_formula():
    simulation = played()
    engine, state = simulation.engine, simulation.run
    shares, samples = stage.accuracies(engine, state)
    model = engine.architecture.live
    assert samples.tolist() == [1, 2, 1, 3, 6]  # the last client has no tests
    assert_corner_of_the_server(engine, state, shares)
    every = range(4)  # blocks
    for client in range(5):
        x, y = held_out(engine, client)
        kept = state.memory.get(client, {})
        assert ("private" in kept) == (client in state.memory)
        fill(model, own_model(state.server, kept))  # the server's are the initial values
        right = (model.private.run(x, every).argmax(1) == y).double().mean()
        assert shares[client, PLACES[0], PLACES[0]] == pytest.approx(float(right))
        ours, theirs = model.encode(x)
        logits = model.classify(*[0.3 * ours + 0.7 * theirs] * 2)
        p = 0.8 * logits[0].softmax(1) + (1 - 0.8) * logits[1].softmax(1)
        right = (p.argmax(1) == y).double().mean()
        assert shares[client, PLACES[0.3], PLACES[0.8]] == pytest.approx(float(right))
    half = PLACES[0.5]
    assert len({*shares[:, half].ravel()}) > 2


def test_running_statistics_of_batchnorm_are_part_of_a_clients_model():
    simulation = played(build=tiny)
    shares, _ = stage.accuracies(simulation.engine, simulation.run)
    assert_corner_of_the_server(simulation.engine, simulation.run, shares)


def test_clients_have_models_of_their_own():
    simulation = played()
    found, _ = stage.accuracies(simulation.engine, simulation.run)
    other = replace(simulation.run, memory={})
    forgotten, _ = stage.accuracies(simulation.engine, other)
    shared = PLACES[1]
    assert np.array_equal(found[:, shared, shared], forgotten[:, shared, shared])
    assert not np.array_equal(found, forgotten)


def test_means_are_over_clients_and_over_samples():
    shares = np.zeros((2, len(GRID), len(GRID)))
    shares[0, 3, 4] = 0.5
    shares[1, 3, 4] = 1.0
    table = stage.described((shares, np.array([3, 1])))
    assert [*table] == ["alpha", "beta", "mean", "weighted", "std", "clients"]
    row = table[(table["alpha"] == GRID[3]) & (table["beta"] == GRID[4])].iloc[0]
    assert row["mean"] == 0.75
    assert row["weighted"] == 0.625
    assert row["std"] == 0.25
    assert row["clients"] == 2
    assert table["mean"].sum() == 0.75
    assert len(table) == len(GRID) ** 2


# --- the command -----------------------------------------------------------------------------

PROTOCOL = "fedsls-quick-clients5-participation0.4-local2-rounds2-evaluate_every2-client_test0.3"
NAME = "{}/digits/dir0.1/{}/seed0"
DOUBLE = NAME.format(PROTOCOL, "ssp-split0")


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A run with two branches, and a run with one."""
    folder = tmp_path_factory.mktemp("interpolated") / "results"
    data.main(["digits", "--out", str(folder / "data/digits")])
    main(partition, DOUBLE, folder)
    for method in ("ssp-split0", "ps"):
        main(train, NAME.format(PROTOCOL, method), folder)
    return folder


def main(module, name: str, results: Path, *options: str) -> None:
    run = json.dumps(run_of_stage("train", resolved(name)))
    module.main([run, "--results", str(results), *options])


@cache
def resolved(name: str) -> dict:
    return STUDY.resolve(dict(zip(AXES, name.replace("seed", "").split("/"), strict=True)))


def test_a_run_of_another_name_reads_the_state_of_the_one_that_was_trained(results):
    main(interpolation, DOUBLE, results)
    table = pd.read_csv(results / f"interpolation/{DOUBLE}.csv")
    metrics = pd.read_csv(results / f"runs/{DOUBLE}/metrics.csv").iloc[-1]
    corner = table[(table["alpha"] == 1) & (table["beta"] == 1)].iloc[0]
    assert corner["mean"] == pytest.approx(metrics["server_mean"], abs=1e-6)
    assert corner["weighted"] == pytest.approx(metrics["server_weighted"], abs=1e-6)
    linked = NAME.format(f"{PROTOCOL}-tail3", "ssp-split0")
    main(train, linked, results)
    assert not (results / f"checkpoints/runs/{linked}.safetensors.ended").exists()
    main(interpolation, linked, results)
    pd.testing.assert_frame_equal(pd.read_csv(results / f"interpolation/{linked}.csv"), table)


def test_a_run_with_one_branch_is_refused(results):
    with pytest.raises(UsageError, match=r"`ps` has not two whole branches.*ssp with `split: 0`"):
        main(interpolation, NAME.format(PROTOCOL, "ps"), results)


def test_a_run_that_is_not_finished_is_named_with_its_command(results):
    name = NAME.format(f"{PROTOCOL}-lr0.5", "ssp-split0")
    with pytest.raises(UsageError, match=r"metrics.csv is missing: .*python -m fedgrid train fed"):
        main(interpolation, name, results)


@pytest.mark.parametrize("damage", ["cut", "lost"])
def test_a_state_that_is_not_kept_is_one_sentence(results, damage, tmp_path):
    state = results / f"checkpoints/runs/{DOUBLE}.safetensors.ended"
    whole = state.read_bytes()
    state.unlink()
    if damage == "cut":
        state.write_bytes(whole[:-4])
    try:
        with pytest.raises(
            UsageError, match=r"after round 2 of .* are not kept: raise `keep_state"
        ):
            main(interpolation, DOUBLE, results, "--out", str(tmp_path / "out.csv"))
    finally:
        state.write_bytes(whole)
    assert not (tmp_path / "out.csv").exists()


# --- its place in the workflow ---------------------------------------------------------------


def test_it_depends_on_all_that_the_training_depends_on():
    run = resolved(DOUBLE)
    assert run_of_stage("interpolation", run) == run_of_stage("train", run)
    assert list_stages_until("interpolation", run) == {"partition", "train", "interpolation"}
    assert fingerprint_stages("interpolation", run) != fingerprint_stages("train", run)
    other = resolved(NAME.format(PROTOCOL, "autocs"))
    assert fingerprint_stages("interpolation", run) != fingerprint_stages("interpolation", other)
    fedsls = resolved(NAME.format(PROTOCOL, "fedsls"))
    assert {"pretrain", "saliency"} < list_stages_until("interpolation", fedsls)


def test_the_size_of_a_state_is_the_servers_model_and_the_clients():
    run = deepcopy(resolved(DOUBLE))
    run["protocol"] |= {"model": "vgg11", "clients": 100, "participation": 0.1, "rounds": 1000}
    weights = models.draw("vgg11", digits.SHAPE, digits.CLASSES, 0).state_dict().values()
    gb = sum(tensor.nbytes for tensor in weights) / 1e9
    assert state_gb(run) == pytest.approx(gb * (2 + 100))
    run["protocol"] |= {"rounds": 3}
    assert state_gb(run) == pytest.approx(gb * (2 + 30))


@pytest.mark.slow
def test_the_workflow_makes_it_and_refuses_it_where_no_state_is_kept(tmp_path):
    command = ["snakemake", "--cores", "1", f"results/interpolation/{DOUBLE}.csv", "--config"]
    at = {"cwd": copied(tmp_path), "env": ENVIRONMENT, "text": True, "capture_output": True}
    none = subprocess.run([*command, "device=cpu", "keep_state_gb=0"], **at)
    assert none.returncode != 0
    assert "and such a state is not kept: set `keep_state_gb: 1`" in none.stdout + none.stderr
    done = subprocess.run([*command, "device=cpu"], **at)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(pd.read_csv(tmp_path / f"results/interpolation/{DOUBLE}.csv")) == len(GRID) ** 2
    again = subprocess.run([*command, "device=cpu"], **at)
    assert "Nothing to be done" in again.stdout + again.stderr
