"""What `fedgrid clean` lists and deletes, and what it leaves alone."""

import base64
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from fedgrid.commands import clean
from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError
from fedgrid.store import deletable
from fedgrid.store.deletable import find_wanted, list_grids
from fedgrid.study.grid import Grid
from fedgrid.study.paths import RUN
from fedgrid.study.protocol import runs_of_block
from fedgrid.study.reading import CONFIG
from fedgrid.training import same_work
from made import STUDIES

QUICK = {"study": "fedsls", "scale": "quick"}
CELL = "fedsls-quick/digits/dir0.1"
WANTED, OTHER, GONE = f"{CELL}/fedavg/seed0", "old protocol/digits/dir0.1/fedavg/seed0", "seed7"
UNFINISHED = f"{CELL}/moon/seed0"
STATES = ("ended", "ended.history", "ended.clients/000001.safetensors")
HERE = Path(__file__).parents[2]
# What somebody else has put into the folders, or into a folder that fedgrid made.
OF_USERS = (
    "notes.txt",
    "my runs/fedavg/metrics.csv",
    f"runs/{OTHER}/metrics copy.csv",
    f"runs/{OTHER}/plots/figure.pdf",
    "runs/metrics.csv",
    f"checkpoints/runs/{OTHER}.safetensors.mine",
    f"checkpoints/runs/{OTHER}.safetensors.finished/notes.txt",
    f"checkpoints/runs/{OTHER}.safetensors.ended.clients/mine.safetensors",
    "checkpoints/by_key/readme.txt",
    "checkpoints/my.lock",
    "partition/digits/dir0.1/classwise-100/seed0.txt",
    "logs/tensorboard/run/events",
    "grids/mine.txt",
    "compiled/mine.txt",
    "compiled/mine/code.py",
    ".mine.123.tmp",
    "folder/.x.123.tmp",
)


def write(path: Path, text: str = "content") -> Path:
    """A file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_run(results: Path, name: str, key: str = "0a") -> None:
    """A finished run, its copy, its last state, its note, log and record."""
    kept = results / f"checkpoints/runs/{name}.safetensors"
    for file in ("model.safetensors", "summary.json", "clients.csv", "predictions.csv"):
        write(results / "runs" / name / file, json.dumps({"key": key}))
    write(results / "runs" / name / "metrics.csv")
    write(results / "runs" / name / ".metrics.csv.record")
    for file in ("model.safetensors", "metrics.csv", "summary.json"):
        files.share(results / "runs" / name / file, Path(f"{kept}.finished") / file)
    for end in STATES:
        write(Path(f"{kept}.{end}"))
    same_work.write_note(results / same_work.NOTES, key, f"{name}.safetensors")
    write(results / f"logs/runs/{name}.log")


@pytest.fixture(scope="module")
def wanted():
    """What the grids need by the project's config.yaml; it takes seconds."""
    return find_wanted([HERE / "config.yaml"])


@pytest.fixture
def results(request, tmp_path, monkeypatch, wanted) -> Path:
    """A folder of results, or a link to one, with something of every kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        deletable, "find_wanted", lambda given: wanted if given == [CONFIG] else find_wanted(given)
    )
    shutil.copy(HERE / "config.yaml", tmp_path)
    folder = Path("results")
    if getattr(request, "param", "") == "link":
        (tmp_path / "a disk").mkdir()
        folder.symlink_to(tmp_path / "a disk")
    write_run(folder, WANTED, "0a")
    write_run(folder, OTHER, "0b")
    for end in ("", ".before", ".history", ".clients/000001.safetensors"):
        write(folder / f"checkpoints/runs/{UNFINISHED}.safetensors{end}")
    write(folder / f"runs/{UNFINISHED}/metrics.running.csv")
    write(folder / f"checkpoints/runs/{CELL}/fedprox/seed0.safetensors.finished/metrics.csv")
    same_work.write_note(folder / same_work.NOTES, "0c", "nowhere.safetensors")
    write(folder / "grids/0123456789abcdef.txt")
    for name in ("ab/cabc.py", "fxgraph/ab/f0", "aotautograd/a0/a0"):
        write(folder / "compiled" / name)
    write(folder / "partition/digits/dir9/classwise-100/seed0.npz")
    write(folder / f"logs/runs/{CELL}/nothing/{GONE}.log")
    write(folder / f"checkpoints/runs/{CELL}/moon/seed1.safetensors.lock", "process 1")
    old = write(folder / f"runs/{WANTED}/.metrics.csv.123.tmp/metrics.csv")
    os.utime(old, (time.time() - 9999,) * 2)
    write(folder / f"runs/{WANTED}/.clients.csv.123.tmp/clients.csv")  # written at this moment
    for name in (f"results/runs/{WANTED}/metrics.csv", "results/gone.csv", "other/gone.csv"):
        note = base64.b64encode(name.encode(), altchars=b"-_").decode()
        write(Path(".snakemake/metadata") / note)
    write(Path(".snakemake/log/2026.snakemake.log"))
    for path in OF_USERS:
        write(folder / path)
        os.utime(folder / path, (time.time() - 9999,) * 2)
    return folder


folder_or_link = pytest.mark.parametrize("results", ["folder", "link"], indirect=True)


def there(results: Path) -> set[str]:
    """The files that are there, and Snakemake's."""
    return {str(path) for folder in (results, Path(".snakemake")) for path in below(folder)}


def below(folder: Path) -> set[Path]:
    """All files of a folder, behind links, too."""
    return {Path(place, one) for place, _, names in os.walk(folder) for one in names}


def listed(capsys, *arguments: str) -> dict[str, int]:
    """The number of files by kind that the command lists."""
    clean.main([*arguments])
    rows = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


@folder_or_link
def test_what_can_be_deleted_is_listed_and_nothing_is_deleted(results, capsys):
    before = there(results)
    found = listed(capsys)
    assert there(results) == before
    del found["total"]
    assert found == {
        **{"leftovers": 2, "notes": 3, "compiled": 3, "checkpoints": 5, "states": 3},
        **{"copies": 1, "inputs": 1, "logs": 2, "runs/old protocol": 13},
    }


@folder_or_link
def test_only_what_nothing_is_lost_with_is_deleted_unless_it_is_named(results):
    before = there(results)
    clean.main(["--delete"])
    gone = {path.removeprefix("results/") for path in before - there(results)}
    assert gone == {
        f"runs/{WANTED}/.metrics.csv.123.tmp/metrics.csv",
        f"checkpoints/runs/{CELL}/moon/seed1.safetensors.lock",
        *(path for path in gone if path.startswith("checkpoints/by_key/0c/")),
        "grids/0123456789abcdef.txt",
        f".snakemake/metadata/{base64.b64encode(b'results/gone.csv').decode()}",
    }
    assert len(gone) == 5
    assert not (results / f"runs/{WANTED}/.metrics.csv.123.tmp").exists()


@folder_or_link
def test_what_a_grid_needs_and_what_others_wrote_stays_whatever_is_named(results):
    wanted = {
        path for path in there(results) if f"runs/{WANTED}" in path and ".123.tmp" not in path
    }
    clean.main(["--delete", *clean.LOST])
    left = there(results)
    assert {f"results/{path}" for path in OF_USERS} <= left
    assert wanted - left == {f"results/checkpoints/runs/{WANTED}.safetensors.{e}" for e in STATES}
    assert f"results/runs/{WANTED}/.clients.csv.123.tmp/clients.csv" in left
    assert not any(OTHER in path for path in left - {f"results/{path}" for path in OF_USERS})


def test_a_protocol_can_be_named_alone(results, capsys):
    write_run(results, OTHER.replace("old protocol", "older"), "0d")
    clean.main(["--delete", "runs/old protocol"])
    assert not (results / "runs" / OTHER / "metrics.csv").exists()
    assert (results / "runs" / OTHER.replace("old protocol", "older") / "metrics.csv").exists()


def test_a_run_that_the_configuration_asks_for_stays(results, capsys):
    names = "method: +fedprox-mu0.5\nseed: [0]\n"
    Path("more.yaml").write_text(names)
    write_run(results, f"{CELL}/fedprox-mu0.5/seed0", "0e")
    assert "runs/fedsls-quick" in listed(capsys)
    assert "runs/fedsls-quick" not in listed(capsys, "--config", "config.yaml", "more.yaml")


def test_the_last_state_that_a_product_reads_stays(results, capsys, wanted):
    assert wanted.states  # of the study privatization
    name = min(run for run in wanted.states if run in wanted.runs)
    write_run(results, name, "0f")
    assert listed(capsys)["states"] == 3  # of the other run
    write_run(results, f"{CELL}/fedavg/seed1", "1f")
    assert listed(capsys)["states"] == 6


def test_a_run_that_runs_of_a_grid_are_linked_to_stays(wanted):
    name = {"protocol": "privatization-fecifar-lr0.03", "dataset": "cifar10"}
    name |= {"partition": "classes5", "method": "AaBb", "seed": 0}
    everything = Grid(STUDIES, QUICK)
    first = everything.first_name(everything.resolve(name))
    blocks = [block for one in list_grids(everything) for block in everything.all_blocks(*one)]
    in_grids = [run for block in blocks for run in runs_of_block(block)]
    assert name in in_grids
    assert first not in in_grids
    assert RUN.format(**first) in wanted.runs


def test_all_files_of_an_input_that_no_grid_reads_are_listed(tmp_path, wanted):
    unused = {
        "partition/digits/dir9/classwise-5/seed0.clients.csv",
        "pretrain/digits/dir9/0a/seed0/client3.safetensors",
        "pretrain/digits/dir9/0a/seed0/seconds.txt",
        "saliency/digits/dir9/0a/seed0.csv",
        "logs/pretrain/digits/dir9/0a/seed0.log",
        "benchmarks/latents/digits/dir9/0a/seed0.tsv",
    }
    ends = ((f"{one}/client0.safetensors", f"../logs/{one}.log") for one in wanted.inputs)
    read = {path for paths in ends for path in paths if "pretrain" in path}
    assert read
    mine = ("pretrain/digits/dir9/0a/seed0/notes.txt", "logs/partition/a/b/c/seed0.txt")
    for path in (*unused, *sorted(read)[:2], *mine):
        write(tmp_path / "results" / path.removeprefix("../"))
    found = deletable.find_deletable(tmp_path / "results", wanted)
    assert {str(path.relative_to(tmp_path / "results")) for path in found.pop("inputs")} == unused
    assert not found


def test_a_product_of_the_configuration_keeps_the_states_that_it_reads(tmp_path, wanted):
    given = dict(study="privatization", scale="quick")
    sources = {kind: f"{kind}/claims" for kind in ("interpolation", "runs", "settings")}
    mine = STUDIES["privatization"]["products"]["figure9"] | {"from": sources, "draw": "figure9"}
    write(tmp_path / "own.yaml", json.dumps(given | {"products": {"mine": mine}}))
    assert find_wanted([tmp_path / "own.yaml"]).states > wanted.states


def test_nothing_behind_a_link_is_deleted(results, tmp_path):
    outside = tmp_path / "outside"
    write_run(outside, OTHER)
    shutil.rmtree(results / "runs" / OTHER.partition("/")[0])
    (results / "runs" / OTHER.partition("/")[0]).symlink_to(
        outside / "runs" / OTHER.partition("/")[0]
    )
    before = below(outside)
    clean.main(["--delete", *clean.LOST])
    assert below(outside) == before


def test_a_file_with_another_name_frees_nothing_alone(results, wanted):
    kept = deletable.find_deletable(results, wanted)
    paths = kept["runs/old protocol"]
    model = [path for path in paths if path.name == "model.safetensors"]
    assert len(model) == 2
    assert clean.freed(model[:1]) == 0
    assert clean.freed(model) == model[0].stat().st_blocks * 512 > 0


@pytest.mark.parametrize("kinds", [[], ["states"]])
def test_nothing_is_deleted_while_somebody_works(kinds, results, monkeypatch):
    before = there(results)
    lock = write(Path(".snakemake/locks/0.input.lock"))
    with pytest.raises(UsageError, match="Snakemake works in this folder"):
        clean.main(["--delete", *kinds])
    home = Path.cwd()
    monkeypatch.chdir(results)  # the lock counts from inside the folder, too
    with pytest.raises(UsageError, match="Snakemake works in this folder"):
        clean.main(["--results", ".", "--delete", *kinds])
    monkeypatch.chdir(home)
    lock.unlink()
    held = results / f"checkpoints/runs/{UNFINISHED}.safetensors"
    with files.alone(held):
        with pytest.raises(UsageError, match=r"a process holds .*safetensors\.lock"):
            clean.main(["--delete", *kinds])
        assert files.holder(held.with_name(f"{held.name}.lock")).startswith("process")
    assert there(results) == before


def test_wrong_names_and_configurations_are_refused_and_nothing_is_deleted(results):
    with pytest.raises(
        UsageError, match="no kind to delete is called `stats`: did you mean states"
    ):
        clean.main(["--delete", "stats"])
    with pytest.raises(UsageError, match="the folder nowhere does not exist"):
        clean.main(["--results", "nowhere"])
    write(Path("short.yaml"), "study: fedsls\nmethod: [fedavg]\n")
    with pytest.raises(UsageError, match=r"short\.yaml: there is a `study`, but no `scale`"):
        clean.main(["--config", "short.yaml"])
    before = there(results)
    Path("config.yaml").write_text("study: fedsls\nscale: quick\nmethod: [fedavgg]\n")
    with pytest.raises(UsageError, match="fedavgg"):
        clean.main(["--config", "./config.yaml", "config.yaml", "--delete", "runs"])
    assert there(results) == before
