"""`fedgrid.run` in a notebook: the numbers of the command line, and errors of one sentence."""

import copy
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedgrid
from conftest import ENVIRONMENT, read_once
from fedgrid.commands import verify
from fedgrid.engine import prediction
from fedgrid.federation import stored
from fedgrid.notebook import api, names, stages
from fedgrid.runtime import own_config
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, registered
from fedgrid.runtime.places import PACKAGE
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.runtime.watch import progress
from fedgrid.study.command import Machine, run_of_name
from fedgrid.study.paths import RUN
from fedgrid.study.protocol import PROTOCOL, SCHEMAS

SHORT = {"rounds": 2, "evaluate_every": 1}
ONE = {"rounds": 1, "evaluate_every": 1, "local": 1, "clients": 10}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A folder without a config.yaml."""
    monkeypatch.chdir(tmp_path)
    read_once(monkeypatch, api, names)


def pull(mu: float) -> fedgrid.Method:
    """A method as a notebook has it."""

    def near(step: fedgrid.Step) -> torch.Tensor:
        return mu * (step.params["head.weight"] - step.server["head.weight"]).square().sum()

    return fedgrid.Method(penalty=near)


def command(stage: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "fedgrid", stage, *arguments], check=True, capture_output=True,
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


@pytest.mark.slow  # no small model has running statistics
@pytest.mark.parametrize(("model", "dataset"), [("resnet18", "digits"), ("vgg16_bn", "penmanship")])
def test_a_model_with_running_statistics_has_those_of_the_run(model, dataset):
    made = fedgrid.run(model=model, dataset=dataset, **ONE)
    statistics = {n: w for n, w in made.model.state_dict().items() if "running" in n}
    assert statistics
    assert all(torch.equal(w, made.parameters[name]) for name, w in statistics.items())
    assert not torch.equal(made.model.state_dict()["head.weight"], made.build().head.weight)


@pytest.mark.parametrize("model", ["cnn", "resnet8"])  # its BatchNorm mixes images of a batch
def test_predictions_are_those_of_the_run(model):
    made = fedgrid.run(model=model, results="there", **ONE | {"rounds": 3})
    data = stored.open_data(Path("there/data/digits"))
    found = made.predict(data.test_images)
    assert found.dtype == np.int64
    assert np.mean(found == data.test_labels) == pytest.approx(made.accuracy)
    last = made.predictions[made.predictions["round"] == 3].set_index("class")["predicted"]
    assert np.bincount(found, minlength=10).tolist() == last.tolist()
    shares = made.predict(data.test_images, probabilities=True)
    assert (shares.argmax(1) == found).all()
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert made.predict(data.test_images[:0]).shape == (0,)
    some = torch.from_numpy(data.test_images[:5].copy())
    if model == "cnn":
        assert (made.predict(some) == made.predict(data.test_images)[:5]).all()
        assert (made.predict(data.test_images[:5, 0]) == found[:5]).all()  # without the one channel


def test_predictions_can_be_made_in_several_threads(plain):
    samples = np.zeros((2, *plain.inputs.shape), np.uint8)
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(plain.predict, [samples] * 4)]
    assert all((one == plain.predict(samples)).all() for one in found)
    with ThreadPoolExecutor() as pool, pytest.raises(UsageError, match="main thread only"):
        pool.submit(fedgrid.run).result()


def test_vectors_and_tokens_are_predicted_as_they_are_given(tmp_path):
    arrays(0)
    made = fedgrid.run(dataset="npz:mine.npz", partition="iid", model="mlp", **ONE)
    with np.load("mine.npz") as mine:
        found = made.predict(mine["x_test"])
        assert np.mean(found == mine["y_test"]) == pytest.approx(made.accuracy)
    inputs = prediction.Inputs((5,), [], [], tokens=7)
    module = torch.nn.Sequential(torch.nn.Embedding(7, 3), torch.nn.Flatten())
    found = prediction.predict(lambda x: (x, module(x)), inputs, np.full((2, 5), 6))
    assert found.shape == (2, 15)
    with pytest.raises(UsageError, match="take tokens from 0 to 6, and these are from 7 to 7"):
        prediction.predict(module, inputs, np.full((2, 5), 7))


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (torch.zeros(2, 1, 8, 8), r"uint8 from 0 to 255 of the shape \(n, 1, 8, 8\).*float32"),
        (np.zeros((2, 3, 8, 8), np.uint8), r"these are uint8 \(2, 3, 8, 8\)"),
        (np.zeros((8, 8), np.uint8), r"these are uint8 \(8, 8\).*one alone as `samples\[None\]`"),
        (np.uint8(3), r"these are uint8 \(\)"),
        ("digits", r"these are <U6 \(\)"),
    ],
)
def test_samples_of_another_kind_are_not_predicted(plain, samples, says):
    with pytest.raises(UsageError, match=says):
        plain.predict(samples)


def test_what_is_not_a_number_is_no_class():
    assert prediction.classes(torch.tensor([[0.2, 0.8], [torch.nan, 1]])).tolist() == [1, -1]


def test_values_are_of_the_protocol_or_of_the_method(monkeypatch):
    numpys = {"mu": np.float64(0.5), "rounds": np.int64(1)}
    made = fedgrid.run("fedprox", lr=0.2, metrics=["macro_f1"], **ONE | numpys)
    assert made.spec["method"] == {"fedprox": {"mu": 0.5}}
    assert (made.spec["protocol"]["lr"], made.spec["protocol"]["metrics"]) == (0.2, ["macro_f1"])
    assert made.spec["name"]["method"] == "fedprox-mu0.5"
    assert made.summary["rounds"] == 1
    monkeypatch.setitem(PROTOCOL, "mu", 0.1)
    with pytest.raises(UsageError, match="write it into one of their names"):
        fedgrid.run("fedprox", mu=0.1)


def test_entries_of_a_configuration_can_be_named():
    config = {
        "protocols": {"short": {"base": "fedsls-quick", "rounds": 1, "evaluate_every": 1}},
        "variants": {"both": {"fedprox": {"mu": 0.5}, "fedavgm": {}}},
    }
    made = fedgrid.run("both", protocol="short", config=config)
    assert made.spec["method"].keys() == {"fedprox", "fedavgm"}
    assert made.summary["rounds"] == 1


def test_a_method_of_the_notebook_is_trained(plain):
    given = {"name": "pull", "results": "there"} | SHORT
    same, held = (fedgrid.run(pull(mu), **given) for mu in (0.0, 100.0))
    assert not [*Path("there").rglob("model.safetensors")]  # no file has the code of its run
    pd.testing.assert_frame_equal(same.metrics, plain.metrics)
    assert not held.metrics.equals(plain.metrics)
    assert held.spec["name"]["method"] == "pull"


def test_a_method_of_a_file_can_be_combined_with_one_of_the_notebook(plain):
    both = fedgrid.run(fedgrid.load_method("fedprox", mu=0.0) | pull(0.0), name="both", **SHORT)
    pd.testing.assert_frame_equal(both.metrics, plain.metrics)
    with pytest.raises(UsageError, match="fedsls needs the stage saliency"):
        fedgrid.load_method("fedsls")


def test_a_kept_run_is_not_trained_again(monkeypatch):
    first = fedgrid.run(results="kept", **SHORT)
    monkeypatch.setattr("fedgrid.stages.train.run_rounds", None)
    again = fedgrid.run(results="kept", **SHORT)
    assert again.summary == first.summary


def test_an_input_that_several_need_is_made_once(monkeypatch):
    config = names.read_configuration(None, "digits")
    called = {"protocol": "fedsls-quick", "dataset": "digits", "partition": "dir0.1", "seed": 0}
    spec = names.resolve_run(called | {"method": "fedavg"}, {}, config, None)
    given = spec, Path("there"), Path("data"), Machine("cpu", "auto", 1)
    command, made = stages.run_command, []

    def command_slowly(stage: str, *what) -> None:
        made.append(stage)
        time.sleep(0.2)
        command(stage, *what)

    monkeypatch.setattr(stages, "run_command", command_slowly)
    with ThreadPoolExecutor(4) as pool:  # stand for processes: each waits for the others' files
        list(pool.map(lambda _: stages.make_inputs(*given), range(4)))
    assert made == ["data", "partition"]
    assert not [*Path("there").rglob("*.lock")]


@pytest.mark.slow
def test_a_file_without_a_record_is_taken_unless_its_data_are_made_again():
    kept = {"partition": "iid", "results": "there"}
    fedgrid.run(**kept, **ONE)
    (file,) = Path("there").rglob("seed0.npz")
    record = file.with_name(".seed0.npz.record")
    record.unlink()
    fedgrid.run("fedprox", **kept, **ONE)
    assert not record.exists()
    Path("there/data/digits/meta.json").unlink()
    fedgrid.run("fedavgm", **kept, **ONE)
    assert record.exists()


def test_the_process_is_as_before(monkeypatch):
    monkeypatch.setenv(own_data.VARIABLE, '{"mine": {"npz": "mine.npz"}}')
    handler, stop = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    threads, variable = torch.get_num_threads(), os.environ.get(own_data.VARIABLE)
    torch.manual_seed(7)
    drawn = torch.rand(1)
    torch.manual_seed(7)
    fedgrid.run(threads=2, **ONE)
    assert torch.rand(1) == drawn
    assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.getsignal(signal.SIGINT) is stop
    assert torch.get_num_threads() == threads
    assert os.environ.get(own_data.VARIABLE) == variable


SAMPLES = np.arange(2 * 64, dtype=np.uint8).reshape(2, 1, 8, 8)


@contextmanager
def unusual_settings():
    """A session whose settings of torch are others than those of a new process."""
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with (
            torch.inference_mode(),
            torch.autocast("cpu", torch.float16),
            torch.backends.mkldnn.flags(enabled=False),
        ):
            yield
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_default_dtype() is torch.float64
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_settings_of_the_session_change_neither_numbers_nor_predictions(backend):
    plain = fedgrid.run(backend=backend, **ONE)
    with unusual_settings():
        made = fedgrid.run(backend=backend, **ONE)
        given = made.predict(SAMPLES, probabilities=True)
    pd.testing.assert_frame_equal(made.metrics, plain.metrics)
    assert all(torch.equal(plain.parameters[n], made.parameters[n]) for n in plain.parameters)
    assert (given == plain.predict(SAMPLES, probabilities=True)).all()


def arrays(seed: int, number: int = 200) -> None:
    """Vectors of three classes for `npz:mine.npz`; another seed gives other numbers."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(number, 4)), np.arange(number) % 3
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x[:60], y_test=y[:60])


@pytest.mark.slow
def test_other_data_of_the_same_name_make_another_run():
    given = {"dataset": "npz:mine.npz", "partition": "iid", "model": "mlp"} | ONE
    arrays(0)
    first = fedgrid.run(**given, results="there")
    arrays(1)
    second = fedgrid.run(**given, results="there")
    assert not second.metrics.equals(first.metrics)
    arrays(1, number=100)
    for seed in (1, 0):
        made = fedgrid.run(**given, seed=seed, results="there")
        alone = fedgrid.run(**given, seed=seed)
        pd.testing.assert_frame_equal(made.metrics, alone.metrics)


@pytest.mark.slow
def test_files_of_commands_are_made_again_for_other_data():
    name = "fedsls-quick-modelmlp-rounds2-evaluate_every1/mine/iid/fedavg/seed0"
    Path("config.yaml").write_text("datasets: {mine: {npz: mine.npz}}")
    given = {"dataset": "mine", "partition": "iid", "model": "mlp"}
    arrays(0)
    for stage, what in (("data", "mine"), ("partition", name), ("train", name)):
        command(stage, what)
    arrays(1, number=100)
    made = fedgrid.run(**given, results="results", **SHORT)
    assert RUN.format(**made.spec["name"]) == name
    pd.testing.assert_frame_equal(made.metrics, fedgrid.run(**given, **SHORT).metrics)


def test_files_of_a_notebook_are_verified(capsys):
    fedgrid.run(results="results", **SHORT)
    records = {path: path.read_text() for path in Path("results").rglob(".*.record")}
    assert any('"fedgrid.commands.train"' in text for text in records.values())
    assert not any("analysis.latex" in text for text in records.values())
    verify.main(["results"])
    said = capsys.readouterr().out
    assert "0 altered, 0 missing, 0 stale, 0 unknown, 0 unrecorded" in said


def test_an_interrupted_run_goes_on(plain, monkeypatch):
    long = ONE | {"rounds": 200, "evaluate_every": 50, "model": "mlp"}
    whole = fedgrid.run(**long)
    began = threading.Event()

    def interrupt() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    step = progress.Rounds.step
    monkeypatch.setattr(
        progress.Rounds, "step", lambda self, row: (began.set(), step(self, row))[1]
    )
    thread = threading.Thread(target=interrupt, daemon=True)  # no hang if no round begins
    thread.start()
    with pytest.raises(KeyboardInterrupt, match="the same command resumes"):
        fedgrid.run(results="there", **long)
    thread.join()
    rest = fedgrid.run(results="there", **long)
    assert rest.summary["resumed_at"] > 0
    pd.testing.assert_frame_equal(rest.metrics, whole.metrics)


EDITED = """
import fedgrid, pathlib, sys
file = pathlib.Path(fedgrid.__file__).parent / "methods/zz.py"
text = ''''Z.'
from fedgrid.method import Method


def method(mu: float = 1.0) -> Method:
    'mu weighs.'
    return Method(penalty=lambda step: FACTOR * step.params["head.weight"].square().sum())
'''
found = []
for factor in (0, 50, 0):
    file.write_text(text.replace("FACTOR", str(factor)))
    found.append(fedgrid.run("zz", rounds=2, evaluate_every=1, results="there").metrics)
print(found[0].equals(found[1]), found[0].equals(found[2]))
round = pathlib.Path(fedgrid.__file__).parent / "engine/round.py"
round.write_text(round.read_text() + "NEW = 1\\n")
try:
    fedgrid.run(rounds=2)
except fedgrid.UsageError as problem:
    print(problem)
"""


@pytest.mark.slow
def test_an_edited_method_is_imported_again_and_other_edited_code_is_refused(tmp_path):
    shutil.copytree(PACKAGE.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("*.pyc"))
    environment = ENVIRONMENT | {"PYTHONPATH": str(tmp_path / "copy")}
    command = [sys.executable, "-c", EDITED]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    first, second = done.stdout.splitlines()
    assert first == "False True", done.stderr
    assert second.startswith("fedgrid/engine/round.py was edited")


def first(cohort, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """An `aggregate` that takes the change of the first client."""
    return {name: delta[0] for name, delta in cohort.deltas.items()}


@pytest.mark.slow
def test_a_placebo_of_weights_needs_an_aggregate_that_uses_them():
    alone = fedgrid.Method(aggregate=first)
    short = SHORT | {"local": 1}
    made = fedgrid.run(alone, name="first", **short)
    assert made.metrics["effective_clients"].isna().all()
    assert made.metrics["train_loss"].notna().tolist() == [False, True, True]
    for placebo in ("swapped_weights", "random_weights", "power", "fednova"):
        with pytest.raises(UsageError, match="`both` has an `aggregate` that does not use"):
            fedgrid.run(alone | fedgrid.load_method(placebo), name="both", **short)
    uses = fedgrid.Method(aggregate=first, uses_weights=True)
    both = fedgrid.run(uses | fedgrid.load_method("swapped_weights"), name="both", **short)
    assert both.metrics["effective_clients"].notna().tolist() == [False, True, True]


def test_a_method_of_the_notebook_has_equations_for_an_optimiser_too():
    both = fedgrid.load_method("scaffold") | pull(0.1)
    with pytest.raises(UsageError, match="of method `both` do not hold for the optimiser adam"):
        fedgrid.run(both, name="both", optimiser="adam", **SHORT)
    with pytest.raises(UsageError, match="of method `scaffold` do not hold for the optimiser"):
        fedgrid.run("scaffold", optimiser="adam", **SHORT)


def test_the_server_has_no_model_if_clients_keep_a_part():
    made = fedgrid.run("fedper", client_test=0.2, **ONE)
    assert not made.clients.empty
    assert not [name for name in made.parameters if name.startswith("head.")]
    for use in (lambda: made.model, lambda: made.predict(np.zeros((1, 1, 8, 8), np.uint8))):
        with pytest.raises(UsageError, match="clients keep head"):
            use()
    _, logits = fedgrid.run("sps", client_test=0.2, **ONE).model(torch.zeros(3, 1, 8, 8))
    assert logits.shape == (3, 10)  # of the part that the server has


def near(step: fedgrid.Step) -> torch.Tensor:  # a function that can be pickled
    return (step.params["head.weight"] - step.server["head.weight"]).square().sum()


def test_a_result_can_be_pickled_and_copied(tmp_path):
    shown = {"samples": SAMPLES, "probabilities": True}
    named = fedgrid.run("ditto", client_test=0.2, results="kept", **ONE)
    for copied in (pickle.loads(pickle.dumps(named)), copy.deepcopy(named)):
        assert (copied.predict(**shown) == named.predict(**shown)).all()
        assert (copied.predict(**shown, client=1) == named.predict(**shown, client=1)).all()
    gone = fedgrid.run("ditto", client_test=0.2, **ONE)
    copied = pickle.loads(pickle.dumps(gone))
    assert copied.metrics.equals(gone.metrics)
    with pytest.raises(UsageError, match="no models of clients"):
        copied.predict(**shown, client=1)
    own = fedgrid.run(fedgrid.Method(penalty=near), name="near", **ONE)
    assert (pickle.loads(pickle.dumps(own)).predict(**shown) == own.predict(**shown)).all()
    copied = pickle.loads(pickle.dumps(fedgrid.run(pull(0.1), name="pull", **ONE)))
    assert copied.parameters.keys() == own.parameters.keys()
    with pytest.raises(UsageError, match="does not pickle"):
        copied.predict(**shown)


UNREAD = {"method": "fedprox", "seed": 3, "partition": "iid", "sweep": {}, "study": "fedlmd"}
UNREAD |= {"dataset": "mnist", "protocol": "fedlmd", "backend": "stacked", "log": "none"}


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
        ({"learning_rate": 0.1}, r"is called `learning_rate`: did you mean lr\?"),
        ({"method": "fedprox", "batch_size": 8}, r"is called `batch_size`: did you mean batch\?"),
        ({"method": "fedprox", "mu": "much"}, "mu is 'much'"),
        ({"dataset": "digit"}, "did you mean digits"),
        ({"partition": "dir"}, "no partition is called"),
        ({"protocol": "fedsls-quik"}, "did you mean fedsls-quick"),
        ({"rounds": 0}, "less than the minimum"),
        ({"device": "gpu"}, "no device is called `gpu`"),
        ({"backend": "loops"}, "did you mean loop"),
        ({"threads": None}, "threads is None: give a whole number from 1 on"),
        ({"data_root": 5}, "data_root is 5: give the path"),
        ({"dataset": None}, "dataset is None: give a name"),
        ({"method": fedgrid.Method, "name": ""}, "give a name or a Method"),
        ({"method": "fedprox", "name": "x"}, "leave it out"),
        ({"method": fedgrid.Method(), "name": 3}, "only letters, digits"),
        ({"seed": -1}, "seed is -1: give a whole number"),
        ({"seed": True}, "seed is True: give a whole number"),
        ({"seed": 1.0}, "seed is 1.0: give a whole number"),
        *(({"config": {key: value}}, f"config has `{key}`") for key, value in UNREAD.items()),
        ({"config": 0}, "config is no mapping"),
        ({"config": {"datasets": {"z": {"npz": "x", "size": 3}}}}, "`size`, which is not read"),
        ({"config": {"datasets": {"z": {"folder": "x", "tokens": 3}}}}, "`tokens`, which is not"),
        ({"config": {"protocolls": {}}}, "protocolls"),
        ({"config": {"datasets": {"../up": {"folder": "x"}}}}, "up"),
        ({"config": {"datasets": {"z": {"folder": "x", "sise": 3}}}}, "sise"),
        ({"config": {"variants": {"duo": ["fedprox"]}}}, "duo"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(given, says, tmp_path):
    with pytest.raises(UsageError, match=says) as caught:
        fedgrid.run(results="made", **given)
    assert "\n" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []


FOREIGN = {
    "Hydra": "defaults: [model: cnn]\nhydra: {run: {dir: out}}\nseed: 1\nlr: ${optim.lr}\n",
    "names of fedgrid with other values": "dataset: {name: cifar10}\nseed: all\nmethod: {lr: 1}\n",
    "more unknown keys than known ones": "datasets: [a]\nscale: 2\nmodel: b\noptim: c\nlr: 1\n",
    "a list": "- a\n- b\n",
    "tags of its own": "include: !include other.yaml\ndatasets_path: x\n",
    "no YAML": "{% if x %}\na: [\n{% endif %}\n",
    "no text": b"\xff\xfe\x00a",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_config_yaml_of_another_program_is_ignored_with_a_warning(name, caplog):
    text = FOREIGN[name]
    Path("config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    run = "fedsls-quick/digits/dir0.1/fedavg/seed0"
    assert run_of_name(run)["dataset"] == "digits"
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "the config.yaml of this folder is ignored, because it is not fedgrid's" in warning
    assert "\n" not in warning
    assert names.read_configuration(None, "digits")["dataset"] == ["digits"]


@pytest.mark.parametrize(
    "text",
    [
        "protocls: {mine: {base: fedsls}}",
        "variants: {mine: {fedprox: {mu: a}}}\nmethod: [fedavg]\nlr: 1",
        "study: fedsls\nscale: quick\ndatasets: [a]\nlearning_rate: 1",
        '{"protocols": {"mine": {"bases": "fedsls"}}}',
        "protocols: {mine: {base: fedsls}\n",
    ],
)
def test_a_wrong_config_yaml_of_fedgrid_is_not_ignored(text):
    Path("config.yaml").write_text(text)
    with pytest.raises(UsageError, match="config"):
        run_of_name("fedsls-quick/digits/dir0.1/fedavg/seed0")


def test_in_a_checkout_every_config_yaml_is_that_of_fedgrid():
    Path("workflow/fedgrid").mkdir(parents=True)
    Path("config.yaml").write_text(FOREIGN["Hydra"])
    with pytest.raises(UsageError, match=r"config.yaml: no key is called `defaults`"):
        run_of_name("fedsls-quick/digits/dir0.1/fedavg/seed0")


def test_the_keys_of_a_configuration_are_those_of_its_schema():
    schema = load_yaml((SCHEMAS / "config.schema.yaml").read_bytes())
    assert {*own_config.OWN, *own_config.SHARED} == {*schema["properties"]}


def test_names_can_be_listed():
    assert fedgrid.list_names("methods") == registered("methods")
    assert "fedsls-quick" in fedgrid.list_names("protocols")
    with pytest.raises(UsageError, match="did you mean methods"):
        fedgrid.list_names("method")
