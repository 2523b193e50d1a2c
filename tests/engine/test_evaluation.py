"""Evaluation per client, validation data, metrics by name, and methods with private parameters."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from conftest import (
    BACKENDS,
    CLASSES,
    HAND,
    SIZES,
    Simulation,
    methods,
    pixel,
    simulate,
    two_clients,
    uneven,
)
from fedgrid.engine import metrics
from fedgrid.engine.client_evaluation import means_of_parts
from fedgrid.engine.evaluation import per_sample
from fedgrid.engine.metrics import AVERAGED
from fedgrid.engine.population import Population
from fedgrid.engine.state import own_model
from fedgrid.federation.federation import Federation, Pool, load_federation, pool
from fedgrid.federation.holdout import hold_out
from fedgrid.federation.members import (
    Partition,
    fits,
    of_members,
    read_partition,
    write_partition,
)
from fedgrid.method import Client, Method, Server
from fedgrid.runtime.names import UsageError
from fedgrid.stages.data import decode
from fedgrid.store import tables
from fedgrid.study.protocol import PROTOCOL
from fedgrid.training import results
from fedgrid.training.rounds import rounds

NOTHING = {"client_test": 0.0, "client_test_from": "clients", "validation": 0.0}
NOTHING |= {"validation_from": "test"}


# --- samples that are kept out of training -----------------------------------------------------


def partition_of(*sizes: int) -> tuple[Partition, np.ndarray]:
    """Clients with so many samples each, of three classes in turn, and the labels."""
    labels = np.arange(sum(sizes)) % CLASSES
    members = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return of_members(members, labels, CLASSES), labels


def held(sizes, seed=0, tests=30, **shares) -> Partition:
    made, labels = partition_of(*sizes)
    return hold_out(made, labels, tests, NOTHING | shares, "digits", "dir0.1", seed)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.floats(0, 0.99),
    st.floats(0, 0.99),
    st.sampled_from(["test", "clients"]),
)
def test_no_sample_is_in_two_sets_and_none_is_lost(sizes, test, validation, of):
    made, labels = partition_of(*sizes)
    shares = {"client_test": test, "validation": validation, "validation_from": of}
    try:
        found = hold_out(made, labels, 30, shares, "digits", "dir0.1", 0)
    except UsageError:
        return  # the cases are in `test_a_share_that_leaves_nobody_data_is_refused`
    assert fits(found, labels, CLASSES)
    for k, ids in enumerate(made.members):
        parts = [
            found.members[k],
            *(lists[k] for lists in (found.tests, found.validation) if lists),
        ]
        assert sorted(np.concatenate(parts)) == list(ids)
    assert len(np.unique(found.central)) == len(found.central) < 30


def test_shares_are_of_each_client_and_rounded():
    found = held((10, 3, 1), client_test=0.2, validation=0.25, validation_from="clients")
    assert [*map(len, found.tests)] == [2, 1, 0]
    assert [*map(len, found.validation)] == [2, 1, 0]  # of the 8, 2 and 1 that are left
    assert [*map(len, found.members)] == [6, 1, 1]
    assert found.counts.sum() == 8


def test_the_draw_depends_on_the_seed_and_not_on_the_other_share():
    one, two = (held((20, 20), seed=seed, client_test=0.5) for seed in (0, 1))
    assert not np.array_equal(one.tests[0], two.tests[0])
    with_more = held((20, 20), client_test=0.5, validation=0.5, validation_from="clients")
    assert np.array_equal(one.tests[0], with_more.tests[0])


def test_without_shares_the_partition_and_its_file_are_as_they_were(tmp_path):
    made, labels = partition_of(5, 4)
    assert hold_out(made, labels, 30, NOTHING, "digits", "dir0.1", 0) is made
    write_partition(made, tmp_path / "made.npz")
    assert np.load(tmp_path / "made.npz").files == ["indices", "offsets", "counts"]


def test_a_partition_is_read_as_it_was_written(tmp_path):
    shares = {"client_test": 0.2, "validation": 0.5}
    for found in (held((9, 5), **shares), held((9, 5), validation_from="clients", **shares)):
        write_partition(found, tmp_path / "new/made.npz")
        read = read_partition(tmp_path / "new/made.npz")
        for name in ("members", "tests", "validation"):
            pairs = zip(getattr(found, name), getattr(read, name), strict=True)
            assert all(np.array_equal(*pair) for pair in pairs)
        assert np.array_equal(found.central, read.central)
        assert np.array_equal(found.counts, read.counts)


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"client_test": 0.01}, "client_test 0.01 leaves no client a sample"),
        ({"validation": 0.01, "validation_from": "clients"}, "validation 0.01 leaves no client"),
        ({"client_test": 0.96}, "no client a sample to train on"),
        ({"validation": 0.01}, "leaves none for validation"),
        ({"validation": 0.99}, "leaves none for testing"),
    ],
)
def test_a_share_that_leaves_nobody_data_is_refused(shares, says):
    with pytest.raises(UsageError, match=says):
        held((10, 9), **shares)


def test_a_test_or_validation_list_over_other_clients_is_damaged(tmp_path):
    found = held((9, 5), client_test=0.5)
    write_partition(replace(found, tests=found.tests[:1]), tmp_path / "made.npz")
    with pytest.raises(UsageError, match="damaged"):
        read_partition(tmp_path / "made.npz")


def test_validation_from_the_test_set_is_not_tested_on(tmp_path):
    decode("digits", tmp_path, tmp_path / "digits")
    central, labels = np.array([3, 5, 8]), np.load(tmp_path / "digits/train_labels.npy")
    made = of_members(np.array_split(np.arange(len(labels)), 5), labels, 10)
    write_partition(replace(made, central=central), tmp_path / "made.npz")
    run = {"protocol": PROTOCOL | {"clients": 5}, "dataset": "digits", "partition": "dir0.1"}
    paths = {"data": tmp_path / "digits", "partition": tmp_path / "made.npz"}
    data = load_federation(run | {"seed": 0}, paths, torch.device("cpu"))
    whole = np.load(tmp_path / "digits/test_images.npy")
    assert np.array_equal(data.validation.images[data.validation.ids], whole[central])
    assert np.array_equal(data.test_images, np.delete(whole, central, axis=0))


# --- clients' own test sets ----------------------------------------------------------------------


def with_tests(federation: Federation, lists: list[list[int]], **more) -> Federation:
    """A federation whose clients have these training images as their own test sets, too."""
    tests = pool(federation.images, federation.labels, [np.array(ids, int) for ids in lists])
    return replace(federation, client_tests=tests, **more)


TESTED = [[0], [], [1, 2, 3], [4, 5], [6, 7, 8, 9, 10], []]  # of the six clients of `uneven`
ASKED = {"client_test": 0.2, "evaluate_every": 1}


def run_of(method: Method, backend: str = "loop", **protocol) -> tuple[Simulation, list[dict]]:
    """A run of four rounds on clients with test sets, and its evaluations."""
    found = simulate(method, backend, with_tests(uneven(), TESTED), **ASKED | protocol)
    return found, found.finish()


def test_a_clients_accuracy_is_that_of_its_own_samples():
    found, history = run_of(Method())
    model, data = found.run.server, found.engine.federation
    _, logits = found.engine.architecture.forward(
        model, found.engine.samples.normalise(data.images)
    )
    right = (logits.argmax(1) == data.labels).double()
    rows = {row["client"]: row for row in history[-1]["clients"]}
    assert rows.keys() == {0, 2, 3, 4}  # the others have no test samples
    for client, row in rows.items():
        assert row["samples"] == len(TESTED[client])
        assert row["server_accuracy"] == pytest.approx(float(right[TESTED[client]].mean()))
        assert row["own_accuracy"] == row["server_accuracy"]  # FedAvg keeps nothing of its own


@pytest.mark.parametrize("name", ["fedavg", "fedper", "scaffold"])
def test_clients_are_measured_together_as_each_alone(name, monkeypatch):
    """To the last bit; the memories of clients are made only if they are part of a model."""
    asked = []
    memory = Population.memory
    made, _ = run_of(methods(name))
    monkeypatch.setattr(
        Population, "memory", lambda self, *of: asked.append(of[1]) or memory(self, *of)
    )
    found = made.engine.evaluation.evaluate_all_clients(made.run)
    assert asked == ([0, 2, 3, 4] if name == "fedper" else [])
    rows = {row["client"]: row for row in found.results(made.run.server)["clients"]}
    logits, labels = found.judge_server(made.run.server) if name != "fedper" else (None, None)
    sizes = [len(TESTED[client]) for client in rows]
    for place, (client, row) in enumerate(rows.items()):
        first = sum(sizes[:place])
        here = slice(first, first + sizes[place])
        of = found.own[client] if name == "fedper" else (logits[here], labels[here])
        right, loss = (float(values.mean()) for values in per_sample(*of))
        assert (row["own_accuracy"], row["own_loss"]) == (right, loss)


def test_means_of_parts_are_those_of_each_part_alone():
    random = torch.Generator().manual_seed(0)
    for sizes in ([1], [3, 1, 3, 2, 1], [*range(1, 60)] * 3, [700, 2, 700, 5000, 1]):
        values = torch.rand(sum(sizes), generator=random, dtype=torch.float64)
        alone = [float(part.mean()) for part in values.split(sizes)]
        assert means_of_parts(values, sizes) == alone


def test_the_spread_over_clients():
    _, history = run_of(Method())
    last = history[-1]
    accuracies = np.array([row["own_accuracy"] for row in last["clients"]])
    sizes = np.array([row["samples"] for row in last["clients"]])
    assert last["own_mean"] == pytest.approx(accuracies.mean())
    assert last["own_weighted"] == pytest.approx((accuracies * sizes).sum() / sizes.sum())
    assert last["own_worst"] == accuracies.min()
    assert last["own_decile5"] == pytest.approx(np.median(accuracies))
    assert last["own_decile1"] == pytest.approx(np.quantile(accuracies, 0.1))
    losses = np.array([row["own_loss"] for row in last["clients"]])
    assert last["own_loss"] == pytest.approx((losses * sizes).sum() / sizes.sum())


@pytest.mark.parametrize("backend", BACKENDS)
def test_fedper_is_evaluated_as_each_client_would_use_it(backend):
    found, history = run_of(methods("fedper"), backend)
    state, engine = found.run, found.engine
    assert torch.equal(state.server["head.weight"], engine.population.start.server["head.weight"])
    row = history[-1]["clients"][-1]
    memory = engine.population.memory(state, row["client"])["private"]
    assert memory.keys() == {"head.weight", "head.bias"}
    pool = engine.federation.client_tests
    images = engine.samples.normalise(pool.images[pool.of_client(row["client"])])
    _, logits = engine.architecture.forward(state.server | memory, images)
    labels = pool.labels[pool.of_client(row["client"])]
    assert row["own_accuracy"] == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    loss = torch.nn.functional.cross_entropy(logits, labels)
    assert row["own_loss"] == pytest.approx(float(loss))
    assert row["server_accuracy"] is row["server_loss"] is history[-1]["accuracy"] is None
    assert not any(name.startswith("server_") for name in history[-1])


def test_a_model_is_deployed_once_for_each_evaluation(capsys):
    """Also at the end, where the results ask for the last one again."""
    whole = uneven()
    data = replace(whole, validation=Pool(whole.test_images, whole.test_labels, torch.tensor([1])))
    deploy = Method(deploy=lambda server: print(server.round) or {"head.bias": -last.bias})
    last = simulate(Method()).engine.architecture.live.head
    made = simulate(deploy, "loop", data, rounds=3, evaluate_every=1)
    history = made.finish()
    model = made.engine.evaluation.deployed(made.run)
    assert torch.equal(model["head.bias"], -last.bias)
    asked = [*map(int, capsys.readouterr().out.split())]
    assert [row["round"] for row in history] == [0, 1, 2, 3]
    assert asked == [0, 0, 1, 2, 3, 3]  # the first and the last are tried a second time


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cohort_is_evaluated_after_its_local_training(backend):
    """With the deltas of `two_clients`: A's own model says class 0 for its pixel, B's class 1."""
    federation = with_tests(two_clients(), [[0], [1, 2, 3]])
    protocol = HAND | {"clients": 2, "rounds": 1, "smallest_batch": 1}
    protocol |= {"client_test": 0.2, "evaluate_clients": "cohort"}
    history = simulate(Method(), backend, federation, pixel, **protocol).finish()
    assert "clients" not in history[0]  # before the first round no client has trained
    a, b = history[1]["clients"]
    assert (a["own_accuracy"], b["own_accuracy"]) == (1, 1)
    # A's weights after its step are 0.1 and -0.1, its biases 0.05 and -0.05: logits +-0.25 at 2
    assert a["own_loss"] == pytest.approx(math.log(1 + math.exp(-0.5)))
    # The server's are weighted by 1 and 3 samples: weights -+0.05, biases -+0.025: class 1
    assert a["server_accuracy"] == 0
    assert a["server_loss"] == pytest.approx(math.log(1 + math.exp(0.25)))


@pytest.mark.parametrize(
    ("rounds", "every", "last", "evaluated", "of_clients"),
    [(5, 2, 1, [0, 2, 4, 5], [0, 4, 5]), (9, 4, 3, [0, 4, 7, 8, 9], [0, 7, 8, 9])],
)
def test_rounds_are_evaluated_when_the_protocol_says(rounds, every, last, evaluated, of_clients):
    fields = {"rounds": rounds, "evaluate_every": every, "evaluate_last": last}
    _, history = run_of(Method(), **fields, clients_every=2)
    assert [row["round"] for row in history] == evaluated
    assert [row["round"] for row in history if "clients" in row] == of_clients


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mean_of_the_last_models_is_evaluated_as_the_method_deploys_it(backend):
    """On test and validation data; before as many rounds it is the mean of all models so far."""
    whole = uneven()
    data = replace(whole, validation=Pool(whole.test_images, whole.test_labels, torch.tensor([1])))
    deploy = Method(deploy=lambda server: {"head.bias": -server.model["head.bias"]})
    made = simulate(deploy, backend, data, rounds=4, evaluate_every=1, average_last=3)
    history: list[dict] = []
    models = [dict(state.server) for state in rounds(made.engine, made.run, history)]
    assert not {"averaged_accuracy", "averaged_loss"} & history[0].keys()
    for number, row in enumerate(history[1:], 1):
        last = models[max(0, number - 3) : number]
        mean = {name: sum(model[name] for model in last) / len(last) for name in last[0]}
        state = replace(made.run, server=mean, round=number)
        by_hand = made.engine.evaluation.evaluate(mean | {"head.bias": -mean["head.bias"]})
        validated = made.engine.evaluation.evaluate_validation(state)
        for name, value in (by_hand | validated).items():
            if name in AVERAGED:
                assert row[AVERAGED[name]] == pytest.approx(value, rel=1e-12)
    assert history[-1]["averaged_loss"] != pytest.approx(history[-1]["loss"])


def test_a_run_that_does_not_ask_has_the_columns_that_it_had(tmp_path):
    found = simulate(Method(), evaluate_every=1, rounds=2)
    history = found.finish()
    results.write(tmp_path, found.run, history, {})
    head = (tmp_path / "metrics.csv").read_text().splitlines()[0]
    assert head == "round,accuracy,loss,train_loss,effective_clients"
    assert (tmp_path / "clients.csv").read_text().count("\n") == 1


def test_what_a_run_with_private_parameters_leaves(tmp_path):
    found, history = run_of(methods("fedper"), evaluate_clients="cohort")
    results.write(tmp_path, found.run, history, {})
    head, first, *_ = (tmp_path / "metrics.csv").read_text().splitlines()
    assert head.startswith("round,accuracy,loss,own_weighted,own_mean,own_worst,own_loss")
    assert head.endswith("own_decile9,train_loss,effective_clients")
    assert set(first.split(",")) == {"0", ""}
    clients = (tmp_path / "clients.csv").read_text().splitlines()
    assert clients[0] == "round,client,samples,server_accuracy,server_loss,own_accuracy,own_loss"
    assert all(line.count(",") == 6 for line in clients)


# --- validation ----------------------------------------------------------------------------------


def test_validation_is_of_the_servers_model():
    data = uneven()
    validation = Pool(data.test_images, data.test_labels, torch.tensor([2, 5, 11]))
    found = simulate(Method(), federation=replace(data, validation=validation))
    row = found.engine.evaluation.evaluate_validation(found.run)
    x = found.engine.samples.normalise(data.test_images[[2, 5, 11]])
    _, logits = found.engine.architecture.forward(found.run.server, x)
    right = logits.argmax(1) == data.test_labels[[2, 5, 11]]
    assert row["validation_accuracy"] == pytest.approx(float(right.double().mean()))
    assert row.keys() == {"validation_accuracy", "validation_loss"}


CHECKED = [[11], [12], [], [16, 17], [], [19]]  # validation data of clients, apart from TESTED


@pytest.mark.parametrize(
    ("name", "which"), [("fedavg", "all"), ("sps", "all"), ("fedper", "cohort")]
)
def test_own_models_are_validated_as_they_are_reported(name, which):
    """On the same data, `validation_own_mean` and `own_mean` are the same number in every round."""
    data = with_tests(uneven(), TESTED)
    made = simulate(
        methods(name), "loop", replace(data, validation=data.client_tests),
        **ASKED | {"evaluate_clients": which},
    )  # fmt: skip
    evaluated = [row for row in made.finish() if "own_mean" in row]
    assert len(evaluated) > 2
    assert all(row["validation_own_mean"] == row["own_mean"] for row in evaluated)
    assert any(row["own_mean"] != row["own_weighted"] for row in evaluated)


def test_clients_own_models_are_validated_on_validation_data_and_not_on_test_data():
    data, loss = with_tests(uneven(), TESTED), torch.nn.functional.cross_entropy
    validation = pool(data.images, data.labels, [np.array(ids, int) for ids in CHECKED])
    made = simulate(methods("fedper"), federation=replace(data, validation=validation), **ASKED)
    state, engine = made.play(3), made.engine
    right, losses = {}, []
    for client, ids in enumerate(CHECKED):
        model = own_model(state.server, engine.population.memory(state, client))
        x, y = engine.samples.normalise(data.images[ids]), data.labels[ids]
        logits = engine.architecture.forward(model, x)[1]
        right[client] = (logits.argmax(1) == y).double()
        losses.append(loss(logits, y, reduction="none"))
    row = engine.evaluation.evaluate_validation(state)
    assert row["validation_accuracy"] == pytest.approx(float(torch.cat([*right.values()]).mean()))
    assert row["validation_loss"] == pytest.approx(float(torch.cat(losses).mean()))
    row = engine.evaluation.evaluate_all_clients(state).results(state.server)
    own = [float(right[client].mean()) for client in (0, 3)]  # with test data and validation data
    assert row["validation_own_mean"] == pytest.approx(np.mean(own))


# --- metrics -------------------------------------------------------------------------------------


def drawn(classes: int = 4, samples: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(samples, classes, generator=random, dtype=torch.float64)
    labels = torch.randint(classes, (samples,), generator=random)
    return logits + 2 * torch.nn.functional.one_hot(labels), labels


def test_metrics_agree_with_scikit_learn():
    logits, labels = drawn()
    found = metrics.compute(metrics.NAMES, logits, labels)
    said, shares = logits.argmax(1), logits.softmax(1)
    assert found["balanced_accuracy"] == pytest.approx(
        sklearn_metrics.balanced_accuracy_score(labels, said), abs=1e-6
    )
    assert found["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(labels, said, average="macro"), abs=1e-6
    )
    assert found["auroc"] == pytest.approx(
        sklearn_metrics.roc_auc_score(labels, shares, multi_class="ovr"), abs=1e-6
    )
    recalls = sklearn_metrics.recall_score(labels, said, average=None)
    assert [found[f"recall_{c}"] for c in range(4)] == pytest.approx(list(recalls), abs=1e-6)
    assert found["confusion"] == sklearn_metrics.confusion_matrix(labels, said).tolist()


def test_calibration_error_by_hand():
    """Two samples with confidence 0.8, one right; one with 0.6, right: (2 * 0.3 + 0.4) / 3."""
    shares = torch.tensor([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    found = metrics.compute(["calibration_error"], shares.log(), labels)
    assert found["calibration_error"] == pytest.approx(1 / 3, abs=1e-6)


def test_metrics_of_a_class_without_samples_or_a_lost_model_are_missing():
    logits, labels = drawn()
    some = labels != 2
    found = metrics.compute(metrics.NAMES, logits[some], labels[some])
    assert found["recall_2"] is found["auroc"] is None
    others = [found[f"recall_{c}"] for c in (0, 1, 3)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(others))
    lost = metrics.compute(metrics.NAMES, torch.full_like(logits, math.nan), labels)
    assert {*lost.values()} == {None}


def test_auroc_of_a_test_set_without_a_class_is_refused():
    with pytest.raises(UsageError, match="class 1 has none in the test set"):
        metrics.check(["auroc"], torch.tensor([0, 2]), 3)
    metrics.check(["macro_f1"], torch.tensor([0, 2]), 3)


def test_metrics_join_the_columns_by_name():
    _, history = run_of(Method(), metrics=["macro_f1", "recall"])
    last = history[-1]
    assert {"macro_f1", "recall_0", "recall_2", "own_macro_f1", "own_recall_1"} <= last.keys()


def test_the_confusion_is_beside_the_predictions(tmp_path):
    found, history = run_of(Method(), metrics=["confusion", "recall"])
    results.write(tmp_path, found.run, history, {})
    said = tables.read_predictions(tmp_path / "predictions.csv")
    classes = [f"of_class_{c}" for c in range(3)]
    assert said[classes].sum(axis=1).tolist() == said["predicted"].tolist()
    last = said[said["round"] == 4].set_index("class")
    counts = found.engine.federation.test_labels.bincount(minlength=3).tolist()
    assert last[classes].sum().tolist() == counts
    right = [last.loc[c, f"of_class_{c}"] / counts[c] for c in range(3)]
    assert right == pytest.approx([history[-1][f"recall_{c}"] for c in range(3)])
    assert last[[f"own_{name}" for name in classes]].sum().sum() == sum(map(len, TESTED))
    assert not {"confusion", "own_confusion"} & {*pd.read_csv(tmp_path / "metrics.csv")}


# --- a method's own values -----------------------------------------------------------------------


def norm(client: Client) -> dict:
    """A value of the client's model, one of its test data, one of its training data."""
    tested = client.test(lambda x, y: torch.tensor(len(y)))
    return {
        "head_norm": client.model["head.weight"].norm(),
        "tested": tested,
        "trained": client.total(lambda x, y: torch.tensor(len(y))),
    }


def counted(server: Server) -> dict:
    return {"test_size": server.test(lambda x, y: torch.tensor(len(y)))}


@pytest.mark.parametrize("which", ["all", "cohort"])
def test_a_methods_own_values_join_by_name(which):
    found, history = run_of(Method(evaluate=norm, evaluate_server=counted), evaluate_clients=which)
    last = history[-1]
    assert last["test_size"] == len(found.engine.federation.test_labels)
    rows = last["clients"]
    assert [row["tested"] for row in rows] == [len(TESTED[row["client"]]) for row in rows]
    assert [row["trained"] for row in rows] == [SIZES[row["client"]] for row in rows]
    assert last["head_norm"] == pytest.approx(np.mean([row["head_norm"] for row in rows]))


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (Method(evaluate=lambda c: {"own_accuracy": 1.0}), "own_accuracy"),
        (Method(evaluate=lambda c: {"loss": 1.0}), "loss"),
        (Method(evaluate_server=lambda s: {"accuracy": 1.0}), "accuracy"),
    ],
)
def test_a_value_with_the_name_of_another_column_is_refused(method, name):
    with pytest.raises(UsageError, match=f"`{name}`, which is the name of another column"):
        run_of(method)
