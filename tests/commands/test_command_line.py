"""What people meet at the command line: help at once, and mistakes answered in one sentence.

A mistake must fail, name what is wrong and the nearest right names, show no traceback, and leave
everything that has been made as it is. Most are made in this process, where the sentence is an
error; a few in a process of their own, whose exit status and streams are what people see.
"""

import ast
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import conftest
from conftest import forget
from fedgrid.experiments import costs
from fedgrid.experiments.fidelity.setting import check_setting
from fedgrid.runtime import cli, download
from fedgrid.runtime.code import source
from fedgrid.runtime.names import PACKAGE, UsageError, registered
from fedgrid.study import command, reading
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.reading import check_config, merge_configs, read_config, read_studies
from made import STUDIES

STAGES = [
    *(f"commands.{name}" for name in registered("commands")),
    "experiments.costs",
    *(f"experiments.fidelity.{part}" for part in ("originals", "maps", "scores")),
]
# What takes long to import, and what help needs nothing of.
SLOW = {"torch", "torchvision", "sklearn", "pandas", "matplotlib", "scipy", "skimage", "snakemake"}
NO_NETWORK = {"https_proxy": "http://127.0.0.1:9"}
ENVIRONMENT = (
    conftest.ENVIRONMENT
    | NO_NETWORK
    | {
        "PYTHONPATH": "workflow",
        "CUDA_VISIBLE_DEVICES": "",  # no GPU
    }
)
QUICK = "fedsls-quick/digits/dir0.1"
PARTITION = "results/partition/digits/dir0.1/classwise-5/seed0.npz"
FIVE = f"--set clients=5 rounds=1 --inputs partition={PARTITION}"  # a run on what has been made


def call(project: Path, *command) -> subprocess.CompletedProcess:
    """Run a command in the project."""
    return subprocess.run(
        [*map(str, command)], cwd=project, env=ENVIRONMENT, text=True, timeout=600,
        capture_output=True,
    )  # fmt: skip


def stage(arguments: str) -> None:
    """What `python -m fedgrid <arguments>` does, in this process."""
    name, *rest = shlex.split(arguments)
    module = name if "." in name else f"commands.{name}"
    import_module(f"fedgrid.{module}").main(rest)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with data, a partition over five clients, and a table that must not be touched."""
    folder = conftest.copied(tmp_path_factory.mktemp("project"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        stage("data digits")
        stage(f"partition {QUICK}/fedavg/seed0 --set clients=5 --out {PARTITION}")
    (folder / "results/table1.csv").write_text("of last week\n")
    return folder


# -- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STAGES)
def test_help_says_what_the_stage_does_and_imports_nothing_that_takes_long(name, tmp_path):
    command = (sys.executable, "-X", "importtime", "-m", f"fedgrid.{name}", "--help")
    environment = ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)}
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=600
    )
    text = (PACKAGE / f"{name.replace('.', '/')}.py").read_text()
    assert process.returncode == 0
    called = f"python -m fedgrid.{name}".replace("python -m fedgrid.commands.", "fedgrid ")
    assert process.stdout.startswith(f"usage: {called} [")
    assert ast.get_docstring(ast.parse(text)).splitlines()[0] in process.stdout
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert "argparse" in imported
    assert not imported & SLOW


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_may_be_read_in_part(unbuffered):
    reads, writes = os.pipe()
    os.close(reads)  # as `head` does, once it has its lines
    environment = ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent), "PYTHONUNBUFFERED": unbuffered}
    process = subprocess.run(
        (sys.executable, "-m", "fedgrid"), env=environment, text=True, stdout=writes,
        stderr=subprocess.PIPE, timeout=600,
    )  # fmt: skip
    os.close(writes)
    assert (process.returncode, process.stderr) == (0, "")


# -- mistakes in what is configured ---------------------------------------------------------------


class Mistake(NamedTuple):
    """A configuration that is wrong, or a study or file of the package that was edited."""

    given: tuple[str, ...] = ()  # --config key=value
    keys: dict | None = None  # --configfile
    edited: tuple[str, str, str] | None = None  # a file of workflow/, what is there, and instead


def config(*pairs: str) -> Mistake:
    """Given on the command line: --config key=value."""
    return Mistake(given=pairs)


def overlay(**keys) -> Mistake:
    """Given in a file: --configfile overlay.yaml."""
    return Mistake(keys=keys)


def protocol(**fields) -> Mistake:
    """A protocol of one's own, based on the quick one."""
    return overlay(protocols={"mine": {"base": "fedsls-quick"} | fields}, protocol="mine")


def variant(**parts) -> Mistake:
    """A method of one's own, put together from files."""
    return overlay(variants={"mine": parts}, method="mine")


def study(old: str, new: str) -> Mistake:
    """A study that was edited."""
    return Mistake(edited=("studies/fedsls.yaml", old, new))


def file(name: str, old: str, new: str) -> Mistake:
    """A file of the package that was edited."""
    return Mistake(edited=(f"fedgrid/{name}", old, new))


def edit(workflow: Path, name: str, old: str, new: str) -> None:
    """Replace what is there exactly once."""
    text = (workflow / name).read_text()
    assert text.count(old) == 1
    (workflow / name).write_text(text.replace(old, new))


CONFIGURED = {  # the mistake, and words of the sentence that answers it
    "unknown scale": (config("scale=papr"), "scale", "papr", "paper"),
    "unknown study": (config("study=fedslss"), "study", "fedslss", "mean fedsls "),
    "unknown dataset": (config("dataset=digts"), "dataset", "digts", "digits"),
    "unknown method": (config("method=fedavgg"), "method", "fedavgg", "fedavg "),
    "unknown protocol": (config("protocol=fedsls-quik"), "protocol", "fedsls-quik", "fedsls-quick"),
    "unknown key": (config("sead=0"), "config.yaml", "sead", "seed"),
    "no whole seed": (config("seed=one"), "seed", "one"),
    "unknown tracker": (config("log=wandb,tensorbord"), "tracker", "tensorbord", "tensorboard?"),
    "number for a tracker": (overlay(log=3), "log", "3"),
    "text for threads": (config("threads=two"), "threads", "two", "a whole number"),
    "alpha of 0": (config("partition=dir0"), "partition", "dir0", "above 0"),
    "negative alpha": (config("partition=dir-1"), "partition", "dir-1", "above 0"),
    "unknown partition": (config("partition=foo"), "partition", "foo", "dir0.1"),
    "unknown hyper-parameter": (variant(moon={"muu": 1.0}), "moon", "muu", "mu?"),
    "text for a number": (variant(moon={"mu": "high"}), "moon", "mu", "'high'", "a number"),
    "fraction for a whole number": (
        variant(moon={"projection": 2.5}), "projection", "2.5", "a whole number",
    ),
    "no hyper-parameters": (variant(moon=3), "variants.mine.moon", "3", "pairs"),
    "typo in a variant nobody asks for": (
        overlay(variants={"mine": {"moon": {"muu": 1.0}}}), "moon", "muu", "mu?",
    ),
    "unknown field of a protocol": (protocol(round=3), "mine", "round", "rounds"),
    "unknown base": (protocol(base="fedsls-quik"), "protocol", "fedsls-quik", "fedsls-quick"),
    "base of itself": (protocol(base="mine"), "protocol", "mine", "base"),
    "more clients than samples": (protocol(clients=2000), "clients", "2000", "1442", "digits"),
    "nobody takes part": (protocol(participation=0.01), "participation", "0.01", "no client"),
    "unknown model": (protocol(model="resnet81"), "model", "resnet81", "resnet18"),
    "unknown normalization": (
        protocol(normalization="standrad"), "normalization", "digits", "standrad", "standard",
    ),
    "unknown augmentation": (protocol(augment=["flipp"]), "augment", "flipp", "flip"),
    "unknown weights": (
        protocol(model="resnet18", weights="imagnet"), "weights", "imagnet", "imagenet",
    ),
    "unknown key of a study": (study("\nscales:", "\nscale:"), "fedsls.yaml", "scale`", "scales"),
    "broken study": (study("\nproducts:", "\nproducts: ["), "fedsls.yaml", "YAML", "line"),
    "unknown method in `tuned`": (
        study("\n  fedprox:\n", "\n  fedproxx:\n"), "method", "fedproxx", "fedprox",
    ),
    "unknown grid of a product": (
        study("runs: runs/table1}, formats: [csv, tex", "runs: runs/tabel1}, formats: [csv, tex"),
        "fedsls.yaml: products.table1", "tabel1", "table1",
    ),
    "unknown source of a product": (
        study("{costs: costs}", "{costs: cost}"), "resources", "source", "`cost`", "costs?",
    ),
    "source that a product does not take": (
        study("{costs: costs}", "{cost: costs}"), "resources", "is drawn from costs",
    ),
    "experiment that no scale has": (
        study("from: {costs: costs}", "from: {costs: fidelity}"),
        "resources", "source", "`fidelity`",
    ),
    "unknown product": (study("  table1: {from", "  tabel1: {from"), "tabel1", "table1"),
    "unknown format": (
        study("table1}, formats: [csv, tex, html]", "table1}, formats: [csv, tex, htm]"),
        "formats", "'htm'", "html",
    ),
    "claim without bounds": (
        study("    over: [autoencoder-f4, autoencoder-f8]\n    least: 0\n",
              "    over: [autoencoder-f4, autoencoder-f8]\n"),
        "fedsls.yaml", "claims", "least",
    ),
    "number of a dataset that is a sum": (
        file("datasets/digits.py", "TRAIN = 1_442", "TRAIN = 1400 + 42"),
        "datasets/digits.py, line 12: TRAIN",
    ),
    "hyper-parameter without a default": (
        file("methods/fedprox.py", "mu: float = 0.01", "mu: float"),
        "methods/fedprox.py: `method` has no default for `mu`",
    ),
    "method that is not Python": (
        file("methods/fedprox.py", "def method(", "def method"), "methods/fedprox.py, line 10",
    ),
    "product without its caption": (
        file("report/fedsls/table1.py", "def caption", "def captain"),
        "report/fedsls/table1.py has no function `caption`",
    ),
    "key of a study that is given twice": (
        study("\nscales:", "\nproducts: {}\nscales:"), "fedsls.yaml", "`products` twice", "line",
    ),
    "dataset of another scale": (
        config("scale=paper", "dataset=digits"), "dataset", "digits", "cifar10",
    ),
}  # fmt: skip


@pytest.fixture
def workflow(tmp_path, monkeypatch) -> Path:
    """A copy of the studies and the package, which the package is read from."""
    folder = tmp_path / "workflow"
    for part in ("studies", "fedgrid"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE.parent / part, folder / part, ignore=skipped)
    monkeypatch.setattr(source, "ROOT", folder / "fedgrid")
    yield folder
    forget()


def configured(studies: dict[str, dict], mistake: Mistake) -> None:
    """What workflow/rules/common.smk does with a configuration before anything is planned."""
    given = dict(pair.split("=", 1) for pair in mistake.given)
    everything = read_config(PACKAGE.parents[1] / "config.yaml")
    everything = merge_configs(everything, given | (mistake.keys or {}))
    check_config("config.yaml", everything)
    Grid(studies, everything)
    for scale in (scale for about in studies.values() for scale in about["scales"].values()):
        for experiment, check in (("fidelity", check_setting), ("costs", costs.check)):
            if experiment in scale:
                check(scale[experiment])


def assert_sentence(said: str, words: list[str]) -> None:
    """One line with all the words."""
    assert "\n" not in said
    assert all(word in said for word in words), said


def test_what_is_configured_is_right(workflow):
    configured(read_studies(workflow / "studies"), Mistake())


@pytest.mark.parametrize("name", [name for name, (of, *_) in CONFIGURED.items() if not of.edited])
def test_a_wrong_configuration_is_answered_in_one_sentence(name):
    mistake, *words = CONFIGURED[name]
    with pytest.raises(UsageError) as found:
        configured(STUDIES, mistake)
    assert_sentence(str(found.value), words)


@pytest.mark.parametrize("name", [name for name, (of, *_) in CONFIGURED.items() if of.edited])
def test_a_wrong_edit_is_answered_in_one_sentence(name, workflow):
    mistake, *words = CONFIGURED[name]
    edit(workflow, *mistake.edited)
    forget()
    with pytest.raises(UsageError) as found:
        configured(read_studies(workflow / "studies"), mistake)
    assert_sentence(str(found.value), words)


# -- mistakes in what is commanded ----------------------------------------------------------------


NEW = f"{FIVE} --out results/new"
RANGE = f"train {QUICK}/moon/seed0 --inputs partition={PARTITION} --out results/new --set clients=5"
COMMANDED = {
    "unknown protocol": ("train fedsls-quik/digits/dir0.1/moon/seed0", "fedsls-quick or"),
    "unknown field in the name of a protocol": (
        "train fedsls-quick-lrr0.1/digits/dir0.1/moon/seed0",
        "? After `fedsls-quick-` there must be a field", "docs/guide/protocols.md",
    ),
    "unknown method": (f"train {QUICK}/mooon/seed0", "mooon", "mean moon "),
    "half a name": (
        "train fedsls-quick/digits", "protocol/dataset/partition/method/seed0",
    ),
    "broken JSON": ("train '{broken'", "JSON"),
    "no partition": (
        f"train {QUICK}/moon/seed0",
        "classwise-20/seed0.npz is missing", f"python -m fedgrid partition {QUICK}/moon/seed0",
    ),
    "no partition to pretrain on": (
        f"pretrain {QUICK}/fedsls/seed0", "is missing", "python -m fedgrid partition",
    ),
    "no saliency": (
        f"train {QUICK}/fedsls/seed0 --inputs partition={PARTITION} --out results/new",
        "is missing", f"python -m fedgrid saliency {QUICK}/fedsls/seed0",
    ),
    "no partition for the fields that are set": (
        f"train {QUICK}/moon/seed0 --set clients=7 rounds=1 --out results/new", "is missing",
        "python -m fedgrid partition fedsls-quick-clients7/digits/dir0.1/moon/seed0",
    ),
    "saliency of other fields": (
        f"train {QUICK}/fedsls/seed0 {NEW}", "the input `saliency`", "--set",
        "the name `fedsls-quick-clients5-rounds1/digits/dir0.1/fedsls/seed0`",
        "--inputs saliency=PATH",
    ),
    "pretrained models of other fields, and a name with the field": (
        f"saliency fedsls-quick-lr0.1/digits/dir0.1/fedsls/seed0 {NEW} --set lr=0.2",
        "the input `pretrain`",
        "`fedsls-quick-lr0.2-clients5-rounds1/digits/dir0.1/fedsls/seed0`",
    ),
    "a field that no name can have": (
        f"train {QUICK}/fedsls/seed0 {NEW} --set augment=[flip]", "`base: fedsls-quick`",
        "`protocols` in config.yaml", "--inputs saliency=PATH",
    ),
    "no data": (
        f"partition {QUICK}/moon/seed0 --inputs data=nowhere --out results/new.npz",
        "nowhere is missing", "fedgrid data",
    ),
    "partition over other clients": (
        f"train {QUICK}/moon/seed0 --inputs partition={PARTITION} --out results/new",
        PARTITION, "5 clients", "not 20",
    ),
    "unknown input": (
        f"train {QUICK}/moon/seed0 {NEW} --inputs partitio={PARTITION}",
        "partitio`", "partition",
    ),
    "unknown field": (f"{RANGE} round=2", "round`", "rounds?"),
    "text for rounds": (f"{RANGE} rounds=many", "rounds", "'many'", "a whole number"),
    "negative rounds": (f"{RANGE} rounds=-3", "rounds", "-3"),
    "nobody takes part": (f"{RANGE} participation=0", "participation", "0"),
    "unknown model": (f"{RANGE} model=resnet81", "model", "resnet81", "resnet18"),
    "changed without a place": (
        f"train {QUICK}/moon/seed0 --set rounds=2", "--set", "--out",
    ),
    "unknown tracker": (
        f"train {QUICK}/moon/seed0 {NEW} --track wandbb", "tracker", "wandbb", "wandb?",
    ),
    "no GPU": (f"train {QUICK}/moon/seed0 {NEW} --device cuda", "cuda", "GPU", "cpu"),
    "too few samples": (
        f"partition {QUICK}/moon/seed0 --set clients=1000 --out results/new.npz",
        "1442 samples", "1000 clients",
    ),
    "model without weights": (
        "weights cnn", "no published set of weights for cnn", "none",
    ),
    "unknown dataset to decode": ("data digts", "digts", "did you mean digits"),
    "dataset that cannot be downloaded": (
        "data cifar100 --root empty",
        "cifar-100-python.tar.gz", "https://www.cs.toronto.edu/~kriz/",
        "md5:eb9058c3a382ffc7106e4002c42a8d85", "empty/cifar-100-python.tar.gz",
    ),
    "unknown product": (
        "draw tabel1 --study fedsls --show results/table1.csv",
        "product", "tabel1", "table1",
    ),
    "unknown study of a product": (
        "draw table1 --study fedslss --show results/table1.csv",
        "study", "fedslss", "mean fedsls ",
    ),
    "another table": (
        "draw table1 --study fedsls --show results/table1.csv", "results/table1.csv",
    ),
    "no source to draw from": (
        "draw table1 --study fedsls --sources runs=nowhere.csv --out results/new.csv",
        "nowhere.csv", "cannot be read",
    ),
    "another source": (
        "draw table1 --study fedsls --sources run=runs.csv --out results/new.csv",
        "--sources lacks runs",
    ),
    "unknown kind to collect": ("collect rums '[]' --out results/new.csv", "rums", "runs"),
    "no runs to collect": (
        'collect runs \'[{"protocol": ["fedsls-quick"], "dataset": ["digits"], "seed": [0], '
            '"partition": ["dir0.1"], "method": ["moon"]}]\' --out results/new.csv',
        f"results/runs/{QUICK}/moon/seed0",
    ),
}  # fmt: skip


DAMAGED = {  # the file of which only the beginning is left, the command, and words of the answer
    "truncated partition": (PARTITION, f"train {QUICK}/moon/seed0 {NEW}", PARTITION, "damaged"),
    "truncated images": (
        "results/data/digits/train_images.npy", f"train {QUICK}/moon/seed0 {NEW}",
        "results/data/digits", "damaged",
    ),
    "truncated saliency": (
        "results/saliency.npz",
        f"train {QUICK}/fedsls/seed0 {FIVE} saliency=results/saliency.npz --out results/new",
        "results/saliency.npz", "damaged",
    ),
}  # fmt: skip


def written(project: Path) -> dict[str, str]:
    """A hash of every file under results/ but the logs."""
    files = [path for path in (project / "results").rglob("*") if path.is_file()]
    kept = [path for path in files if "logs" not in path.parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def refused(arguments: str, capsys) -> str:
    """The line that answers a command, which leaves everything as it is."""
    before = written(Path.cwd())
    with pytest.raises((UsageError, SystemExit)) as found:
        stage(arguments)
    assert written(Path.cwd()) == before
    if found.type is UsageError:
        return str(found.value)
    assert found.value.code == 2  # as argparse answers, after how the command is used
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", COMMANDED)
def test_a_wrong_command_is_answered_in_one_sentence(name, project, monkeypatch, capsys):
    arguments, *words = COMMANDED[name]
    monkeypatch.chdir(project)
    monkeypatch.setattr(reading, "read_studies", lambda: STUDIES)  # they take their time
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(download, "WAIT", 0)
    for variable, value in NO_NETWORK.items():
        monkeypatch.setenv(variable, value)
    assert_sentence(refused(arguments, capsys), words)


def asked_for(arguments: str):
    return command.run_parser("a stage").parse_args(shlex.split(arguments))


def test_an_option_that_is_given_twice_counts_twice(project, monkeypatch):
    monkeypatch.chdir(project)
    once, twice = "--inputs data=results partition=results", "--set lr=0.5 --set rounds=7"
    asked = asked_for(f"{QUICK}/moon/seed0 {twice} {once} --inputs saliency=results --out x")
    run = command.resolve_run(asked, "train")
    assert (run["protocol"]["lr"], run["protocol"]["rounds"]) == (0.5, 7)
    found = command.find_inputs(asked, run, "data", "partition", "saliency")
    assert [*found] == ["data", "partition", "saliency"]


def test_an_input_without_the_field_that_is_set_is_found_by_the_name(project, monkeypatch):
    monkeypatch.chdir(project)
    name = f"{QUICK}/fedsls/seed0"
    cell = command.run_of_name(name)["cells"]["saliency"]
    path = Path(f"results/saliency/digits/dir0.1/{cell}/seed0.npz")
    path.parent.mkdir(parents=True)
    path.touch()
    for fields, there in (("rounds=7 tail=2", True), ("pretrain_epochs=3", False)):
        asked = asked_for(f"{name} --set {fields} --out x")
        run = command.resolve_run(asked, "train")
        if there:
            assert command.find_inputs(asked, run, "saliency") == {"saliency": path}
        else:
            with pytest.raises(UsageError, match="`fedsls-quick-pretrain_epochs3/digits/"):
                command.find_inputs(asked, run, "saliency")
    shutil.rmtree("results/saliency")


def test_a_run_in_json_without_the_path_of_an_input_is_refused(project, monkeypatch):
    monkeypatch.chdir(project)
    run = command.run_of_name(f"{QUICK}/fedsls/seed0")
    asked = asked_for(shlex.quote(json.dumps(run_of_stage("train", run))))
    with pytest.raises(UsageError, match=r"in JSON does not say .* `saliency` is: name a file"):
        command.find_inputs(asked, command.resolve_run(asked, "train"), "saliency")


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_input_is_named(name, project, tmp_path, monkeypatch, capsys):
    path, arguments, *words = DAMAGED[name]
    shutil.copytree(project / "results", tmp_path / "results")
    whole = tmp_path / path
    whole.write_bytes(whole.read_bytes()[:300] if whole.exists() else b"PK\x03\x04")
    monkeypatch.chdir(tmp_path)
    assert_sentence(refused(arguments, capsys), words)


# -- a process of their own -----------------------------------------------------------------------

SNAKEMAKE = ("snakemake", "--cores", 1)
TABLE = ("--", "results/table1.csv")


def assert_answered(project: Path, command: tuple, words: list[str]) -> None:
    """A failure, one line with all the words, none of a traceback, and nothing changed."""
    before = written(project)
    process = call(project, *command)
    said = process.stdout + process.stderr
    sentences = [line for line in said.splitlines() if all(word in line for word in words)]
    assert process.returncode == 1, said
    assert len(sentences) == 1, said
    assert "Traceback" not in said
    assert "fedgrid/" not in said.replace(sentences[0], "")  # lines of a traceback of ours
    assert written(project) == before


def test_snakemake_answers_a_wrong_study(project, tmp_path):
    mistake, *words = CONFIGURED["unknown key of a study"]
    copy = shutil.copytree(project, tmp_path / "project")
    edit(copy / "workflow", *mistake.edited)
    assert_answered(copy, (*SNAKEMAKE, *TABLE), words)


def test_snakemake_answers_a_configuration_that_is_not_yaml(project, tmp_path):
    (tmp_path / "broken.yaml").write_text("protocols: {mine: {base: ")
    command = (*SNAKEMAKE, "--configfile", tmp_path / "broken.yaml", *TABLE)
    assert_answered(project, command, ["YAML"])


def test_snakemake_says_what_a_stage_says(project, tmp_path):
    """Of a dataset whose archive is damaged."""
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(b"half of it")
    profile = ("--workflow-profile", "workflow/profiles/default")
    root = ("--config", f"data_root={tmp_path}", "warm=False")
    command = (*SNAKEMAKE, *profile, *root, "--", "results/data/cifar100/meta.json")
    words = [str(tmp_path / "cifar-100-python.tar.gz"), "md5:eb9058c3a382ffc7106e4002c42a8d85"]
    assert_answered(project, command, words)


@pytest.mark.parametrize("name", ["no partition", "no GPU", "no source to draw from"])
def test_a_process_answers_a_wrong_command(name, project):
    arguments, *words = COMMANDED[name]
    assert_answered(project, (sys.executable, "-m", "fedgrid", *shlex.split(arguments)), words)


@pytest.mark.parametrize(
    ("problem", "said"),
    [(KeyboardInterrupt(), "error: interrupted"), (UsageError("no run"), "error: no run")],
)
def test_an_interrupted_command_says_so(problem, said, monkeypatch):
    def main(arguments):
        raise problem

    monkeypatch.setattr(cli.warm, "hand_over", lambda: None)
    monkeypatch.setattr(cli.gc, "disable", lambda: None)
    monkeypatch.setattr(cli.logging, "captureWarnings", lambda capture: None)
    with pytest.raises(SystemExit) as found:
        cli.run(main)
    assert found.value.code == said


# --- errors of files that users add --------------------------------------------------------------


def test_an_error_in_a_method_names_its_file_and_line():
    code = compile("weights = {}\nweights['head.weight']", PACKAGE / "methods/mine.py", "exec")
    with pytest.raises(KeyError) as problem:
        exec(code)
    said = cli.blamed(problem.value)
    assert said.startswith("methods/mine.py, line 2, fails with KeyError: 'head.weight': correct")


def test_any_other_unexpected_error_is_called_a_defect():
    with pytest.raises(ZeroDivisionError) as problem:
        divmod(1, 0)
    assert cli.blamed(problem.value).startswith("a defect of fedgrid")
