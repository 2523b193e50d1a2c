"""What people meet at the command line: help at once, and mistakes answered in one sentence.

A mistake must fail, name what is wrong and the nearest right names, show no traceback, and leave
everything that has been made as it is. Commands run in copies of a project with made data.
"""

import ast
import hashlib
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
import yaml

import conftest

STAGES = [
    *("data", "partition", "pretrain", "saliency", "latents"),
    *("train", "weights", "collect", "draw", "costs"),
    *("fidelity.originals", "fidelity.maps", "fidelity.scores"),
]
ENVIRONMENT = conftest.ENVIRONMENT | {
    "PYTHONPATH": "workflow",
    "CUDA_VISIBLE_DEVICES": "",  # no GPU
    "https_proxy": "http://127.0.0.1:9",  # no network
}
QUICK = "fedsls-quick/digits/dir0.1"
PARTITION = "results/partition/digits/dir0.1/classwise-5/seed0.npz"
FIVE = f"--set clients=5 rounds=1 --inputs partition={PARTITION}"  # a run on what has been made


def call(project: Path, *command) -> subprocess.CompletedProcess:
    """Run a command in the project; its two streams arrive as one."""
    return subprocess.run(
        [*map(str, command)], cwd=project, env=ENVIRONMENT, text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def stage(project: Path, arguments: str) -> subprocess.CompletedProcess:
    """`python -m fedgrid.<arguments>`."""
    return call(project, sys.executable, "-m", *shlex.split(f"fedgrid.{arguments}"))


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with data, a partition over five clients, and a table that must not be touched."""
    folder = conftest.copied(tmp_path_factory.mktemp("project"))
    made = [
        stage(folder, "data digits"),
        stage(folder, f"partition {QUICK}/fedavg/seed0 --set clients=5 --out {PARTITION}"),
    ]
    assert [process.returncode for process in made] == [0, 0], made
    (folder / "results/table1.csv").write_text("of last week\n")
    return folder


# -- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STAGES)
def test_help_comes_at_once_and_says_what_the_stage_does(name, project):
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        process = stage(project, f"{name} --help")
        seconds.append(time.monotonic() - began)
    source = (project / f"workflow/fedgrid/{name.replace('.', '/')}.py").read_text()
    first_sentence = ast.get_docstring(ast.parse(source)).splitlines()[0]
    assert process.returncode == 0
    assert first_sentence in process.stdout
    assert median(seconds) < 1.0, seconds


@pytest.mark.parametrize("name", STAGES)
def test_help_does_not_import_torch(name, project):
    process = call(project, sys.executable, "-X", "importtime", "-m", f"fedgrid.{name}", "--help")
    imported = {line.rpartition("|")[2].strip() for line in process.stdout.splitlines()}
    assert f"fedgrid.{name}" in process.stdout or "usage" in process.stdout
    assert "argparse" in imported
    assert not imported & {"torch", "torchvision", "sklearn"}


# -- mistakes -----------------------------------------------------------------------------------


def written(project: Path) -> dict[str, str]:
    """A hash of every file under results/ but the logs."""
    files = [path for path in (project / "results").rglob("*") if path.is_file()]
    kept = [path for path in files if "logs" not in path.parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def attempt(project: Path, folder: Path, mistake: Callable[[Path], list]) -> tuple[int, str]:
    """Make a mistake in a copy of the project: its exit code and what was said."""
    copy = shutil.copytree(project, folder / "project")
    command = mistake(copy)
    before = written(copy)
    try:
        process = call(copy, *command)
    except subprocess.TimeoutExpired:
        return 0, "it was accepted and ran for a minute"
    changed = {name for name, _ in written(copy).items() ^ before.items()}
    assert not changed, f"changed: {', '.join(sorted(changed))}; said: {process.stdout}"
    return process.returncode, process.stdout


def assert_refused(code: int, said: str, words: tuple[str, ...]) -> None:
    """A failure, one line with all the words, and none of a traceback."""
    sentences = [line for line in said.splitlines() if all(word in line for word in words)]
    assert code != 0, said
    assert len(sentences) == 1, said
    assert "Traceback" not in said
    assert "fedgrid/" not in said.replace(sentences[0], "")  # lines of a traceback of ours


def snakemake(*options) -> list:
    return ["snakemake", "--cores", 1, *options, "--", "results/table1.csv"]


def config(*pairs: str) -> Callable[[Path], list]:
    """Given on the command line: --config key=value."""
    return lambda project: snakemake("--config", *pairs)


def overlay(**keys) -> Callable[[Path], list]:
    """Given in a file: --configfile overlay.yaml."""

    def mistake(project: Path) -> list:
        (project / "overlay.yaml").write_text(yaml.safe_dump(keys))
        return snakemake("--configfile", "overlay.yaml")

    return mistake


def protocol(**fields) -> Callable[[Path], list]:
    """A protocol of one's own, based on the quick one."""
    return overlay(protocols={"mine": {"base": "fedsls-quick"} | fields}, protocol="mine")


def variant(**parts) -> Callable[[Path], list]:
    """A method of one's own, put together from files."""
    return overlay(variants={"mine": parts}, method="mine")


def study(old: str, new: str) -> Callable[[Path], list]:
    """A study that was edited."""

    def mistake(project: Path) -> list:
        path = project / "workflow/studies/fedsls.yaml"
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        return snakemake()

    return mistake


def file(name: str, old: str, new: str) -> Callable[[Path], list]:
    """A file of the package that was edited."""

    def mistake(project: Path) -> list:
        path = project / "workflow/fedgrid" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        return snakemake()

    return mistake


def broken_overlay(project: Path) -> list:
    (project / "overlay.yaml").write_text("protocols: {mine: {base: ")
    return snakemake("--configfile", "overlay.yaml")


CONFIGURED = {  # the mistake, and words of the sentence that answers it
    "unknown scale": (config("scale=papr"), "scale", "papr", "paper"),
    "unknown study": (config("study=fedslss"), "study", "fedslss", "mean fedsls "),
    "unknown dataset": (config("dataset=digts"), "dataset", "digts", "digits"),
    "unknown method": (config("method=fedavgg"), "method", "fedavgg", "fedavg "),
    "unknown protocol": (config("protocol=fedsls-quik"), "protocol", "fedsls-quik", "fedsls-quick"),
    "unknown key": (config("sead=0"), "config.yaml", "sead", "seed"),
    "no whole seed": (config("seed=one"), "seed", "one"),
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
    "nobody takes part": (protocol(participation=0.01), "participation", "0.01", "nobody"),
    "unknown model": (protocol(model="resnet81"), "model", "resnet81", "resnet18"),
    "unknown normalization": (
        protocol(normalization="standrad"), "normalization", "digits", "standrad", "standard",
    ),
    "unknown augmentation": (protocol(augment=["flipp"]), "augment", "flipp", "flip"),
    "unknown weights": (
        protocol(model="resnet18", weights="imagnet"), "weights", "imagnet", "imagenet",
    ),
    "broken configuration": (broken_overlay, "YAML"),
    "unknown key of a study": (study("\nscales:", "\nscale:"), "fedsls.yaml", "scale`", "scales"),
    "broken study": (study("\nproducts:", "\nproducts: ["), "fedsls.yaml", "YAML", "line"),
    "unknown method in `tuned`": (
        study("\n  fedprox:\n", "\n  fedproxx:\n"), "method", "fedproxx", "fedprox",
    ),
    "unknown grid of a product": (
        study("runs: runs/table1}, formats: [csv, tex", "runs: runs/tabel1}, formats: [csv, tex"),
        "quick scale: table1", "grid", "tabel1", "table1",
    ),
    "unknown source of a product": (
        study("{costs: costs}", "{costs: cost}"), "resources", "source", "`cost`", "costs?",
    ),
    "source that a product does not take": (
        study("{costs: costs}", "{cost: costs}"), "resources", "is drawn from costs",
    ),
    "experiment that a scale lacks": (
        study("    costs: *costs\n", ""), "paper scale: resources", "source", "`costs`",
    ),
    "unknown product": (study("  table1: {from", "  tabel1: {from"), "tabel1", "table1"),
    "unknown format": (
        study("formats: [csv, tex, html]", "formats: [csv, tex, htm]"), "formats", "'htm'", "html",
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
        file("methods/fedprox.py", "def method(", "def method"), "methods/fedprox.py, line 8",
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


def command(arguments: str) -> Callable[[Path], list]:
    """A stage of its own, without Snakemake."""
    return lambda project: [sys.executable, "-m", *shlex.split(f"fedgrid.{arguments}")]


def damaged(path: str, arguments: str, size: int = 300) -> Callable[[Path], list]:
    """A file of which only the beginning is left."""

    def mistake(project: Path) -> list:
        whole = (project / path).read_bytes()
        assert len(whole) > size
        (project / path).write_bytes(whole[:size])
        return command(arguments)(project)

    return mistake


def truncated_saliency(project: Path) -> list:
    """Saliency of which only the first bytes are left."""
    (project / "results/saliency.npz").write_bytes(b"PK\x03\x04")
    given = f"{FIVE} saliency=results/saliency.npz --out results/new"
    return command(f"train {QUICK}/fedsls/seed0 {given}")(project)


NEW = f"{FIVE} --out results/new"
RANGE = f"train {QUICK}/moon/seed0 --inputs partition={PARTITION} --out results/new --set clients=5"
COMMANDED = {
    "unknown protocol": (command("train fedsls-quik/digits/dir0.1/moon/seed0"), "fedsls-quick or"),
    "unknown method": (command(f"train {QUICK}/mooon/seed0"), "mooon", "mean moon "),
    "half a name": (
        command("train fedsls-quick/digits"), "protocol/dataset/partition/method/seed0",
    ),
    "broken JSON": (command("train '{broken'"), "JSON"),
    "no partition": (
        command(f"train {QUICK}/moon/seed0"),
        "classwise-20/seed0.npz is missing", f"python -m fedgrid.partition {QUICK}/moon/seed0",
    ),
    "no partition to pretrain on": (
        command(f"pretrain {QUICK}/fedsls/seed0"), "is missing", "python -m fedgrid.partition",
    ),
    "no saliency": (
        command(f"train {QUICK}/fedsls/seed0 {NEW}"), "is missing", "python -m fedgrid.saliency",
    ),
    "no data": (
        command(f"partition {QUICK}/moon/seed0 --inputs data=nowhere --out results/new.npz"),
        "nowhere is missing", "fedgrid.data",
    ),
    "truncated partition": (
        damaged(PARTITION, f"train {QUICK}/moon/seed0 {NEW}"), PARTITION, "damaged",
    ),
    "truncated images": (
        damaged("results/data/digits/train_images.npy", f"train {QUICK}/moon/seed0 {NEW}"),
        "results/data/digits", "damaged",
    ),
    "truncated saliency": (truncated_saliency, "results/saliency.npz", "damaged"),
    "partition over other clients": (
        command(f"train {QUICK}/moon/seed0 --inputs partition={PARTITION} --out results/new"),
        PARTITION, "5 clients", "not 20",
    ),
    "unknown input": (
        command(f"train {QUICK}/moon/seed0 {NEW} --inputs partitio={PARTITION}"),
        "partitio`", "partition",
    ),
    "unknown field": (command(f"{RANGE} round=2"), "round`", "rounds?"),
    "text for rounds": (command(f"{RANGE} rounds=many"), "rounds", "'many'", "a whole number"),
    "negative rounds": (command(f"{RANGE} rounds=-3"), "rounds", "-3"),
    "nobody takes part": (command(f"{RANGE} participation=0"), "participation", "0"),
    "unknown model": (command(f"{RANGE} model=resnet81"), "model", "resnet81", "resnet18"),
    "changed without a place": (
        command(f"train {QUICK}/moon/seed0 --set rounds=2"), "--set", "--out",
    ),
    "no GPU": (command(f"train {QUICK}/moon/seed0 {NEW} --device cuda"), "cuda", "GPU", "cpu"),
    "too few samples": (
        command(f"partition {QUICK}/moon/seed0 --set clients=1000 --out results/new.npz"),
        "1442 samples", "1000 clients",
    ),
    "model without weights": (
        command("weights cnn"), "no published set of weights for cnn", "none",
    ),
    "unknown dataset to decode": (command("data digts"), "digts", "digits?"),
    "dataset that cannot be downloaded": (
        command("data cifar100 --root empty"),
        "cifar-100-python.tar.gz", "https://www.cs.toronto.edu/~kriz/",
        "md5:eb9058c3a382ffc7106e4002c42a8d85", "empty/cifar-100-python.tar.gz",
    ),
    "dataset that Snakemake cannot get": (
        lambda project: [
            *("snakemake", "--cores", 1, "--workflow-profile", "workflow/profiles/default"),
            *("--config", "data_root=empty", "--", "results/data/cifar100/meta.json"),
        ],
        "cifar-100-python.tar.gz", "https://www.cs.toronto.edu/~kriz/",
        "md5:eb9058c3a382ffc7106e4002c42a8d85", "empty/cifar-100-python.tar.gz",
    ),
    "unknown product": (
        command("draw tabel1 --study fedsls --show results/table1.csv"),
        "product", "tabel1", "table1",
    ),
    "unknown study of a product": (
        command("draw table1 --study fedslss --show results/table1.csv"),
        "study", "fedslss", "mean fedsls ",
    ),
    "another table": (
        command("draw table1 --study fedsls --show results/table1.csv"), "results/table1.csv",
    ),
    "no source to draw from": (
        command("draw table1 --study fedsls --sources runs=nowhere.csv --out results/new.csv"),
        "nowhere.csv", "cannot be read",
    ),
    "another source": (
        command("draw table1 --study fedsls --sources run=runs.csv --out results/new.csv"),
        "--sources lacks runs",
    ),
    "unknown kind to collect": (command("collect rums '[]' --out results/new.csv"), "rums", "runs"),
    "no runs to collect": (
        command(
            'collect runs \'[{"protocol": ["fedsls-quick"], "dataset": ["digits"], "seed": [0], '
            '"partition": ["dir0.1"], "method": ["moon"]}]\' --out results/new.csv'
        ),
        f"results/runs/{QUICK}/moon/seed0",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(project, tmp_path_factory):
    """What is said to every mistake, as futures: two are made at a time, in this order."""
    mistakes = {("configured", n): m for n, (m, *_) in CONFIGURED.items()}
    mistakes |= {("commanded", n): m for n, (m, *_) in COMMANDED.items()}
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(attempt, project, tmp_path_factory.mktemp("mistake"), mistake)
            for name, mistake in mistakes.items()
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_wrong_configuration_is_answered_in_one_sentence(name, answers):
    _, *words = CONFIGURED[name]
    assert_refused(*answers["configured", name].result(), words)


@pytest.mark.parametrize("name", COMMANDED)
def test_a_wrong_command_is_answered_in_one_sentence(name, answers):
    _, *words = COMMANDED[name]
    assert_refused(*answers["commanded", name].result(), words)
