"""No change of a function that plans changes a number without an error.

Every function of the rooms that do not count, and that results reach, is changed and tried. What
the workflow compares by value is compared here, too: the run of a job, and what a product gets of
its study.
"""

import hashlib
import json
import shutil
import signal
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path

import pytest

from conftest import slow_but
from fedgrid.commands import collect, data, draw, partition, pretrain, saliency, train
from fedgrid.runtime.places import PACKAGE
from fedgrid.store import kept
from fedgrid.study import jobs
from fedgrid.study.grid import Grid
from fedgrid.study.paths import collected_fields, input_paths
from fedgrid.study.reading import read_studies, read_study

sys.path[:0] = [str(Path(__file__).parents[1])]
import mutations  # noqa: E402

# Nothing that counts reaches a command: commands call down. `store.tables` counts for products.
FOLDERS = ("notebook", "plan", "runtime", "store.identity", "store.kept", "study")
FIELDS = "clients4-participation1-rounds2-local2-batch16-evaluate_every1-client_test0.2"
PROTOCOL = f"fedsls-quick-{FIELDS}"
STAGES = {"partition": partition, "pretrain": pretrain, "saliency": saliency, "train": train}
INPUTS = {"partition": ("data",), "train": ("data", "partition", "saliency")}
SHOWN = ("main", "published", "reference", "curves", "claims", "labels")  # facts of a product
NUMBERS = ("*.npz", "*.csv", "*.safetensors")


def job(name: str) -> tuple[str, dict[str, str]]:
    """What the workflow tells a job, and its inputs by name: both are compared by value."""
    names = {"protocol": PROTOCOL, "dataset": "digits", "partition": "dir0.5", "method": "fedsls"}
    run = Grid(read_studies()).resolve(names | {"seed": 0})
    spec = json.dumps(jobs.run_of_stage(name, run), sort_keys=True)
    return spec, {one: input_paths(run)[one] for one in INPUTS[name]}


def stage(results: Path, name: str, told: tuple[str, dict[str, str]]) -> None:
    """A job as the workflow starts it."""
    out, (spec, inputs) = results / "again", told
    given = [f"{one}={results / path}" for one, path in inputs.items()]
    place = out / ("run" if name == "train" else "made.npz")
    words = [spec, "--inputs", *given, "--out", str(place)]
    if name == "train":
        words += ["--checkpoint", str(out / "checkpoint"), "--device", "cpu", "--threads", "1"]
    STAGES[name].main(words)


def product(study: str, name: str) -> tuple[dict, list]:
    """What the workflow tells the jobs of a product of kept runs, and the product's facts."""
    grid, found = Grid(read_studies()), {}
    about = read_study(PACKAGE.parent / f"studies/{study}.yaml")
    index = kept.read_index(kept.store_folder(study, "small"))
    for source_name, text in grid.sources(study, "small", name).items():
        kind, _, of = text.partition("/")
        runs = map(grid.resolve, grid.runs(study, "small", of))
        entries = [kept.find_kept(index, kind, run) for run in runs]
        blocks = grid.narrow_blocks(study, "small", of)
        protocols = {
            one: collected_fields(kind, fields)
            for one, fields in grid.list_protocols(blocks).items()
        }
        ids = sorted({entry["id"] for entry in entries if entry})
        found[source_name] = [kind, json.dumps(blocks), "--protocols", json.dumps(protocols)]
        found[source_name] += ["--kept", f"{study}/small", "--ids", *ids]
    return found, [{key: about.get(key) for key in SHOWN}, about["products"][name]]


def table(results: Path, study: str, name: str, told: tuple[dict, list]) -> None:
    """A product, from the collection of its runs on."""
    out = results / "again"
    places = {one: out / words[0] / f"{one}.csv" for one, words in told[0].items()}
    for one, words in told[0].items():
        collect.main([*words, "--results", str(results / "none"), "--out", str(places[one])])
    command = [name, "--study", study, "--scale", "small", "--out", str(out / "made.csv")]
    draw.main([*command, "--sources", *(f"{one}={path}" for one, path in places.items())])


OF_PRODUCT = {"study": "privatization", "name": "table1"}
TELL = {name: partial(job, name) for name in INPUTS}
TELL |= {"product": partial(product, **OF_PRODUCT)}
WORK = {name: partial(stage, name=name) for name in INPUTS}
WORK |= {"product": partial(table, **OF_PRODUCT)}


@contextmanager
def quiet():
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


@contextmanager
def limited(seconds: int):
    """An error ends what does not end by itself."""
    signal.signal(signal.SIGALRM, lambda number, frame: sys.exit("it does not end"))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


@cache
def told(work: str):
    return TELL[work]()


def done(results: Path, work: str) -> dict[str, str] | None:
    """The hashes of what a work gives; None if it ends with an error."""
    shutil.rmtree(out := results / "again", ignore_errors=True)
    out.mkdir()
    try:
        with quiet(), limited(10):
            WORK[work](results, told=told(work))
    except (Exception, SystemExit):
        return None
    found = sorted(path for form in NUMBERS for path in out.rglob(form))
    return {str(f.relative_to(out)): hashlib.sha256(f.read_bytes()).hexdigest() for f in found}


def is_told(work: str) -> bool:
    """Whether the workflow tells a job something else than before, so that its result is stale."""
    try:
        return repr(TELL[work]()) != repr(told(work))
    except (Exception, SystemExit):
        return True


def prepared(results: Path) -> Path:
    """A folder with what the stages read."""
    name = f"{PROTOCOL}/digits/dir0.5/fedsls/seed0"
    with quiet():
        data.main(["digits", "--out", str(results / "data/digits")])
        for one in ("partition", "pretrain", "saliency"):
            STAGES[one].main([name, "--results", str(results)])
    return results


def silent(results: Path, work: str, one: mutations.Name, before: dict) -> list[str]:
    """The mutants of a function that change results, and nothing that is compared by value."""
    found = []
    for said, mutant in mutations.mutants(mutations.definition(one)):
        with mutations.replaced(one, mutant), fresh(one[0]):
            after = done(results, work)
            if after and after != before and not is_told(work):
                found.append(said)
    return found


@contextmanager
def fresh(module: str):
    """What a module remembers is computed again, and forgotten at the end."""
    cached = [
        f for f in vars(sys.modules[f"fedgrid.{module}"]).values() if hasattr(f, "cache_clear")
    ]
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder with what the stages read."""
    return prepared(tmp_path_factory.mktemp("mutations") / "results")


@pytest.mark.parametrize("work", slow_but(["partition"], WORK))
def test_no_change_of_what_does_not_count_changes_a_number(work, results):
    """Two to five minutes for each slow one."""
    before = done(results, work)
    assert before == done(results, work)
    reached = sorted(mutations.called(lambda: done(results, work), FOLDERS))
    assert reached
    found = {one: silent(results, work, one, before) for one in reached}
    assert {".".join(one): said for one, said in found.items() if said} == {}
