"""The package's code as a dependency (`fedgrid.runtime.code.source`), and names as runs."""

import copy
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import answers, forget
from fedgrid.runtime import places, schema
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import stage_modules
from fedgrid.study.paths import COLLECTED, RUN
from fedgrid.study.products import product_module
from fedgrid.study.protocol import PROTOCOL, runs_of_block
from fedgrid.study.reading import find_study, read_study
from made import STUDIES

WORKFLOW = PACKAGE.parent
METHODS = registered("methods")

# --- fingerprints ----------------------------------------------------------------------------


def test_a_module_that_is_imported_by_a_relative_name_counts(package):
    (package / "methods/mine.py").write_text("from ._helper import FACTOR\n")
    (package / "methods/other.py").write_text("from . import _helper\n")
    found = []
    for factor in (1, 2):
        (package / "methods/_helper.py").write_text(f"FACTOR = {factor}\n")
        forget()
        found.append([source.fingerprint(f"methods.{name}") for name in ("mine", "other")])
    assert all(one != other for one, other in zip(*found, strict=True))


TEXTS = [
    "raise UsageError(f'{} {a}')",
    "raise UsageError('{}') from a",
    "cli.warn(a + '{}')",
    "warnings.warn('{}')",
    "log.info('%s', '{}')",
    "'{}'\n    # {}",
    "if a == '{}':\n        raise UsageError(a)",  # a check only refuses
    "if b := a.get('{}'):\n        raise UsageError(b)",
    "from fedgrid.runtime.names import {}",
]
VALUES = [
    "said = '{}'\n    raise UsageError(said)",  # it may be used elsewhere
    "a = '{}'\n    return lambda: a",
    "print('{}')",
    "log.append('{}')",  # a list may have this name, too
    "cli.run('{}')",
    "if a == '{}':\n        raise KeyError(a)",  # which may be caught
    "if a == '{}':\n        raise UsageError(a)\n    else:\n        return",
    "if (b := a['{}']) > 1:\n        raise UsageError(b)\n    return b",
    "from fedgrid.engine.state import {}",
]


def test_a_text_counts_only_if_a_result_may_depend_on_it(package):
    for text in (*TEXTS, *VALUES):
        found = set()
        for value in ("one", "another"):
            code = f"def f(self, a, parser):\n    {text.replace('{}', value)}\n"
            (package / "methods/mine.py").write_text(code)
            forget()
            found.add(source.fingerprint("methods.mine"))
        assert (len(found) > 1) == (text in VALUES), text


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package that may be edited."""
    root = tmp_path / "fedgrid"
    shutil.copytree(PACKAGE, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(places, "PACKAGE", root)
    forget()
    yield root
    forget()


def fingerprints(stage: str = "train") -> dict[str, str]:
    """By method, of the code as it is now."""
    forget()
    protocol = {"model": "cnn"}
    return {
        name: source.fingerprint(
            *stage_modules(stage, {"protocol": protocol, "method": {name: {}}})
        )
        for name in METHODS
    }


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return fingerprints()


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_a_fingerprint_is_noted_for_the_same_files_only(package, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    found = source.fingerprint("methods.moon")
    forget()
    monkeypatch.setattr(source, "code", None)  # it is read, and not found again
    assert source.fingerprint("methods.moon") == found
    monkeypatch.undo()
    edit_all(package, [("methods/moon", "0.5", "0.25")])
    forget()
    monkeypatch.setattr(places, "PACKAGE", package)
    assert source.fingerprint("methods.moon") != found


def test_a_check_that_was_passed_is_run_again_for_other_facts_or_files_only(
    package, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    checked = []
    for facts in ({"lr": 0.1}, {"lr": 0.1}, {"lr": 0.2}):
        source.check_once(facts, lambda facts=facts: checked.append(facts["lr"]))
    for _ in range(2):  # what was not passed is tried again
        with pytest.raises(UsageError, match="`moom`: did you mean moon"):
            source.check_once("facts", lambda: known("method", "moom", METHODS))
    edit_all(package, [("methods/moon", "0.5", "0.25")])
    forget()
    source.check_once({"lr": 0.1}, lambda: checked.append("again"))
    assert checked == [0.1, 0.2, "again"]


@pytest.mark.parametrize("damage", ["", "x", "{key} damaged", "\0\xff", None])
def test_a_damaged_or_impossible_note_changes_no_fingerprint(damage, tmp_path, monkeypatch):
    expected = source.fingerprint("methods.moon")
    (tmp_path / "caches").write_text("no folder") if damage is None else None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    forget()
    if damage is not None:
        assert source.fingerprint("methods.moon") == expected
        (note,) = (tmp_path / "caches/fedgrid").glob("code-*")
        note.write_text(damage.format(key=note.read_text().split()[0]), errors="replace")
        forget()
    assert source.fingerprint("methods.moon") == expected
    forget()


def edit_all(package: Path, edits: list[tuple]) -> None:
    """Replaces (module, old, new) each."""
    for module, old, new in edits:
        path = package / f"{module}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


def test_every_method_has_a_fingerprint_of_its_own_and_a_copy_the_same(before, package):
    assert len(set(before.values())) == len(METHODS)
    assert fingerprints() == before


def reformatted(text: str) -> str:
    """More blank lines and comments, and double quotes made single where that is safe."""
    text = re.sub(r'"([a-z_]+)"', r"'\1'", text)
    return "# a comment\n\n\n" + text.replace("\n\n", "\n\n\n# another\n\n") + "\n\n# the last\n"


DOCSTRINGS = [
    ("methods/fedprox", "a proximal term"),  # of a module
    ("methods/fedprox", "mu >= 0 weighs"),  # of a function
    ("engine/state", "The state of a run between two rounds; a checkpoint"),  # of a class
    ("engine/round", "Return the state of the run after one more round"),  # of a method
]
# Edits that change no number of a run.
HARMLESS = [
    *((*one, "Something else") for one in DOCSTRINGS),
    ("models/resnet18", "512", "513"),  # no run of these reads it
    ("report/fedsls/table1", "- table[", "+ table["),
    ("analysis/scores", "100 if", "1 if"),
    ("stages/latents", "256", "255"),
    ("runtime/watch/progress", "EVERY = 10", "EVERY = 11"),  # rooms that never count
    ("runtime/machine", "AVX-512", "AVX512"),
    ("study/jobs", "round(4000 +", "round(5000 +"),  # the memory of a job
    ("study/paths", '("rounds", "metric"', '("metric", "rounds"'),  # what is summed up
    ("study/protocol", "if rule.get(mark)", "if mark in rule"),  # a job gets the values
    ("store/identity", "64)", "32)"),  # finished runs are told apart by it
    ("commands/train", "default: under --results, by name", "the file of the last round"),
    ("engine/device", "torch sees no GPU", "there is no GPU"),  # the text of an error
    ("engine/device", "threads < 1", "threads < 2"),  # a check that only refuses
    ("training/results", "finished after %d", "ended after %d"),  # of a log message
    ("stages/train", "stopped after round", "ended after round"),
    ("methods/fedprox", '"[0, inf)"', '"[0, 1]"'),  # RANGES, which the file does not read
    ("methods/fedprox", "RANGES = ", 'NAME = "FedProx"\nRANGES = '),
]


def test_what_changes_no_number_does_not_count(before, package):
    for module in ("methods/fedprox", "engine/round", "federation/schedule", "method"):
        path = package / f"{module}.py"
        path.write_text(reformatted(path.read_text()))
    edit_all(package, HARMLESS)
    assert changed(before, fingerprints()) == set()


def test_the_ranges_of_hyper_parameters_count_if_the_file_reads_them(package):
    edit_all(package, [("methods/fedprox", "mu / 2", 'len(RANGES["mu"]) * mu / 2')])
    read = fingerprints()
    edit_all(package, [("methods/fedprox", '"[0, inf)"', '"[0, 1)"')])
    assert changed(read, fingerprints()) == {"fedprox", "fedacg"}


def slowly(*edits: tuple) -> list:
    return [pytest.param(*edit, marks=pytest.mark.slow) for edit in edits]


@pytest.mark.parametrize(
    ("module", "old", "new", "who"),
    [
        ("methods/fedprox", "mu / 2", "mu / 3", {"fedprox", "fedacg"}),
        ("encoders/guided", "maps.mean(1)", "maps.sum(1)", {"fedsls", "fedsls_dynamic"}),
        ("engine/samples", "CHUNK = 64", "CHUNK = 65", set(METHODS)),
        ("federation/array_files", "arrays[name] for", "arrays[name] * 2 for", set(METHODS)),
        *slowly(
            ("methods/fedprox", "mu: float = 0.01", "mu: float = 0.02", {"fedprox", "fedacg"}),
            ("encoders/autoencoder", "(2, 4, 8)", "(2, 4)", {"fedsl"}),
            ("engine/backends/_local_step", "value.sum()", "value.mean()", set(METHODS)),
            ("models/cnn", "width: int = 64", "width: int = 65", set(METHODS)),
            ("training/checkpoint", 'VERSION = "4"', 'VERSION = "5"', set(METHODS)),
            (  # what is done instead of an error
                *("engine/device", 'raise UsageError(f"--threads is'),
                *('return UsageError(f"--threads is', set(METHODS)),
            ),
        ),
    ],
)
def test_code_counts_for_the_runs_that_execute_it(before, package, module, old, new, who):
    edit_all(package, [(module, old, new)])
    assert changed(before, fingerprints()) == who


PRODUCTS = STUDIES["fedsls"]["products"]
COMPARED = {"ablation_reading", "ablation_static_dynamic", "ablation_tau"}
OF_VERDICTS = {"claims", "contrasts", "printed", "controls", "concentration", *COMPARED}
REPORT = "report/fedsls"


def drawn() -> dict[str, str]:
    """The fingerprints of FedSLS's products, of the code as it is now."""
    forget()
    modules = {name: product_module("fedsls", name, about) for name, about in PRODUCTS.items()}
    return {name: source.fingerprint("report._formats", module) for name, module in modules.items()}


@pytest.fixture(scope="module")
def drawn_before() -> dict[str, str]:
    return drawn()


@pytest.mark.parametrize(
    ("module", "old", "new", "who"),
    [
        ("report/partitions", "LARGEST = 60", "LARGEST = 61", {"figure4"}),
        ("analysis/verdicts", "LEVEL / needed", "LEVEL / (needed + 1)", OF_VERDICTS),
        ("engine/samples", "CHUNK = 64", "CHUNK = 65", set()),  # it draws nothing
        ("store/tables", "isfinite", "isnan", set()),
        *slowly(
            (f"{REPORT}/table1", "- table[", "+ table[", {"table1", "table1_epochs"}),
            ("report/ablation", ":.1f}", ":.2f}", COMPARED),
            ("analysis/scores", "100 if", "1 if", set(PRODUCTS)),  # `best` chooses by them
            ("claim", 'OVER = "fedavg"', 'OVER = "moon"', set(PRODUCTS)),
        ),
    ],
)
def test_code_counts_for_the_products_that_it_draws(drawn_before, package, module, old, new, who):
    edit_all(package, [(module, old, new)])
    assert changed(drawn_before, drawn()) == who


def test_a_summary_is_the_first_paragraph_on_one_line(package):
    (package / "report/new.py").write_text('"""One\nsentence.\n\nMore of it.\n"""\n')
    forget()
    assert source.summary("report.new") == "One sentence."


def test_what_a_product_is_drawn_from_is_read_without_importing():
    from importlib import import_module
    from inspect import Parameter, signature

    for name, about in PRODUCTS.items():
        module = product_module("fedsls", name, about)
        found = signature(import_module(f"fedgrid.{module}").draw).parameters
        needed = [name for name, one in found.items() if one.default is Parameter.empty]
        assert source.parameters(module, "draw") == (needed, [*found])
    assert source.parameters("report.sweep", "draw") == (["study", "scale"], None)


def test_stages_before_the_training_do_not_depend_on_the_method(package):
    for stage in ("pretrain", "saliency", "latents"):
        assert len(set(fingerprints(stage).values())) == 1
    encoded = fingerprints("saliency")
    texts = ("their pretraining diverged", "of all weight is with", "is 0 for every client")
    edits = [("stages/saliency", old, "something else") for old in texts]
    edit_all(package, [*edits, ("methods/fedsls", "0.5", "0.6")])
    assert changed(encoded, fingerprints("saliency")) == set()
    edit_all(package, [("stages/saliency", "weights / weights.sum()", "weights * weights.sum()")])
    assert changed(encoded, fingerprints("saliency")) == set(METHODS)


def test_imports_inside_functions_are_followed():
    wanted = {"training.build", "engine.round", "federation.federation", "federation.stored"}
    assert wanted <= source.reachable("stages.train")
    assert "encoders.guided" in source.reachable("stages.saliency")
    assert "stages.saliency" not in source.reachable("stages.train")


def test_every_module_is_reached_from_an_entry_point():
    entries = ["experiments.costs", "notebook.api", "__main__"]
    entries += ["datasets._folder", "datasets._npz"]  # of data of one's own
    entries += ["runtime.watch.remaining", "runtime.timers", "runtime.groups"]  # of the Snakefile
    entries += ["study.given", "study.jobs"]
    entries += ["checking.plain"]  # which people write methods a second time with
    entries += ["checking.model"]  # which study.sizes runs
    entries += [f"experiments.fidelity.{stage}" for stage in ("originals", "maps", "scores")]
    by_name = ("methods", "models", "datasets", "partitions", "engine.backends", "report")
    by_name += ("commands", "plan", "runtime.watch.trackers")
    by_name += ("experiments", *(f"report.{study}" for study in STUDIES))
    folders = {kind: registered(kind.replace(".", "/")) for kind in by_name}
    entries += [f"{kind}.{name}" for kind, names in folders.items() for name in names]
    reached = frozenset().union(*map(source.reachable, entries))
    files = {p.relative_to(PACKAGE).with_suffix("") for p in PACKAGE.rglob("*.py")}
    names = {".".join(f.parts).removesuffix(".__init__") for f in files} - {"__init__"}
    packages = {"notebook", "stages", *by_name}  # which only their files are imported from
    assert names - reached - packages == set()


@pytest.mark.parametrize("name", METHODS)
def test_hyper_parameters_are_read_without_importing(name):
    from importlib import import_module
    from inspect import signature

    function = import_module(f"fedgrid.methods.{name}").method
    defaults = {key: p.default for key, p in signature(function).parameters.items()}
    assert source.keywords(f"methods.{name}", "method") == defaults


def test_literals_are_read_without_importing():
    assert source.literal("methods.fedsls", "NEEDS") == ("saliency",)
    assert source.literal("methods.fedavg", "NEEDS", ()) == ()
    with pytest.raises(UsageError, match=r"methods/fedavg.py has no function `nothing`"):
        source.keywords("methods.fedavg", "nothing")


def test_neither_the_grid_nor_the_sources_import_torch():
    code = (
        f"import sys; sys.path.insert(0, {str(WORKFLOW)!r}); from fedgrid.runtime import schema; "
        f"from fedgrid.study import grid, reading; grid.Grid(reading.read_studies());"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("age", [0, 3600])
def test_a_new_file_is_at_once_a_name_of_its_registry(age, tmp_path, monkeypatch):
    """Also in a folder that was read before, whether or not it changed a moment ago."""
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods/first.py").touch()
    changed = time.time() - age
    os.utime(tmp_path / "methods", (changed, changed))
    assert registered("methods") == registered("methods") == ["first"]
    (tmp_path / "methods/second.py").touch()
    assert registered("methods") == ["first", "second"]
    assert registered("nothing") == []


# --- the grid --------------------------------------------------------------------------------

SMALL = {
    "title": "a study",
    "protocols": {"base": {"clients": 10, "rounds": 5}, "longer": {"base": "base", "rounds": 9}},
    "variants": {"prox+decorr": {"fedprox": {"mu": 1}, "feddecorr": {}}},
    "tuned": {"fedprox": {"digits": {"mu": 0.5}}},
    "scales": {
        "quick": {
            "grids": {
                "main": [
                    {
                        "protocol": "base",
                        "dataset": ["digits", "synthetic"],
                        "partition": ["dir0.1"],
                        "method": ["fedavg", "fedprox", "prox+decorr"],
                        "seed": [0, 1],
                    }
                ]
            }
        }
    },
    "products": {
        "convergence": {"from": {"runs": "runs/main"}, "formats": ["csv"], "category": "Results"}
    },
}


def small(config: dict | None = None, **changes) -> Grid:
    """The small study with changes, a value by its dotted path."""
    study = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = path.split(".")
        where = study
        for parent in parents:
            where = where[int(parent) if isinstance(where, list) else parent]
        where[last] = value
    return Grid({"study": study}, config)


BLOCK = "scales.quick.grids.main.0"


def test_a_grid_is_the_product_of_its_axes():
    runs = small().runs("study", "quick", "main")
    assert len(runs) == len({tuple(run.values()) for run in runs}) == 1 * 2 * 1 * 3 * 2
    assert runs[0] == {
        **{"protocol": "base", "dataset": "digits", "partition": "dir0.1"},
        **{"method": "fedavg", "seed": 0},
    }


def test_a_protocol_has_all_fields_its_bases_and_its_own():
    made = small().protocol("longer")
    assert made == PROTOCOL | {"clients": 10, "rounds": 9}


def test_hyper_parameters_are_the_files_then_tuned_then_the_variants():
    made = small()
    assert made.method("fedprox", "synthetic") == {"fedprox": {"mu": 0.01}}
    assert made.method("fedprox", "digits") == {"fedprox": {"mu": 0.5}}
    run = made.resolve(made.runs("study", "quick", "main")[-1])
    assert run["method"] == {"fedprox": {"mu": 1}, "feddecorr": {"beta": 0.1, "scale": "code"}}
    assert (run["seed"], run["name"]["seed"], run["name"]["method"]) == (1, 1, "prox+decorr")


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"seed": 0}, 6),
        ({"seed": "0,1,2"}, 18),
        ({"seed": "[0, 5]"}, 12),
        ({"method": "fedavg,moon"}, 8),
        ({"dataset": ["digits"]}, 6),
        ({"partition": "dir0.05, dir0.5"}, 24),
        ({"seed": None, "method": []}, 12),
    ],
)
def test_the_configuration_narrows_and_widens(config, count):
    assert len(small(config).runs("study", "quick", "main")) == count


def test_protocols_of_the_configuration_can_be_run():
    config = {"protocols": {"mine": {"base": "base", "rounds": 2}}, "protocol": "mine"}
    made = small(config)
    run = made.runs("study", "quick", "main")[0]
    assert made.resolve(run)["protocol"]["rounds"] == 2


WRONG = [  # values of the study by their paths
    {f"{BLOCK}.dataset": "digit"},
    {f"{BLOCK}.partition": "dir0.1x"},
    {f"{BLOCK}.seed": [-1]},
    {f"{BLOCK}.seed": [0.5]},
    {f"{BLOCK}.seed": []},
    {f"{BLOCK}.method": None},
    {"protocols.base.weights": "imgnet"},
    {"variants.prox+decorr": {"fedprox": {"mu": True}}},
    {"tuned.fedprox": {"digits": {"mo": 1}}},
    {"products.convergence.from": {"runs": "main"}},
    {"products.convergence.from": {"runs": "runs/main", "more": "runs/main"}},
]
ASKED = [("stdy", "quick", "main"), ("study", "quik", "main"), ("study", "quick", "mein")]


def test_a_wrong_name_or_value_is_named(golden):
    found = answers(lambda changes: small(**changes), WRONG)
    golden("grids", found | answers(lambda names: small().runs(*names), ASKED))


def test_a_study_is_found_by_its_name_or_file(tmp_path):
    assert find_study("fedsls") == WORKFLOW / "studies/fedsls.yaml"
    assert find_study(f"{tmp_path}/mine.yaml") == tmp_path / "mine.yaml"
    with pytest.raises(UsageError, match="no study is called `fedsl`: did you mean fedsls"):
        find_study("fedsl")
    with pytest.raises(UsageError, match=r"mine.yaml cannot be read"):
        read_study(tmp_path / "mine.yaml")


# --- what products are drawn from ------------------------------------------------------------

FROM = "products.convergence.from"


def test_every_kind_of_source_may_be_asked_for():
    for kind in COLLECTED:
        small(**{FROM: {"runs": f"{kind}/main"}})
    quick = SMALL["scales"]["quick"] | {"costs": {}}
    small(**{FROM: {"runs": "costs"}, "scales.quick": quick})


OF_EXPERIMENTS = {"figure3", "figure5", "resources"}
OF_CIFAR10 = COMPARED | {"pilot_local_work", "controls", "concentration", "cost", "traffic"}


@pytest.mark.parametrize(
    ("dataset", "left_out"),
    [
        (None, set()),
        ("cifar10", set()),
        ("cifar10,cifar100", set()),
        ("cifar100", OF_CIFAR10),
        ("tinyimagenet", OF_CIFAR10 | {"figure4"}),
        ("cinic10,tinyimagenet", OF_CIFAR10 | {"figure4"}),
    ],
)
def test_products_of_grids_that_the_configuration_empties_are_left_out(dataset, left_out):
    made = Grid(STUDIES, {"study": "fedsls", "scale": "paper", "dataset": dataset})
    of_paper = {name for name in PRODUCTS if made.has_sources("fedsls", "paper", name)}
    assert of_paper - set(made.products("fedsls", "paper")) == left_out
    assert set(made.products("fedsls", "paper")) >= OF_EXPERIMENTS


def test_a_product_is_drawn_without_a_source_that_the_configuration_empties_if_it_can_be():
    made = Grid(STUDIES, {"study": "fedsls", "scale": "paper", "dataset": "cifar100"})
    assert made.sources("fedsls", "paper", "claims").keys() == {"runs", "scores"}
    whole = Grid(STUDIES, {"study": "fedsls", "scale": "paper"})
    assert whole.sources("fedsls", "paper", "claims").keys() == {"runs", "scores", "costs"}


@pytest.mark.parametrize(
    ("config", "main", "other"),
    [
        ({"method": "fedavg"}, {"fedavg"}, set()),
        ({"method": "moon"}, set(), {"moon"}),
        ({"method": "moon,fedavg"}, {"fedavg"}, {"moon"}),
        ({"method": "fedau"}, {"fedau"}, {"fedau"}),  # in no grid: one's own
        ({"method": "fedavg,fedau"}, {"fedavg", "fedau"}, set()),
        ({"seed": 1}, {"fedavg", "fedprox", "prox+decorr"}, set()),
        ({"seed": 7}, {"fedavg", "fedprox", "prox+decorr"}, {"moon"}),
    ],
)
def test_a_block_keeps_what_it_has_of_the_names_asked_for(config, main, other):
    block = SMALL["scales"]["quick"]["grids"]["main"][0] | {"method": "moon", "seed": 0}
    made = small(config, **{"scales.quick.grids.other": [block]})
    for name, methods in (("main", main), ("other", other)):
        runs = made.runs("study", "quick", name)
        assert {run["method"] for run in runs} == methods
        if "seed" in config:
            assert {run["seed"] for run in runs} <= {config["seed"]}


def test_a_dataset_of_another_grid_of_the_scale_is_no_mistake():
    made = Grid(STUDIES, {"dataset": "tinyimagenet"})
    assert made.narrow_blocks("fedsls", "paper", "tau") == []
    assert {run["dataset"] for run in made.runs("fedsls", "paper", "table1")} == {"tinyimagenet"}
    with pytest.raises(UsageError, match="or choose the scale quick, which has it"):
        Grid(STUDIES, {"study": "fedsls", "scale": "paper", "dataset": "digits"})


# --- schemas ---------------------------------------------------------------------------------


def check_study(**changes) -> None:
    study = copy.deepcopy(SMALL)
    study["protocols"]["base"] |= changes
    schema.check_schema("study.yaml", study, WORKFLOW / "schemas/study.schema.yaml")


SMALL_ONLY = {"pilot_small"}  # the other products are drawn at the quick and the paper's scale


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_obeys_its_schema_and_names_what_exists(name):
    made = Grid(STUDIES)
    for scale, parts in STUDIES[name]["scales"].items():
        for one in parts["grids"]:
            for block in made.narrow_blocks(name, scale, one):
                runs = runs_of_block(block)
                assert len({RUN.format(**run) for run in runs}) == len(runs) > 0
    drawn = [p for scale in STUDIES[name]["scales"] for p in made.products(name, scale)]
    assert {*drawn} == {*STUDIES[name]["products"]}
    largest = "paper" if "paper" in STUDIES[name]["scales"] else "quick"
    assert made.products(name, "quick") == made.products(name, largest)
    assert made.products(name, largest) == [
        p for p in STUDIES[name]["products"] if p not in SMALL_ONLY
    ]


def test_neutral_values_are_in_range():
    check_study(**PROTOCOL)


OUT_OF_RANGE = {
    **{"clients": [0, 2.5, "ten"], "participation": [0, 1.1], "rounds": [0, 3.0, True]},
    **{"local": [0], "local_unit": ["rounds"], "batch": [0], "lr_decay": [1.5]},
    **{"lr": [0, "fast", float("inf"), 10**400], "momentum": [1, -0.1], "weight_decay": [-1]},
    **{"beta1": [1], "beta2": [1], "precision": ["fp16"], "evaluate_every": [0], "tail": [0]},
    **{"pretrain_epochs": [-1], "autoencoder_fit": [-0.1, 1, "good"], "recipe": ["shards"]},
    **{"by_method": [{"fedavg": {"lr": "x"}}, {"sgdm": {"clip": -1}}], "model": [18]},
    **{"augment": [["mixup"], ["crop", "crop"]], "weights": [None]},
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_value_out_of_range_is_named(key, value):
    with pytest.raises(UsageError, match=rf"study.yaml: protocols.base.{key}"):
        check_study(**{key: value})
