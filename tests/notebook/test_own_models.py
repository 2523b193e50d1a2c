"""Features of samples, and the models of clients, of finished runs; `fedgrid features`."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import fedgrid
from conftest import read_once
from fedgrid.commands import features
from fedgrid.federation import stored
from fedgrid.notebook import api, names
from fedgrid.runtime.names import UsageError
from fedgrid.study.paths import RUN

FEW = {"rounds": 2, "evaluate_every": 2, "local": 1, "clients": 4, "participation": 0.5}
OWN = FEW | {"client_test": 0.3}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A folder without a config.yaml."""
    monkeypatch.chdir(tmp_path)
    read_once(monkeypatch, api, names)


def accuracies(result: fedgrid.Result) -> list[float]:
    """The accuracy of each client's own model on the client's own test samples."""
    tests = result.own_models.opened[0].federation.client_tests
    found = []
    for client in range(4):
        ids = tests.of_client(client)
        said = result.predict(tests.images[ids], client=client)
        found.append(float((said == tests.labels[ids].numpy()).mean()))
    return found


def recorded(result: fedgrid.Result) -> list[float]:
    last = result.clients[result.clients["round"] == 2]
    assert last["client"].tolist() == [0, 1, 2, 3]
    return last["own_accuracy"].tolist()


# Private entries; a model that is fitted to the client; one with which the client begins a round.
@pytest.mark.parametrize("method", ["fedper", "finetuned", "fedrep"])
@pytest.mark.parametrize("results", [None, "there"])
def test_the_model_of_a_client_has_the_accuracy_that_was_recorded(method, results):
    made = fedgrid.run(method, results=results, **OWN)
    assert accuracies(made) == pytest.approx(recorded(made))
    assert made.own_accuracy == made.metrics["own_weighted"].iloc[-1]
    has_server = method == "finetuned"
    server = f"accuracy {made.accuracy:.4f}, " * has_server
    assert f"seed0: {server}own accuracy {made.own_accuracy:.4f} after 2 rounds" in repr(made)
    assert repr(pickle.loads(pickle.dumps(made))) == repr(made)  # from another process


def test_clients_keep_models_that_differ():
    made = fedgrid.run("fedper", **OWN | {"participation": 1.0})
    first, second = (made.client_model(client).state_dict() for client in (0, 1))
    differ = {name for name in first if not torch.equal(first[name], second[name])}
    assert differ == {"head.weight", "head.bias"}
    shared = {name: first[name] for name in made.parameters}
    assert all(torch.equal(shared[name], of) for name, of in made.parameters.items())


def test_a_method_of_the_notebook_has_models_of_clients_too():
    made = fedgrid.run(fedgrid.load_method("fedper"), name="mine", **OWN)
    assert accuracies(made) == pytest.approx(recorded(made))


def test_features_are_what_the_last_layer_is_given():
    made = fedgrid.run(**FEW)
    samples = np.arange(2 * 64, dtype=np.uint8).reshape(2, 1, 8, 8)
    found = made.features(samples)
    assert found.dtype == np.float32
    with torch.no_grad():
        logits = made.model.head(torch.from_numpy(found))
    expected = made.predict(samples, probabilities=True)
    np.testing.assert_allclose(logits.softmax(1).numpy(), expected, rtol=1e-5)


def test_a_model_that_is_not_there_is_refused():
    samples = np.zeros((1, 1, 8, 8), np.uint8)
    fedper = {
        4: "there is no client 4: the clients are 0 to 3",
        -1: "there is no client -1",
        "a": "there is no client a",
        None: "clients keep head",
    }
    for method, refused in (("fedavg", {0: "no models of their own"}), ("fedper", fedper)):
        made = fedgrid.run(method, **OWN)
        for client, message in refused.items():
            with pytest.raises(UsageError, match=message):
                made.features(samples, client)


def test_a_state_that_was_not_kept_is_named(monkeypatch):
    monkeypatch.setenv("FEDGRID_KEEP_STATE_GB", "0")
    made = fedgrid.run("fedper", **OWN)
    for _ in range(2):
        with pytest.raises(UsageError, match="keep_state_gb"):
            made.client_model(0)


# -- fedgrid features -----------------------------------------------------------------------------


def written(run: fedgrid.Result, *options: str) -> dict[str, np.ndarray]:
    name = RUN.format(**run.spec["name"])
    features.main([name, "--out", "out.npz", *options])
    with np.load("out.npz") as found:
        return {**found}


@pytest.mark.parametrize(("method", "client"), [("fedavg", None), ("fedper", 2)])
def test_the_command_writes_the_features_of_the_test_set(method, client):
    made = fedgrid.run(method, results="results", **OWN)
    options = [] if client is None else ["--client", str(client)]
    found = written(made, *options)
    (meta,) = Path("results/data").rglob("meta.json")
    data = stored.open_data(meta.parent)
    assert found["labels"].tolist() == data.test_labels.tolist()
    np.testing.assert_array_equal(found["features"], made.features(data.test_images, client))
    expected = made.predict(data.test_images, client=client)
    assert found["predicted"].tolist() == expected.tolist()


def test_a_run_whose_server_has_no_model_needs_a_client():
    made = fedgrid.run("fedper", results="results", **OWN)
    with pytest.raises(UsageError, match="--client 0"):
        written(made)
    with pytest.raises(UsageError, match="there is no client 9"):
        written(made, "--client", "9")
    with pytest.raises(UsageError, match=r"metrics.csv is missing: make it with .* train "):
        features.main(["fedsls-quick/digits/dir0.1/moon/seed0"])
    assert not Path("out.npz").exists()
