"""Mixtures of a shared and a private branch: `fedgrid interpolation`."""

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import copied, methods, simulate, tiny, uneven
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
from workflows import snakemake, start

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


def counted(encode, classify, y) -> tuple[np.ndarray, np.ndarray]:
    """Right predictions and losses of three samples (1, 1), by alpha and beta."""
    model = SimpleNamespace(encode=encode, classify=classify)
    (right, loss), samples = stage.count(model, torch.ones(3, 2), torch.tensor(y))
    assert samples == len(y)
    return right.numpy(), loss.numpy()


def test_a_grid_by_hand():
    """h = (2 a, 1 - a), C_s(h) = h and C_p(h) = -h, so with s = sigmoid(3 a - 1)

    p = b (s, 1 - s) + (1 - b) (1 - s, s), and class 0 is predicted if a is above 1/3 and b above
    1/2, or both below.
    """
    found, loss = counted(
        lambda x: (x * torch.tensor([2.0, 0.0]), x * torch.tensor([0.0, 1.0])),
        lambda shared, own: (shared, -own),
        [0, 0, 1],
    )
    assert found.shape == loss.shape == (len(GRID) + 1, len(GRID))
    for alpha, beta in ((a, b) for a in GRID for b in GRID if b != 0.5):
        first = (alpha > 1 / 3) == (beta > 1 / 2)
        assert found[PLACES[alpha], PLACES[beta]] == (2 if first else 1), (alpha, beta)
        s = 1 / (1 + np.exp(1 - 3 * alpha))
        p = beta * s + (1 - beta) * (1 - s)
        by_hand = -2 * np.log(p) - np.log(1 - p)
        assert loss[PLACES[alpha], PLACES[beta]] == pytest.approx(by_hand), (alpha, beta)


def test_whole_models_are_mixed_without_mixing_features():
    """The shared model gives sigmoid(2) to class 0, and the private one sigmoid(1)."""
    _, loss = counted(
        lambda x: (x * torch.tensor([2.0, 0.0]), x * torch.tensor([0.0, 1.0])),
        lambda shared, own: (shared, -own),
        [0, 0, 0],
    )
    shared, own = 1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-1))
    for beta in GRID:
        p = beta * shared + (1 - beta) * own
        assert loss[-1, PLACES[beta]] == pytest.approx(-3 * np.log(p))


def test_predictions_that_are_no_numbers_are_wrong():
    right, _ = counted(lambda x: (x, x), lambda shared, own: (shared * torch.nan, own), [0, 0, 0])
    assert not right.any()


def test_the_divergence_by_hand():
    """Two private models that are sure of different classes, and a server that is sure of one."""
    own = [torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.0, 1.0]]).double()]
    found = stage.diverge([(None, None, each) for each in own], torch.tensor([[0.8, 0.2]]).double())
    for beta in GRID:
        h = beta * 0.8 + (1 - beta) * 0.5
        by_hand = (-np.log(h) - np.log(1 - h)) / 2
        assert found[PLACES[beta]] == pytest.approx(by_hand)


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


def everyone(simulation) -> tuple[np.ndarray, np.ndarray]:
    """The accuracies of all clients by alpha and beta as they are, and their samples."""
    engine, state = simulation.engine, simulation.run
    play = partial(engine.evaluation.evaluate_all_clients, state)
    return shares_of(stage.see(engine, play, engine.federation.test_images[:0]))


def shares_of(seen: list) -> tuple[np.ndarray, np.ndarray]:
    samples = np.array([int(number) for _, number, _ in seen])
    return np.stack([sums[0].numpy() for sums, *_ in seen]) / samples[:, None, None], samples


def test_the_corners_are_the_branches_accuracies_and_between_is_the_formula():
    simulation = played()
    engine, state = simulation.engine, simulation.run
    shares, samples = everyone(simulation)
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
    shares, _ = everyone(simulation)
    assert_corner_of_the_server(simulation.engine, simulation.run, shares)


@pytest.mark.parametrize("number", [0, 3])
def test_a_cohort_is_evaluated_after_local_training_as_in_a_round_of_training(number):
    """Its clients and their own accuracies are those that training records of this round."""
    simulation = played()
    engine, state = simulation.engine, simulation.run
    seen = engine.evaluation.start_client_evaluation()
    begun = replace(state, round=state.round + number, memory={**state.memory})
    engine.round(begun, seen)
    expected = {row["client"]: row["own_accuracy"] for row in seen.results(state.server)["clients"]}
    assert expected
    before = {name: tensor.clone() for name, tensor in state.server.items()}
    kept = {**state.memory}
    cohort = stage.see_cohort(engine, state, number, engine.federation.test_images[:3])
    shares, _ = shares_of(cohort)
    whole = shares[:, -1, PLACES[0.5]]  # the prediction of AaBb: the mean of both probabilities
    assert whole.tolist() == pytest.approx([*expected.values()])
    assert all(len(probabilities) == 3 for *_, probabilities in cohort)
    assert all(torch.equal(before[name], tensor) for name, tensor in state.server.items())
    assert state.memory == kept  # the same objects: the state stays as it was


def test_every_cohort_begins_with_the_last_state():
    simulation = played()
    table = stage.evaluate(simulation.engine, simulation.run)
    again = stage.evaluate(simulation.engine, simulation.run)
    pd.testing.assert_frame_equal(table, again)
    cohort, all_clients = (table[table["evaluate_clients"] == name] for name in ("cohort", "all"))
    assert len(cohort) == len(all_clients) == (len(GRID) + 1) * len(GRID)
    assert all_clients["clients"].unique().tolist() == [5]
    assert not np.array_equal(cohort["mean"], all_clients["mean"])
    has = cohort["divergence"].notna()
    assert has.equals(cohort["alpha"].isna())
    assert all_clients["divergence"].isna().all()


def test_means_are_over_clients_and_over_samples():
    sums = torch.zeros(2, 2, len(GRID) + 1, len(GRID))
    sums[0, 0, 3, 4] = 1.5
    sums[1, 0, 3, 4] = 1.0
    sums[:, 1, 3, 4] = 6
    found = [(of, torch.tensor(n), None) for of, n in zip(sums, (3, 1), strict=True)]
    table = stage.described(found)
    assert [*table] == [
        *("alpha", "beta", "mean", "weighted", "std", "loss", "clients", "divergence")
    ]
    row = table[(table["alpha"] == GRID[3]) & (table["beta"] == GRID[4])].iloc[0]
    assert row["mean"] == 0.75
    assert row["weighted"] == 0.625
    assert row["std"] == 0.25
    assert row["loss"] == 4
    assert row["clients"] == 2
    assert table["mean"].sum() == 0.75
    assert len(table) == len(GRID) * (len(GRID) + 1)


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
    corner = table[(table["alpha"] == 1) & (table["beta"] == 1)].set_index("evaluate_clients")
    corner = corner.loc["all"]
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
    """A process of its own, which imports torch, measures the model: some seconds."""
    run = deepcopy(resolved(DOUBLE))
    run["protocol"] |= {"model": "cnn", "clients": 100, "participation": 0.1, "rounds": 300}
    weights = models.draw("cnn", digits.SHAPE, digits.CLASSES, 0).state_dict().values()
    gb = sum(tensor.nbytes for tensor in weights) / 1e9
    assert state_gb(run) == pytest.approx(gb * (2 + 100))
    run["protocol"] |= {"rounds": 3}
    assert state_gb(run) == pytest.approx(gb * (2 + 30))


@pytest.mark.slow
def test_the_workflow_makes_it_and_refuses_it_where_no_state_is_kept(tmp_path):
    project, target = copied(tmp_path), f"results/interpolation/{DOUBLE}.csv"
    command = ("--cores", "1", target, "--config", "device=cpu")
    none = start(project, *command, "keep_state_gb=0")
    assert "and such a state is not kept: set `keep_state_gb: 1`" in none.communicate()[0]
    assert none.returncode != 0
    snakemake(project, *command)
    table = pd.read_csv(tmp_path / f"results/interpolation/{DOUBLE}.csv")
    assert len(table) == 2 * len(GRID) * (len(GRID) + 1)
    assert "Nothing to be done" in snakemake(project, *command)
