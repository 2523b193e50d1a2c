"""What shows a run and a grid while they go on: the running .csv, trackers, the time left.

TensorBoard is real here, and its files are read back. W&B and MLflow are small modules with the
functions that fedgrid calls.
"""

import csv
import json
import logging
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from io import FileIO, StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from rich.console import Console
from rich.progress import Progress
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedgrid.commands import train
from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.places import PACKAGE
from fedgrid.runtime.watch import progress, remaining, tracked, trackers
from fedgrid.runtime.watch.trackers import csv as running
from fedgrid.store import verifying

ROUNDS, EVERY = 8, 2
SHORT = f"fedsls-quick-clients5-participation0.4-local1-rounds{ROUNDS}-evaluate_every{EVERY}"
NAME = f"{SHORT}-lr0.3/digits/dir0.1/moon/seed0"
PARTITION = "results/partition/digits/dir0.1/classwise-5/seed0.npz"
EVALUATED = list(range(0, ROUNDS + 1, EVERY))


# -- the two services -----------------------------------------------------------------------------


class Wandb(ModuleType):
    """W&B: runs by id, which refuse steps that are not new as the real one ignores them."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None, origin="made up")
        self.runs, self.started, self.fails, self.at = {}, [], None, None

    def Settings(self, **given):  # noqa: N802
        return given

    def init(self, **given):
        """A run; `fails` is raised when it gets the round `at`."""
        self.started.append(given)
        rows = self.runs.setdefault(given["id"], {})

        def log(numbers, step, commit):
            if self.fails and step == self.at:
                raise self.fails
            assert commit
            assert step >= run.step
            rows[step], run.step = numbers, step + 1

        step = max(rows, default=-1) + 1
        run = SimpleNamespace(log=log, step=step, offline=False, url="https://x", finished=0)
        run.finish = lambda: self.ended.append(given["id"])
        self.ended = []
        return run


class Mlflow(ModuleType):
    """MLflow: one store for all clients."""

    def __init__(self):
        super().__init__("mlflow")
        self.__spec__ = ModuleSpec("mlflow", None, origin="made up")
        self.entities = ModuleType("mlflow.entities")
        self.entities.Metric = lambda key, value, timestamp, step: (key, value, step)
        self.runs, self.places = {}, []

    def MlflowClient(self, tracking_uri):  # noqa: N802
        self.places.append(tracking_uri)
        return self

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name) if self.runs else None

    def create_experiment(self, name):
        return name

    def search_runs(self, experiments, condition, max_results):
        matching = (n for n, run in self.runs.items() if repr(run["key"]) in condition)
        return [SimpleNamespace(info=SimpleNamespace(run_id=name)) for name in matching]

    def create_run(self, experiment, run_name, tags):
        run_id = f"{len(self.runs)}"
        about = {"name": run_name, "key": tags["fedgrid.key"], "params": {}, "metrics": []}
        self.runs[run_id] = about | {"status": "RUNNING", "in": experiment}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def update_run(self, run_id, status):
        self.runs[run_id]["status"] = status

    def log_param(self, run_id, name, value):
        self.runs[run_id]["params"][name] = value

    def get_metric_history(self, run_id, name):
        metrics = self.runs[run_id]["metrics"]
        return [SimpleNamespace(step=step) for key, _, step in metrics if key == name]

    def log_batch(self, run_id, metrics):
        self.runs[run_id]["metrics"] += metrics

    def set_terminated(self, run_id):
        self.runs[run_id]["status"] = "FINISHED"


@pytest.fixture
def services(monkeypatch) -> SimpleNamespace:
    """Both services, instead of what may be installed."""
    for name in ("WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    made = SimpleNamespace(wandb=Wandb(), mlflow=Mlflow())
    monkeypatch.setitem(sys.modules, "wandb", made.wandb)
    monkeypatch.setitem(sys.modules, "mlflow", made.mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", made.mlflow.entities)
    return made


# -- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with data, a partition over five clients, and a run without trackers."""
    folder = tmp_path_factory.mktemp("tracking")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        import_module("fedgrid.commands.data").main(["digits"])
        import_module("fedgrid.commands.partition").main([NAME])
        trained("plain", "none")
    return folder


@pytest.fixture
def here(place, monkeypatch) -> Path:
    monkeypatch.chdir(place)
    return place


def trained(out: str, *names: str, lr: str = "0.3") -> Path:
    """Train a run of a second, with a checkpoint after every round."""
    options = ["--inputs", f"partition={PARTITION}", "data=results/data/digits", "--results", out]
    options += ["--device", "cpu", "--save-every", "0", "--out", out, "--track", *names]
    train.main([NAME.replace("0.3", lr, 1), *options])
    return Path(out)


def evaluations(folder: Path) -> list[dict]:
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


def as_numbers(rows: list[dict]) -> dict[int, dict[str, float]]:
    """Numbers by round and column, without cells that are empty."""
    return {
        int(row["round"]): {n: float(x) for n, x in row.items() if x and n != "round"}
        for row in rows
    }


def events(folder: Path, name: str = NAME) -> EventAccumulator:
    return EventAccumulator(str(folder / "logs/tensorboard" / name)).Reload()


def scalars(folder: Path, name: str = NAME) -> dict[int, dict[str, float]]:
    """Numbers by round and column as TensorBoard shows them; each of them once."""
    found, rows = events(folder, name), {}
    for column in found.Tags()["scalars"]:
        for event in found.Scalars(column):
            assert column not in rows.setdefault(event.step, {})
            rows[event.step][column] = event.value
    return rows


def test_a_run_that_was_killed_is_shown_once(here, services, capsys):
    """It is killed between an evaluation and its checkpoint, and resumes before that evaluation."""
    services.wandb.fails, services.wandb.at = KeyboardInterrupt(), 6
    names = ("tensorboard,mlflow", "wandb")
    with pytest.raises(KeyboardInterrupt):
        trained("killed", *names)
    assert lines(Path("killed")) == Path("plain/metrics.csv").read_text().splitlines()[:5]
    services.wandb.fails = None
    out = trained("killed", *names)

    assert json.loads((out / "summary.json").read_text())["resumed_at"] == 5
    assert not (out / running.RUNNING).exists()
    for name in ("metrics.csv", "model.safetensors", "predictions.csv"):
        assert (out / name).read_bytes() == Path("plain", name).read_bytes()
    rows = as_numbers(evaluations(out))
    assert [*rows] == EVALUATED
    assert scalars(out) == {step: pytest.approx(row, rel=1e-6) for step, row in rows.items()}
    ((key, sent),) = services.wandb.runs.items()
    assert sent == rows
    assert [one["id"] for one in services.wandb.started] == [key, key]
    (run,) = services.mlflow.runs.values()
    assert sorted(run["metrics"]) == sorted(
        (n, x, r) for r, row in rows.items() for n, x in row.items()
    )
    assert run["status"] == "FINISHED"
    assert services.wandb.ended == [key]


def test_the_settings_of_a_run_are_told(here, services):
    out = trained("told", "tensorboard", "wandb", "mlflow", lr="0.4")
    name = NAME.replace("0.3", "0.4")
    (given,) = services.wandb.started
    (run,) = services.mlflow.runs.values()
    assert given["config"] == run["params"]
    told = {"lr": 0.4, "rounds": ROUNDS, "moon.mu": 0.1, "method": "moon", "seed": 0}
    assert told.items() <= given["config"].items()
    assert (given["resume"], given["name"], run["name"]) == ("allow", name, name)
    assert given["project"] == run["in"] == "fedgrid"
    assert services.mlflow.places == [f"sqlite:///{here}/told/logs/mlflow.db"]
    (text,) = events(out, name).Tensors("settings/text_summary")
    assert "| moon.mu | 0.1 |" in text.tensor_proto.string_val[0].decode()


def test_a_tracker_that_fails_is_given_up_and_the_run_goes_on(here, services, capsys, monkeypatch):
    monkeypatch.setattr(running.Running, "write", lambda file, row: 1 / 0)
    services.wandb.fails, services.wandb.at = ConnectionError("no network"), 4
    out = trained("failed", "wandb", "tensorboard", lr="0.5")
    (sent,) = services.wandb.runs.values()
    assert [*sent] == [0, 2]
    assert [*scalars(out, NAME.replace("0.3", "0.5"))] == EVALUATED
    said = [line for line in capsys.readouterr().err.splitlines() if "the run goes on" in line]
    assert len(said) == 2
    assert "metrics.running.csv failed" in said[0]
    assert "wandb failed" in said[1]
    assert "no network" in said[1]


def test_a_tracker_that_does_not_start_ends_a_new_run_and_not_an_old_one(
    services, tmp_path, capsys
):
    services.wandb.init = lambda **given: 1 / 0
    run = {"name": {}, "protocol": {}, "method": {}}
    asked = trackers.Asked(("wandb",), tmp_path, NAME)
    with pytest.raises(UsageError, match=r"log: wandb did not start \(ZeroDivisionError.*remove"):
        tracked.Rows(asked, tmp_path, run, "key", [])
    with tracked.Rows(asked, tmp_path, run, "key", [{"round": 0}]) as rows:
        rows.send()
    assert capsys.readouterr().err.count("wandb failed") == 1


def test_what_is_shown_of_a_finished_run_is_deleted_though_it_is_not_trained_again(here, caplog):
    Path("plain/metrics.csv").unlink()
    Path("plain", running.RUNNING).write_text("round\n0\n")
    assert not verifying.is_result(Path("plain", running.RUNNING), Path("."))
    with caplog.at_level(logging.INFO):
        trained("plain", "none")
    assert "was finished before" in caplog.text
    assert evaluations(Path("plain"))
    assert not Path("plain", running.RUNNING).exists()


# -- the running .csv -----------------------------------------------------------------------------

FIRST, SECOND = {"round": 0, "accuracy": 0.1}, {"round": 2, "accuracy": 0.25, "train_loss": 1.5}


def opened(folder: Path, *rows: dict):
    return running.tracker(trackers.Run(NAME, "key", folder, folder, {}), [*rows])


def lines(folder: Path) -> list[str]:
    """What is in the file, which ends with a whole line."""
    text = (folder / running.RUNNING).read_text()
    assert text.endswith("\n")
    return text.splitlines()


def test_the_file_grows_and_gets_new_columns(tmp_path):
    file = opened(tmp_path)
    assert not (tmp_path / running.RUNNING).exists()
    grown = []
    for row in (FIRST, SECOND, {"round": 4, "accuracy": 0.5}):
        file.write(row)
        grown.append(lines(tmp_path))
    assert grown == [
        ["round,accuracy", "0,0.1"],
        ["round,accuracy,train_loss", "0,0.1,", "2,0.25,1.5"],
        ["round,accuracy,train_loss", "0,0.1,", "2,0.25,1.5", "4,0.5,"],
    ]


def test_the_file_starts_anew_with_what_was_saved(tmp_path):
    (tmp_path / running.RUNNING).write_text("round,accuracy\n0,0.1\n2,0.2\n4,0.3\nhalf a li")
    file = opened(tmp_path, FIRST)
    assert lines(tmp_path) == ["round,accuracy", "0,0.1"]
    file.write(SECOND)
    assert lines(tmp_path)[1:] == ["0,0.1,", "2,0.25,1.5"]
    opened(tmp_path)
    assert not (tmp_path / running.RUNNING).exists()


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    file = opened(tmp_path, FIRST)

    class Full(FileIO):
        """A disk with room for three bytes."""

        def write(self, line):
            return super().write(line[:3])

    monkeypatch.setattr(Path, "open", lambda path, *mode, **options: Full(path, "ab"))
    with pytest.raises(OSError, match="cannot be written"):
        file.write({"round": 2, "accuracy": 0.2})
    monkeypatch.undo()
    assert lines(tmp_path) == ["round,accuracy", "0,0.1"]


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ()),
        ("none", ()),
        ("", ()),
        ("wandb", ("wandb",)),
        ("mlflow, wandb,mlflow", ("mlflow", "wandb")),
        (["tensorboard", "wandb,none"], ("tensorboard", "wandb")),
    ],
)
def test_trackers_are_a_name_a_list_or_names_with_commas(given, names):
    assert trackers.chosen(given) == names


@pytest.mark.parametrize("given", ["tensorbord", ["wandb", "tensorbord"], "csv", 3])
def test_what_is_no_tracker_is_answered(given):
    with pytest.raises(UsageError, match=r"mean tensorboard\?|the choices are|log: none"):
        trackers.chosen(given)


def test_every_tracker_names_its_package():
    modules = {n: import_module(f"{trackers.__name__}.{n}") for n in trackers.trackers()}
    packages = {name: module.PACKAGE for name, module in modules.items()}
    assert packages == {name: name for name in ("mlflow", "tensorboard", "wandb")}


def test_a_missing_package_is_named_before_anything_is_trained(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="log: wandb needs the package wandb: install it with"):
        trained("missing", "tensorboard", "wandb")
    assert not Path("missing").exists()


def test_a_folder_is_no_package(tmp_path, monkeypatch):
    """W&B makes one that is called wandb."""
    (tmp_path / "a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not trackers.installed("a_folder")
    assert trackers.installed("tensorboard")


# -- the time left --------------------------------------------------------------------------------

LOGGER = logging.getLogger(remaining.LOGGER)


def record(event: LogEvent, created: float, **about) -> logging.LogRecord:
    return logging.makeLogRecord({"event": event, "created": created} | about)


def test_a_line_follows_every_twentieth_of_the_jobs(caplog):
    lines = remaining.Lines()
    with caplog.at_level(logging.INFO, logger=remaining.LOGGER):
        lines.handle(record(LogEvent.RUN_INFO, 100.0))
        for done in range(1, 101):
            lines.handle(record(LogEvent.PROGRESS, 100.0 + 36 * done, done=done, total=100))
    assert len(caplog.messages) == 19
    assert caplog.messages[0] == "5 of 100 jobs done, about 0:57:00 left"


def handler():
    """The profile's plugin, made as Snakemake makes it."""
    profile = yaml.safe_load((PACKAGE.parent / "profiles/default/profile.yaml").read_text())
    plugin = LoggerPluginRegistry().get_plugin(profile["logger"])
    return plugin.log_handler(OutputSettings(), plugin.settings_cls and plugin.settings_cls())


@pytest.mark.parametrize("terminal", [True, False])
def test_the_panel_has_the_time_left_on_a_terminal_and_lines_follow_elsewhere(
    terminal, monkeypatch
):
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setattr(LOGGER, "handlers", [])
    made = handler()
    remaining.show([made])
    assert ("Left" in [type(one).__name__ for one in made.progress.columns]) == terminal
    assert [type(one) for one in LOGGER.handlers] == [remaining.Lines] * (not terminal)
    kept, noise = (logging.makeLogRecord({"msg": m}) for m in ("kept", f"x {remaining.NOISE} y"))
    assert made.filter(kept)
    assert not made.filter(noise)


def test_the_panel_fits_the_terminal():
    now, page = [0.0], StringIO()
    console = Console(file=page, width=80, force_terminal=True, color_system=None)
    shown = Progress(*remaining.columns(), console=console, get_time=lambda: now[0], expand=True)
    shown.add_task("Total Progress", total=81, completed=27)
    shown.add_task("fedsls ablation static dynamic", total=9, completed=3)
    now[0] = 60.0
    console.print(shown)
    total, rule = page.getvalue().rstrip("\n").splitlines()
    assert "27/81 0:01:00 0:02:00 left" in " ".join(total.split())
    assert "left" not in rule
    assert max(map(len, (total, rule))) <= 80


@pytest.mark.parametrize(
    ("each", "rounds", "left"), [(60, 2000, "33:19:00"), (5, 9000, "12:29:50")]
)
def test_log_lines_of_a_run_fit_a_terminal_and_get_rarer(each, rounds, left, caplog, monkeypatch):
    monkeypatch.setattr(progress.cli, "to_terminal", lambda: False)
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO), progress.Rounds(0, rounds) as shown:
        for _ in range(rounds):
            now[0] += each
            shown.step({"accuracy": 0.123456, "train_loss": 12.3456})
    assert len(caplog.messages) < 500
    first = f"round {1 if each > 10 else 2}/{rounds}  accuracy 0.1235  loss 12.35  {left} left"
    assert caplog.messages[0] == first
    assert max(map(len, caplog.messages)) <= 80 - len("2026-01-01 00:00:00 ")


def test_the_log_on_a_terminal_is_broken_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    said = "results/runs/a-long-name: accuracy 0.9876 after 40 rounds"
    text = cli.Fitted("%(message)s").format(logging.makeLogRecord({"msg": said}))
    assert text.splitlines() == ["results/runs/a-long-name: accuracy", "  0.9876 after 40 rounds"]
