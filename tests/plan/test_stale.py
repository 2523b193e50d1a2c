"""What an edit makes again: the jobs whose settings or code it changes, asked in this process.

`tests/workflow` asks Snakemake itself for a few of these edits.
"""

from pathlib import Path

import pytest

import planned
from conftest import HERE, slow_but
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.reading import read_config, read_study
from planned import plan_of, told_to

STUDY = PACKAGE.parent / "studies/fedsls.yaml"
TINY = HERE / "tiny.yaml"
ALL = ("fedavg", "moon", "fedau", "fedsls")
DRAWN = {"fedsls_table1": 1}
SUMMED = DRAWN | {"runs_table": 1, "results_table1": 1}
ENCODED = SUMMED | {"pretrain": 1, "saliency": 1}

EDITS = {  # a file, what is there, what is written instead, the jobs, the methods trained again
    "a method": (
        "methods/moon.py", "away = -F.log", "away = -1.0 * F.log", SUMMED, ["moon"],
    ),
    "a hyper-parameter": (STUDY, "digits: {mu: 0.1}", "digits: {mu: 0.2}", SUMMED, ["moon"]),
    "the encoder of one method": (
        "encoders/guided.py", "return maps.mean(1)", "return 1.0 * maps.mean(1)",
        SUMMED | {"saliency": 1}, ["fedsls"],
    ),
    "the engine": ("engine/samples.py", "CHUNK = 64", "CHUNK = 65", ENCODED, ALL),
    "the partition": (
        "partitions/dirichlet.py", "GIVEN = 2", "GIVEN = 3", ENCODED | {"partition": 1}, ALL,
    ),
    "the dataset": (
        "datasets/digits.py", "np.round(values", "np.floor(values",
        ENCODED | {"partition": 1, "data": 1}, ALL,
    ),
    "the model": ("models/cnn.py", "width: int = 64", "width: int = 65", ENCODED, ALL),
    "a stage": (
        "stages/saliency.py", "import", "import json\nimport", SUMMED | {"saliency": 1}, ["fedsls"],
    ),
    "the table": ("report/fedsls/table1.py", '"mean"] - table', '"mean"] - 1 * table', DRAWN, []),
    "how tables are written": (
        "report/_formats.py", "<p>{caption}</p>", "<b>{caption}</b>", DRAWN, [],
    ),
    "a label": (STUDY, "  fedavg: FedAvg\n", "  fedavg: Averaging\n", DRAWN, []),
    "a published value": (STUDY, "[[70.77, 0.1]", "[[70.78, 0.1]", DRAWN, []),
    "how runs are summed up": (TINY, "tail: 2", "tail: 1", SUMMED, []),
}  # fmt: skip
QUICK = ("a method", "a hyper-parameter", "a stage", "the partition", "a label", "the table")
HARMLESS = [  # edits that change no result of the table; more in tests/runtime/test_source.py
    ("report/convergence.py", ".round(4)", ".round(5)"),  # another product
    ("study/checks.py", "clients are more than the", "clients exceed the"),  # an error
    ("methods/moon.py", "\n\n\n", "\n\n\n# a comment\n"),
    ("methods/sp.py", "\n\n\n", "\n\n\n\n"),
    ("engine/round.py", '"""', '"""Note: '),
]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """A plan writes own data into the environment; what was read of an edited file is forgotten."""
    monkeypatch.setenv(own_data.VARIABLE, "{}")
    yield
    monkeypatch.undo()
    source.forget()
    planned.configured.cache_clear()


def told(config: Path = TINY) -> dict[str, tuple[str, str]]:
    """What the jobs of tiny.yaml's table are told."""
    source.forget()
    planned.configured.cache_clear()
    return told_to(plan_of(**read_config(config)), "table1")


def write(edited: Path | str, old: str, new: str, folder: Path, monkeypatch) -> Path:
    """Let fedgrid read an edited file; return the configuration to be read."""
    path = PACKAGE / edited
    text = path.read_text()
    assert old in text
    (folder / path.name).write_text(changed := text.replace(old, new, 1))
    if path == STUDY:
        monkeypatch.setitem(planned.READ, "fedsls", read_study(folder / path.name))
    elif path != TINY:
        module, read = str(edited).removesuffix(".py").replace("/", "."), source.text
        monkeypatch.setattr(source, "text", lambda name: changed if name == module else read(name))
    return folder / path.name if path == TINY else TINY


@pytest.fixture(scope="module")
def before() -> dict[str, tuple[str, str]]:
    """What the jobs are told without an edit."""
    return told()


@pytest.mark.parametrize("edit", slow_but(QUICK, EDITS))
def test_an_edit_changes_what_is_told_to_the_jobs_that_depend_on_it(
    edit, before, tmp_path, monkeypatch
):
    file, old, new, jobs, trained = EDITS[edit]
    after = told(write(file, old, new, tmp_path, monkeypatch))
    assert before.keys() == after.keys()
    stale = [job for job in after if after[job] != before[job]]
    rules = [after[job][0] for job in stale]
    methods = [job.split("/")[-3] for job in stale if after[job][0] == "train"]
    assert {rule: rules.count(rule) for rule in {*rules} - {"train"}} == jobs
    assert sorted(methods) == sorted(trained)


def test_edits_that_change_no_number_change_nothing_that_is_told(before, tmp_path, monkeypatch):
    for edit in HARMLESS:
        write(*edit, tmp_path, monkeypatch)
    assert told() == before


def test_jobs_of_two_names_are_told_apart(before):
    """The params of a job are of this job: no two of the same rule are told the same."""
    said = [*before.values()]
    assert len({*said}) == len(said)
