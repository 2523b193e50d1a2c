"""`fedgrid.run` in a notebook: the numbers of the command line, and errors of one sentence."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import torch

import fedgrid
from conftest import ENVIRONMENT
from fedgrid import notebook
from fedgrid.runtime.names import PACKAGE, UsageError, registered
from fedgrid.study.paths import RUN

SHORT = {"rounds": 2, "evaluate_every": 1}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A folder without a config.yaml."""
    monkeypatch.chdir(tmp_path)


def pull(mu: float) -> fedgrid.Method:
    """A method as a notebook has it."""

    def near(step: fedgrid.Step) -> torch.Tensor:
        return mu * (step.params["head.weight"] - step.server["head.weight"]).square().sum()

    return fedgrid.Method(penalty=near)


def command(stage: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", f"fedgrid.{stage}", *arguments], check=True, capture_output=True,
        env=ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> fedgrid.Result:
    return fedgrid.run(**SHORT)


def test_importing_the_package_imports_nothing_else():
    code = "import sys, fedgrid; print(*(m for m in sys.modules if m[:8] in ('torch', 'fedgrid.')))"
    environment = ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.stdout.split() == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedprox", "fedsls", "fedsl-f2"])
def test_a_run_has_the_bytes_of_the_command_line(method, tmp_path):
    there = fedgrid.run(method, results="there", dataset="digits", seed=1, **SHORT)
    name = RUN.format(**there.spec["name"])
    command("data", "digits")
    command("partition", name)
    for stage in {"fedsls": ("pretrain", "saliency"), "fedsl-f2": ("latents",)}.get(method, ()):
        command(stage, name)
    command("train", name)
    for file in ("metrics.csv", "predictions.csv", "model.safetensors"):
        here, other = (tmp_path / folder / "runs" / name / file for folder in ("results", "there"))
        assert here.read_bytes() == other.read_bytes()


def test_a_result_has_tables_settings_and_a_model_that_classifies(plain):
    assert plain.metrics["round"].tolist() == [0, 1, 2]
    assert plain.spec["protocol"]["rounds"] == plain.summary["rounds"] == 2
    assert plain.spec["method"] == {"fedavg": {}}
    assert set(plain.predictions.columns) == {"round", "class", "predicted"}
    assert not plain.model.training
    features, logits = plain.model(torch.zeros(3, 1, 8, 8))
    assert (len(features), logits.shape) == (3, (3, 10))
    assert "fedsls-quick-rounds2" in repr(plain)
    assert "\n" not in repr(plain)


def test_values_are_of_the_protocol_or_of_the_method(plain):
    spec = fedgrid.run("fedprox", mu=0.5, lr=0.2, metrics=["macro_f1"], **SHORT).spec
    assert spec["method"] == {"fedprox": {"mu": 0.5}}
    assert (spec["protocol"]["lr"], spec["protocol"]["metrics"]) == (0.2, ["macro_f1"])
    assert spec["name"]["method"] == "fedprox-mu0.5"


def test_entries_of_a_configuration_can_be_named():
    config = {
        "protocols": {"short": {"base": "fedsls-quick", "rounds": 1, "evaluate_every": 1}},
        "variants": {"both": {"fedprox": {"mu": 0.5}, "fedavgm": {}}},
    }
    made = fedgrid.run("both", protocol="short", config=config)
    assert made.spec["method"].keys() == {"fedprox", "fedavgm"}
    assert made.summary["rounds"] == 1


def test_a_method_of_the_notebook_is_trained(plain):
    same, held = (fedgrid.run(pull(mu), name="pull", **SHORT) for mu in (0.0, 100.0))
    pd.testing.assert_frame_equal(same.metrics, plain.metrics)
    assert not held.metrics.equals(plain.metrics)
    assert held.spec["name"]["method"] == "pull"


def test_a_method_of_a_file_can_be_combined_with_one_of_the_notebook(plain):
    both = fedgrid.run(fedgrid.load_method("fedprox", mu=0.0) | pull(0.0), name="both", **SHORT)
    pd.testing.assert_frame_equal(both.metrics, plain.metrics)


def test_a_kept_run_is_not_trained_again(monkeypatch):
    first = fedgrid.run(results="kept", **SHORT)
    monkeypatch.setattr("fedgrid.train.run_rounds", None)
    again = fedgrid.run(results="kept", **SHORT)
    assert again.summary == first.summary


def test_the_process_is_as_before():
    handler = signal.getsignal(signal.SIGTERM)
    threads = torch.get_num_threads()
    fedgrid.run(threads=2, **SHORT)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert torch.get_num_threads() == threads


def test_the_server_has_no_model_if_clients_keep_a_part():
    made = fedgrid.run("fedper", client_test=0.2, **SHORT)
    assert not made.clients.empty
    assert not [name for name in made.parameters if name.startswith("head.")]
    with pytest.raises(UsageError, match="clients keep head"):
        _ = made.model


def test_the_model_is_the_part_that_the_server_has():
    made = fedgrid.run("sps", client_test=0.2, **SHORT)
    _, logits = made.model(torch.zeros(3, 1, 8, 8))
    assert logits.shape == (3, 10)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": fedgrid.Method()}, "a Method needs a name"),
        ({"method": fedgrid.Method(), "name": "moon"}, "is a method of fedgrid already"),
        ({"method": fedgrid.Method(), "name": "a/b"}, "only letters, digits"),
        ({"method": fedgrid.Method(), "name": "a", "mu": 1}, "no protocol's field is called `mu`"),
        ({"method": fedgrid.Method(private=("head.",)), "name": "a"}, "`client_test`"),
        ({"method": "fedprox", "beta": 1}, "no hyper-parameter of fedprox or field"),
        ({"method": "fedprocks"}, "did you mean fedprox"),
        ({"method": "fedprox", "mu": "much"}, "mu is 'much'"),
        ({"dataset": "digit"}, "did you mean digits"),
        ({"partition": "dir"}, "no partition is called"),
        ({"protocol": "fedsls-quik"}, "did you mean fedsls-quick"),
        ({"rounds": 0}, "less than the minimum"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(given, says, tmp_path):
    with pytest.raises(UsageError, match=says) as caught:
        fedgrid.run(results="made", **given)
    assert "\n" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


def test_another_thread_is_refused():
    with ThreadPoolExecutor() as pool, pytest.raises(UsageError, match="main thread only"):
        pool.submit(fedgrid.run).result()


def test_names_can_be_listed():
    assert fedgrid.list_names("methods") == registered("methods")
    assert "fedsls-quick" in fedgrid.list_names("protocols")
    with pytest.raises(UsageError, match="did you mean methods"):
        fedgrid.list_names("method")


def test_a_name_that_two_have_is_refused(monkeypatch):
    monkeypatch.setitem(notebook.PROTOCOL, "mu", 0.1)
    with pytest.raises(UsageError, match="write it into one of their names"):
        fedgrid.run("fedprox", mu=0.1)
