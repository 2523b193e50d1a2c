"""What people meet at the command line: help at once, and mistakes answered in one sentence.

`tests/study/test_study_mistakes.py` has the mistakes in studies and configurations.

A mistake must fail, name what is wrong and the nearest right names, show no traceback, and leave
everything that has been made as it is. Most are made in this process, where the sentence is an
error; a few in a process of their own, whose exit status and streams are what people see.
"""

import ast
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
import torch

import conftest
from conftest import slow_but
from fedgrid.runtime import cli, download
from fedgrid.runtime.names import UsageError, registered
from fedgrid.runtime.places import PACKAGE
from fedgrid.study import command, reading
from fedgrid.study.jobs import run_of_stage
from made import GRID, STUDIES

STAGES = [
    *(f"commands.{name}" for name in registered("commands")),
    "experiments.costs",
    *(f"experiments.fidelity.{part}" for part in ("originals", "maps", "scores")),
]
# What takes long to import, and what help needs nothing of.
SLOW = {"torch", "torchvision", "sklearn", "pandas", "matplotlib", "scipy", "skimage", "snakemake"}
NO_NETWORK = {"https_proxy": "http://127.0.0.1:9"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
ENVIRONMENT = conftest.ENVIRONMENT | NO_NETWORK | NO_GPU | {"PYTHONPATH": "workflow"}
TASK = "digits/dir0.1"
QUICK = f"fedsls-quick/{TASK}"
PARTITION = "results/partition/digits/dir0.1/classwise-5/seed0.npz"
FIVE = f"fedsls-quick-clients5-rounds1/{TASK}"  # a run on what has been made


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
        stage(f"partition {FIVE}/fedavg/seed0")
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


# -- mistakes in what is commanded ----------------------------------------------------------------


MOON = f"train {QUICK}/moon/seed0"
MADE = f"train {FIVE}/moon/seed0 --out results/new"
DRAW = "draw table1 --study fedsls"
BLOCKS = [{"protocol": ["fedsls-quick"], "dataset": ["digits"], "partition": ["dir0.1"]}]
BLOCKS[0] |= {"method": ["moon"], "seed": [0]}
COMMANDED = {
    "unknown protocol": "train fedsls-quik/digits/dir0.1/moon/seed0",
    "unknown field in the name of a protocol": "train fedsls-quick-lrr0.1/digits/dir0.1/moon/seed0",
    "unknown method": f"train {QUICK}/mooon/seed0",
    "half a name": "train fedsls-quick/digits",
    "broken JSON": "train '{broken'",
    "no partition": MOON,
    "no partition to pretrain on": f"pretrain {QUICK}/fedsls/seed0",
    "no saliency": f"train {QUICK}/fedsls/seed0 --inputs partition={PARTITION} --out results/new",
    "no partition for the fields of the name": f"train fedsls-quick-clients7/{TASK}/moon/seed0",
    "no pretrained models": f"saliency fedsls-quick-clients5-lr0.2/{TASK}/fedsls/seed0",
    "a field that no name can have": f"train fedsls-quick-augmentflip/{TASK}/fedsls/seed0",
    "no data": f"partition {QUICK}/moon/seed0 --inputs data=nowhere --out results/new.npz",
    "partition over other clients": f"{MOON} --inputs partition={PARTITION} --out new",
    "unknown input": f"{MADE} --inputs partitio={PARTITION}",
    "an input that the run does not read": f"{MADE} --inputs saliency={PARTITION}",
    "an input twice": f"{MADE} --inputs data=a data=b",
    "a seed with another name": f"train {QUICK}/moon/seed01",
    "text for rounds": f"train fedsls-quick-roundsmany/{TASK}/moon/seed0",
    "negative rounds": f"train fedsls-quick-rounds-3/{TASK}/moon/seed0",
    "nobody takes part": f"train fedsls-quick-participation0/{TASK}/moon/seed0",
    "unknown model": f"train fedsls-quick-modelresnet81/{TASK}/moon/seed0",
    "unknown tracker": f"{MADE} --track wandbb",
    "no GPU": f"{MADE} --device cuda",
    "too few samples": f"partition fedsls-quick-clients1000/{TASK}/moon/seed0",
    "model without weights": "weights cnn",
    "unknown dataset to decode": "data digts",
    "dataset that cannot be downloaded": "data cifar100 --root empty",
    "unknown product": "draw tabel1 --study fedsls --show results/table1.csv",
    "unknown study of a product": "draw table1 --study fedslss --show results/table1.csv",
    "another table": "draw table1 --study fedsls --show results/table1.csv",
    "no source to draw from": f"{DRAW} --sources runs=nowhere.csv --out results/new.csv",
    "another source": f"{DRAW} --sources run=runs.csv --out results/new.csv",
    "no runs to collect": f"collect runs {shlex.quote(json.dumps(BLOCKS))} --out results/new.csv",
}


DAMAGED = {  # the file of which only the beginning is left, and the command
    "truncated partition": (PARTITION, MADE),
    "truncated images": ("results/data/digits/train_images.npy", MADE),
    "truncated saliency": (
        "results/saliency.npz",
        f"train {FIVE}/fedsls/seed0 --inputs saliency=results/saliency.npz --out results/new",
    ),
}


def written(project: Path) -> dict[str, str]:
    """A hash of every file under results/ but the logs."""
    files = [path for path in (project / "results").rglob("*") if path.is_file()]
    kept = [path for path in files if "logs" not in path.parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def refused(arguments: str) -> str:
    """The line that answers a command, which leaves everything as it is."""
    before, errors = written(Path.cwd()), StringIO()
    with redirect_stderr(errors), pytest.raises((UsageError, SystemExit)) as found:
        stage(arguments)
    assert written(Path.cwd()) == before
    if found.type is UsageError:
        assert "\n" not in str(found.value)
        return str(found.value)
    assert found.value.code == 2  # as argparse answers, after how the command is used
    return errors.getvalue().splitlines()[-1]


@pytest.fixture(scope="module")
def answers(project) -> dict[str, str]:
    """The answers to all wrong commands, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setattr(command, "read_grid", lambda *configs: GRID)  # it takes its time
        patch.setattr(reading, "read_studies", lambda: STUDIES)
        patch.setattr(torch.cuda, "is_available", lambda: False)
        patch.setattr(download, "WAIT", 0)
        for variable, value in NO_NETWORK.items():
            patch.setenv(variable, value)
        return {name: refused(arguments) for name, arguments in COMMANDED.items()}


def test_a_wrong_command_is_answered_in_one_sentence(answers, golden):
    golden("commands", answers)


def asked_for(arguments: str):
    return command.run_parser("a stage").parse_args(shlex.split(arguments))


def test_an_option_that_is_given_twice_counts_twice(project, monkeypatch):
    monkeypatch.chdir(project)
    inputs = "--inputs data=results partition=results --inputs saliency=results"
    asked = asked_for(f"{QUICK}/moon/seed0 {inputs}")
    run = command.resolve_run(asked, "train")
    found = command.find_inputs(asked, run, "data", "partition", "saliency")
    assert [*found] == ["data", "partition", "saliency"]


def test_a_run_in_json_without_the_path_of_an_input_is_refused(project, monkeypatch):
    monkeypatch.chdir(project)
    run = command.run_of_name(f"{QUICK}/fedsls/seed0")
    asked = asked_for(shlex.quote(json.dumps(run_of_stage("train", run))))
    with pytest.raises(UsageError, match=r"in JSON does not say .* `saliency` is: name a file"):
        command.find_inputs(asked, command.resolve_run(asked, "train"), "saliency")


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_input_is_named(name, project, tmp_path, monkeypatch):
    path, arguments = DAMAGED[name]
    shutil.copytree(project / "results", tmp_path / "results")
    whole = tmp_path / path
    whole.write_bytes(whole.read_bytes()[:300] if whole.exists() else b"PK\x03\x04")
    monkeypatch.chdir(tmp_path)
    answer = refused(arguments)
    assert path.removesuffix("/train_images.npy") in answer
    assert "damaged" in answer


# -- a process of their own -----------------------------------------------------------------------

SNAKEMAKE = ("snakemake", "--cores", 1)
TABLE = ("--", "results/table1.csv")


def assert_answered(project: Path, command: tuple, words: list[str]) -> str:
    """A failure, one sentence with all the words, no traceback, nothing changed; the last line."""
    before = written(project)
    process = subprocess.run(
        [*map(str, command)], cwd=project, env=ENVIRONMENT, text=True, timeout=600,
        capture_output=True,
    )  # fmt: skip
    said = process.stdout + process.stderr
    found = [line for line in said.splitlines() if all(word in line for word in words)]
    sentences = {line.strip().removeprefix("error: ") for line in found}
    assert process.returncode == 1, said
    assert len(sentences) == 1, said
    assert "Traceback" not in said
    assert "fedgrid/" not in said.replace(min(sentences), "")  # lines of a traceback of ours
    assert written(project) == before
    return process.stderr.strip().splitlines()[-1]


def test_snakemake_answers_a_wrong_study(project, tmp_path):
    copy = shutil.copytree(project, tmp_path / "project")
    study = copy / "workflow/studies/fedsls.yaml"
    study.write_text(study.read_text().replace("\nscales:", "\nscale:"))
    last = assert_answered(copy, (*SNAKEMAKE, *TABLE), ["fedsls.yaml", "scale`", "scales"])
    assert last.startswith("error: fedsls.yaml: no key is called `scale`")


@pytest.mark.slow
def test_snakemake_says_what_a_stage_says(project, tmp_path):
    """Of a dataset whose archive is damaged."""
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(b"half of it")
    profile = ("--workflow-profile", "workflow/profiles/default")
    root = ("--config", f"data_root={tmp_path}", "warm=False")
    command = (*SNAKEMAKE, *profile, *root, "--", "results/data/cifar100/meta.json")
    words = [str(tmp_path / "cifar-100-python.tar.gz"), "md5:eb9058c3a382ffc7106e4002c42a8d85"]
    assert_answered(project, command, words)


@pytest.mark.parametrize(
    "name", slow_but(["no partition"], ["no partition", "no GPU", "no source to draw from"])
)
def test_a_process_answers_a_wrong_command(name, project, answers):
    command = (sys.executable, "-m", "fedgrid", *shlex.split(COMMANDED[name]))
    assert_answered(project, command, [answers[name]])


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
