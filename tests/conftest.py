"""A tiny federation, a tiny model and one linear model, on which every method runs in no time.

A test sees the sources of the project, and nothing else that is there. It begins in an empty
folder, with empty folders of caches and settings, and without the variables of the environment by
which a person sets fedgrid, Snakemake and matplotlib.
"""

import json
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors import safe_open
from torch import Tensor, nn

import alone  # noqa: F401  # before fedgrid
from fedgrid.checking.small import (  # noqa: F401  # for tests, too
    CLASSES,
    SIZES,
    artifacts,
    drawn,
    federated,
    tiny,
    uneven,
)
from fedgrid.engine.backends import _recorded, _steps
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.federation.federation import Federation
from fedgrid.method import Method, Step
from fedgrid.models import Classifier, _size
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, listed, registered
from fedgrid.study import protocol, sizes
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import measure_model
from fedgrid.study.reading import read_studies
from fedgrid.training.build import build_part
from fedgrid.training.checkpoint import before
from fedgrid.training.rounds import rounds
from fedgrid.training.sealed import flatten

torch.set_num_threads(1)

BACKENDS = ("loop", "stacked")
# A network that draws random numbers itself draws others in each backend and on each device.
QUIET = [name for name in registered("methods") if name != "autohs"]
IMAGE_MODELS = [n for n in registered("models") if not source.literal(f"models.{n}", "TOKENS", 0)]
LARGE = {"mobilenet", "resnet18", "resnet50", "vgg11", "vgg16", "vgg16_bn"}
SMALL_MODELS = [name for name in IMAGE_MODELS if name not in LARGE]  # built in no time
TOKEN_MODELS = [name for name in registered("models") if name not in IMAGE_MODELS]
IMAGE_SHAPES = sorted(
    {
        shape
        for name in registered("datasets")
        if len(shape := source.literal(f"datasets.{name}", "SHAPE")) == 3
    }
)
PROTOCOL = protocol.PROTOCOL | {
    **{"clients": len(SIZES), "participation": 2 / 3, "rounds": 4, "local": 3, "batch": 4},
    **{"lr": 0.05, "lr_decay": 0.9, "momentum": 0.9, "weight_decay": 0.01},
    **{"augment": ["crop", "flip"], "precision": "fp64", "evaluate_every": 2},
    **{"smallest_batch": 2},
}
needs_compiler = pytest.mark.skipif(
    not shutil.which(os.environ.get("CXX", "g++")), reason="there is no C++ compiler"
)
HAND = {"participation": 1.0, "local": 1, "lr": 0.1, "lr_decay": 1.0, "momentum": 0.0}
HAND |= {"weight_decay": 0.0, "augment": []}


def given_noise(like: Tensor) -> Tensor:
    """In place of `torch.rand_like`: the same noise in every backend and on every device."""
    return torch.full_like(like, 0.3) + 0.1 * like


def pixel(seed: int) -> Classifier:
    """One pixel -> two classes, linear, all weights zero."""
    model = Classifier(nn.Flatten(), 1, 2).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def spoken(sizes=SIZES, length: int = 5, tokens: int = 7) -> Federation:
    """Clients of these sizes with random sequences of tokens; a label is a token."""
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, tokens, (sum(sizes), length), generator=random, dtype=torch.uint8)
    labels = torch.randint(0, tokens, (sum(sizes),), generator=random)
    members = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    counts = [torch.bincount(labels[ids], minlength=tokens) for ids in members]
    nothing = torch.empty(0, dtype=torch.float64)
    return Federation(
        *(images, labels, images, labels, nothing, nothing),
        members=members,
        counts=torch.stack(counts),
        names=("test", "writers", 0),
        tokens=tokens,
    )


def two_clients() -> Federation:
    """A has the pixel 2, labelled 0; B has the pixels 1, 1 and 4, labelled 1.

    With zero weights both classes have probability 1/2, so that the gradients of the loss with
    respect to weight and bias of class 0 (those of class 1 are their negatives) are

        A: weight (1/2 - 1) 2 = -1,            bias 1/2 - 1 = -1/2
        B: weight  1/2 (1 + 1 + 4) / 3 = 1,    bias 1/2

    and with the learning rate 0.1 a step's deltas are -0.1 and 0.1, and -0.05 and 0.05.
    """
    a, b = torch.tensor([2]), torch.tensor([1, 1, 4])
    labelled = [(a, torch.zeros(1, dtype=int)), (b, torch.ones(3, dtype=int))]
    return federated([(x.byte().view(-1, 1, 1, 1), y) for x, y in labelled], 2, scale=255)


def methods(name: str, **keywords) -> Method:
    """The method of a file."""
    return build_part(name, keywords)


# Fewer steps than by default, where the steps that a method adds take most of a test's time.
FEWER = {"feddf": {"steps": 3}, "pfedme": {"inner": 2}}


def brief(name: str, **keywords) -> Method:
    """The method of a file, with few steps of its own."""
    return methods(name, **FEWER.get(name, {}) | keywords)


@dataclass
class Simulation:
    """An engine and its run; `play(n)` goes n rounds further, and `finish()` to the end."""

    engine: Engine
    run: RunState

    def play(self, rounds: int = 1) -> RunState:
        for _ in range(rounds):
            self.run = self.engine.round(self.run)
        return self.run

    def finish(self, history: list[dict] | None = None) -> list[dict]:
        """The evaluations of the run, which is played to its end, after those of a history."""
        history = [] if history is None else history
        for state in rounds(self.engine, self.run, history):
            self.run = state
        return history


def simulate(
    method: Method,
    backend: str = "loop",
    federation: Federation | None = None,
    build: Callable[[int], nn.Module] = tiny,
    needed: dict | None = None,
    compile: str = "off",
    **protocol,
) -> Simulation:
    """A run of a method before its first round."""
    federation = federation or uneven()
    engine = Engine(build, method, PROTOCOL | protocol, federation, backend, needed, compile)
    return Simulation(engine, engine.start(7))


def by_hand(
    method: Method, backend: str = "loop", rounds: int = 1, needed=None, **protocol
) -> RunState:
    """The run after rounds of one step each on `two_clients`, from zero weights."""
    return simulate(method, backend, two_clients(), pixel, needed, **HAND | protocol).play(rounds)


def everything(run: RunState) -> dict[str, Tensor]:
    """All that a run holds between two rounds, by name."""
    parts = {part: getattr(run, part) for part in ("server", "shared", "memory", "logged")}
    return flatten({part: {str(n): value for n, value in of.items()} for part, of in parts.items()})


def assert_same(a: RunState, b: RunState, rtol: float = 0, atol: float = 0) -> None:
    """The same run, to the last bit unless a tolerance is given."""
    torch.testing.assert_close(everything(a), everything(b), rtol=rtol, atol=atol, equal_nan=True)


def differ(a: RunState, b: RunState) -> bool:
    """Whether the servers' models are different by more than rounding, in the entries of both."""
    both = a.server.keys() & b.server.keys()
    return any((a.server[n] - b.server[n]).abs().max() > 1e-6 for n in both)


def make_step(**fields) -> Step:
    """A client's step from what a term reads; nothing else is there to be read."""
    empty = dict.fromkeys(Step.__dataclass_fields__)
    step = Step(**empty | fields)
    if step.valid is None and step.features is not None:
        step = Step(**empty | fields | {"valid": torch.ones(len(step.features)).double()})
    return step


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path_factory, monkeypatch):
    """What a test reads and writes in its folder is its own, and never the checkout's results."""
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))


@pytest.fixture(autouse=True)
def _same_noise():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_arithmetic():
    """What a stage sets for its own process ends with the test that called the stage here."""
    yield
    torch.set_flush_denormal(False)
    logging.getLogger("fedgrid.engine").setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _unrecorded(monkeypatch):
    """A stack's step is called: to record it takes longer than all steps of a test."""
    monkeypatch.setattr(_steps, "Recorded", _recorded.unrecorded)


@pytest.fixture
def recorded(_unrecorded, monkeypatch):
    """A stack's step is recorded at its first call, as it is outside of the tests."""
    monkeypatch.setattr(_steps, "Recorded", _recorded.Recorded)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder without a config.yaml; the entries end with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(own_data.VARIABLE, "{}")
    monkeypatch.setenv(own_data.OF_STUDIES, "{}")
    yield
    source.forget()


# -- the order of files ------------------------------------------------------------------------

LONGEST = {f"test_{name}.py" for name in ("columns", "docs", "kills", "report", "workflow")}


def pytest_collection_modifyitems(items) -> None:
    """Begin with the files that take minutes: one that began late would run alone at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def slow_but(fast: Iterable[str], names: Iterable[str], mark=pytest.mark.slow) -> list:
    """Parameters of a test that is slow but for some of them, which stand for the others."""
    return [n if n in fast else pytest.param(n, marks=mark) for n in names]


# -- the wording of messages ---------------------------------------------------------------------


def said(work: Callable, *arguments) -> str:
    """The one sentence that answers a mistake."""
    try:
        work(*arguments)
    except UsageError as problem:
        said = str(problem)
    else:
        pytest.fail(f"nothing is said of {arguments}")
    assert "\n" not in said
    return said


def answers(work: Callable, mistakes: Iterable, of: str = "") -> dict[str, str]:
    """The answers to mistakes, by what is wrong in each; every answer begins with `of`."""
    found = {}
    for one in mistakes:
        name = " -> ".join(f"{part!r:.70}" for part in (one if isinstance(one, tuple) else (one,)))
        assert name not in found
        found[name] = said(work, one)
        assert found[name].startswith(of), found[name]
    return found


THEIRS = re.compile(
    r"(is not (?:Python|YAML|JSON)|fails with [A-Za-z]+Error).*| \((?:<urlopen|\[Errno)[^)]*\)"
)
GOLDEN = Path(__file__).parent / "golden/messages.txt"


def pytest_addoption(parser) -> None:
    """`pytest --update-golden`, in one process: write the messages as they are now."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/messages")


@pytest.fixture
def golden(request) -> Callable[[str, dict[str, str]], None]:
    """Compare messages by name with those of a section of the file of golden messages.

    What Python or a library says within a message is left out: other versions say other words.
    """

    def compare(section: str, messages: dict[str, str]) -> None:
        there = re.split(r"^# (.*)\n", GOLDEN.read_text(), flags=re.MULTILINE)
        sections = dict(zip(there[1::2], there[2::2], strict=True))
        ours = {name: THEIRS.sub(r"\1", text) for name, text in messages.items()}
        said = "".join(f"{name}\n    {text}\n" for name, text in ours.items())
        if request.config.getoption("--update-golden"):
            sections[section] = said + "\n"
            parts = [f"# {name}\n{text}" for name, text in sorted(sections.items())]
            GOLDEN.write_text(there[0] + "".join(parts))
        else:
            assert said == sections[section].removesuffix("\n")

    return compare


# -- the package's source, which is read once -------------------------------------------------

forget = source.forget
READ: dict = {}


def read_of_text(name: str) -> Callable:
    """A function of a module, whose answer for the same text is kept whatever is forgotten."""
    function = getattr(source, name).__wrapped__

    @cache
    def read(module: str):
        try:
            key = name, module, source.text(module)
        except (OSError, SyntaxError, ValueError):
            return function(module)
        if key not in READ:
            READ[key] = function(module)
        return READ[key]

    return read


# Tests that have data of their own, or edit one file, forget what was read of all files.
for _name in ("tree", "_import_nodes", "code", "definitions"):
    setattr(source, _name, read_of_text(_name))


def read_once(monkeypatch, *modules) -> None:
    """Let modules have the studies without reading and checking their files again."""
    for module in modules:
        monkeypatch.setattr(module, "read_studies", lambda: pickle.loads(_studies()))


def check_one(monkeypatch, study: str) -> None:
    """Let grids check the file of one study alone; the others are as they were, and right."""
    check = Grid._check_study
    monkeypatch.setattr(
        Grid, "_check_study", lambda grid, name, about: name == study and check(grid, name, about)
    )


@cache
def _studies() -> bytes:
    return pickle.dumps(read_studies())


# -- a copy of the project, for whole workflows ----------------------------------------------

HERE = Path(__file__).parent
# Without bytecode a job takes twice the time to start; the rest would change what is tested. Of a
# SLURM that is configured and does not answer, every start of Snakemake waits nine seconds.
UNSET = ("FEDGRID_", "SNAKEMAKE_", "SLURM_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(UNSET)} | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "SLURM_CONF": os.devnull,
}


@cache
def note_sizes(scale: str = "quick") -> None:
    """Note the sizes of a scale's models, for each of which a plan would start a process."""
    from made import GRID, STUDIES

    def measure(command: list[str], **_) -> subprocess.CompletedProcess:
        found = _size.measure(command[-2], **json.loads(command[-1]))
        return subprocess.CompletedProcess(command, 0, json.dumps(found), "")

    grids = [about["scales"].get(scale, {"grids": {}})["grids"] for about in STUDIES.values()]
    blocks = [block for of_study in grids for grid in of_study.values() for block in grid]
    pairs = {at for of in blocks for at in product(*map(listed, (of["protocol"], of["dataset"])))}
    with patch.object(sizes.subprocess, "run", measure):
        for name, dataset in pairs:
            measure_model({"protocol": GRID.protocol(name), "dataset": dataset})


def copied(folder: Path) -> Path:
    """The project without its results, in `folder`."""
    note_sizes()
    for part in ("workflow", "envs"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HERE.parent / part, folder / part, ignore=skipped)
    for file in (HERE.parent / "Snakefile", HERE.parent / "config.yaml", HERE / "tiny.yaml"):
        shutil.copy(file, folder)
    return folder


TABLE, TEX, CURVES = "results/table1.csv", "results/table1.tex", "results/convergence.svg"


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A project with its table and curves made; read it, and change only copies (`project`).

    It is made once for all tests: processes that share the tests wait for the one that makes it.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
    with FileLock(f"{folder}.lock"):
        if not (folder / TABLE).exists():
            make_table(copied(folder))
    return folder


def make_table(project: Path) -> None:
    """A table and a figure of the runs of tiny.yaml, from the raw data on."""
    command = ["snakemake", "--cores", "2", "--configfile", "tiny.yaml", "--", TABLE, TEX, CURVES]
    done = subprocess.run(command, cwd=project, env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def project(finished, tmp_path) -> Path:
    """A copy of the finished project, times of files and all, for a test to change."""
    return shutil.copytree(finished, tmp_path / "project", symlinks=True)


def saved_round(checkpoint: Path) -> int:
    """The round after which a run would go on; 0 if there is no checkpoint.

    While a checkpoint is written, or after a kill then, there is the one before it alone.
    """
    for path in (checkpoint, before(checkpoint)):
        with suppress(FileNotFoundError, RuntimeError), safe_open(path, "pt") as file:
            return int(file.metadata()["round"])
    return 0
