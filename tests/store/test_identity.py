"""Who asks whether a result is current answers as the table in docs/reference/identity.md says."""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import fedgrid
from fedgrid.notebook.stages import is_current
from fedgrid.runtime import machine
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.store import identity, kept, verifying
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import run_of_stage, stage_modules
from fedgrid.study.paths import RUN, input_paths
from made import STUDIES
from planned import CONFIG, answers, plan_of, wildcards
from written import DOCS

CHANGES = ("settings", "code", "inputs", "versions", "name")
PROTOCOLS = {"shorter": {"base": "fedsls-quick", "rounds": 2, "clients": 3, "tail": 1}}
PROTOCOLS["shorter"] |= {"participation": 1.0, "local": 1}
NAMES = {"protocol": "shorter", "dataset": "digits", "partition": "dir0.1", "method": "fedavg"}
NAMES |= {"seed": 0}


def grid_of(config: dict) -> Grid:
    """The grid of the studies, which took their time to be read, and of a configuration."""
    return Grid({**STUDIES}, config)


class Present(NamedTuple):
    """What an asker is asked with: a configuration and the names of the run."""

    config: dict
    names: dict

    @property
    def run(self) -> dict:
        """The resolved run of the names."""
        return grid_of(self.config).resolve(self.names)


THEN = Present(CONFIG | {"protocols": PROTOCOLS}, NAMES)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Results with one finished run, and the code that made it."""
    home = tmp_path_factory.mktemp("identity")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)  # the records then have paths that begin with results/
        fedgrid.run(results="results", protocol="shorter", config={"protocols": PROTOCOLS})
    return home


@pytest.fixture
def results(made, tmp_path, monkeypatch) -> Path:
    """A copy, which a test can change."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


# -- changes --------------------------------------------------------------------------------------


def change(what: str, results: Path, monkeypatch) -> Present:
    """Change one thing; return what is asked with from now on."""
    now = THEN
    if what == "settings":
        longer = PROTOCOLS["shorter"] | {"lr": 0.5, "clients": 4}
        now = Present(THEN.config | {"protocols": {"shorter": longer}}, NAMES)
    elif what == "code":
        edit_code(monkeypatch, *(f"federation.{name}" for name in registered("federation")))
    elif what == "inputs":
        for path in (results / "data/digits").glob("meta.json"):
            path.write_text(path.read_text() + " ")
    elif what == "versions":
        monkeypatch.setattr(machine, "versions", lambda: {"torch": "0.1"})
    elif what == "name":
        other = {"other": PROTOCOLS["shorter"]}
        now = Present(THEN.config | {"protocols": other}, NAMES | {"protocol": "other"})
    return now


def edit_code(monkeypatch, *modules: str) -> None:
    """Add a line to modules, as they are read from now on."""
    read = source.text
    monkeypatch.setattr(source, "text", lambda m: read(m) + "\nADDED = 1\n" * (m in modules))
    source.forget()


# -- askers ---------------------------------------------------------------------------------------


def planned(now: Present, results: Path) -> list:
    """What Snakemake compares of a run: its path, and two parameters of its rule."""
    runs = answers(plan_of(protocols=now.config["protocols"])).runs
    names = wildcards(**now.names)
    return [now.names, runs.specification("train")(names), runs.code("train")(names)]


def is_planned_again(now: Present, results: Path, before: list) -> bool:
    return planned(now, results) != before


def is_trained_again(now: Present, results: Path, before: list) -> bool:
    run = run_of_stage("train", now.run)
    then = input_paths(THEN.run)
    paths = {name: results / then[name] for name in ("data", "partition")}
    return not identity.identify("train", run, paths).made(summary(results))


def is_reported(now: Present, results: Path, before: list) -> bool:
    record = json.loads((run_folder(results) / ".metrics.csv.record").read_text())
    return verifying.judged(record, grid_of(now.config), results)[0] != "good"


def is_made_again(now: Present, results: Path, before: list) -> bool:
    return not is_current(results / input_paths(now.run)["partition"], results)


def is_not_shown(now: Present, results: Path, before: list) -> bool:
    index = {kept.item_path("runs", THEN.run): kept_entry()}
    shown = identity.is_finished("runs", now.run, results)
    assert shown == (kept.find_kept(index, "runs", now.run) is not None)
    return not shown


def kept_entry() -> kept.Entry:
    """The entry of the finished run in an index of kept runs."""
    return {"content": identity.hash_content("runs", THEN.run), "kinds": "runs=0"}


def run_folder(results: Path) -> Path:
    return results / "runs" / RUN.format(**NAMES)


def summary(results: Path) -> dict:
    return json.loads((run_folder(results) / "summary.json").read_text())


ASKERS = {
    "Snakemake, before it runs a job": is_planned_again,
    "`fedgrid train`, before it trains a run": is_trained_again,
    "`fedgrid verify`": is_reported,
    "`fedgrid.run`, before it makes an input of a run": is_made_again,
    "kept runs, collected tables, the page of verdicts": is_not_shown,
}
BY_FILE_TIMES = ("Snakemake, before it runs a job", "inputs")  # by Snakemake itself


def table() -> dict[str, dict[str, bool]]:
    """The table of the documentation: by asker and change, whether the asker notices it."""
    rows = re.findall(r"^\| (.*) \|$", (DOCS / "reference/identity.md").read_text(), re.MULTILINE)
    head, *cells = ([cell.strip() for cell in row.split(" | ")] for row in rows)
    assert head[1:] == [*CHANGES]
    return {
        asker: dict(zip(CHANGES, [answer == "yes" for answer in said], strict=True))
        for asker, *said in cells
    }


def test_the_table_names_all_who_ask():
    assert table().keys() == ASKERS.keys()


@pytest.mark.parametrize("what", ["nothing", *CHANGES])
def test_each_notices_the_changes_that_the_table_says(what, results, monkeypatch):
    before = planned(THEN, results)
    now = change(what, results, monkeypatch)
    noticed = {asker: ask(now, results, before) for asker, ask in ASKERS.items()}
    said = {asker: cells.get(what, False) for asker, cells in table().items()}
    if what == BY_FILE_TIMES[1]:
        del noticed[BY_FILE_TIMES[0]], said[BY_FILE_TIMES[0]]
    monkeypatch.undo()
    source.forget()
    assert noticed == said


# -- what has changed in the code since a run was made --------------------------------------------


@pytest.fixture
def restored(monkeypatch):
    """What was read of edited modules is forgotten at last."""
    yield monkeypatch
    monkeypatch.undo()
    source.forget()


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ((), ""),
        (("engine.round",), identity.ENGINE),
        (("method",), identity.ENGINE),
        (("methods.fedntd",), "methods/fedntd.py"),
        (("methods._distillation",), "methods/fedntd.py"),
        (
            ("methods.fedntd", "methods.fedprox", "engine.round"),
            "methods/fedntd.py methods/fedprox.py",
        ),
        (("methods.moon",), ""),
    ],
)
def test_a_change_is_of_the_files_of_a_method_or_of_the_engine(modules, said, restored):
    config = {"variants": {"both": {"fedntd": {}, "fedprox": {}}}}
    run = grid_of(config).resolve(NAMES | {"protocol": "fedsls-quick", "method": "both"})
    code = source.fingerprint(*stage_modules("train", run))
    files = identity.hash_method_files(run)
    edit_code(restored, *modules)
    assert identity.list_changed_code(code, files, run) == said
    unknown = identity.UNRECORDED if said else ""
    assert identity.list_changed_code(code, {}, run) == unknown


def test_a_run_records_the_files_of_its_method(results):
    made = summary(results)
    assert [*made["method_files"]] == ["fedavg"]
    assert identity.list_changed_code(made["code"], made["method_files"], THEN.run) == ""
