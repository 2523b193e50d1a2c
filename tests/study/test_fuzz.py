"""Configurations, studies, names and files made at random: one sentence, or they work."""

import copy
import json
import math
import os

import numpy as np
import pytest
import yaml

import made
from fedgrid.federation.members import fits, read_partition, write_partition
from fedgrid.federation.stored import ARRAYS, open_data
from fedgrid.partitions import dirichlet
from fedgrid.runtime import schema
from fedgrid.runtime.names import UsageError, known
from fedgrid.runtime.places import PACKAGE
from fedgrid.store import tables as collected
from fedgrid.study import reading
from fedgrid.study.command import resolve_run, run_parser
from fedgrid.study.grid import Grid
from fedgrid.study.paths import RUN
from fedgrid.study.protocol import AXES, KINDS, LATER, PROTOCOL, STAGES

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

SCHEMAS = PACKAGE.parent / "schemas"
CONFIG = yaml.safe_load((PACKAGE.parent.parent / "config.yaml").read_text())
STUDY = made.STUDIES["fedsls"]
CONFIG_RULES, STUDY_RULES = (SCHEMAS / f"{name}.schema.yaml" for name in ("config", "study"))

# `make test-all` asks for more of them.
EXAMPLES = int(os.environ.get("FEDGRID_EXAMPLES", "8"))
quick = settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)

NASTY = ["", " ", ".", "..", "../x", "a/b", "a\nb", "$(touch x)", "`touch x`", "';", '"', "{x}"]
NASTY += ["-n", "\0", "ü", "x" * 300, "nan", "dir0.1", "fedavg", "digits", "1e999", "9" * 5000]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(NASTY)
)  # fmt: skip
keys = st.sampled_from(NASTY) | st.text(max_size=8) | st.integers() | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(autouse=True, scope="module")
def _studies_are_read_once():
    """Not for every example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_studies", lambda: made.STUDIES)
        yield


def assert_one_sentence(problem: UsageError) -> None:
    """What is said is one line that can be printed, and not endless."""
    assert str(problem).isprintable(), repr(str(problem))
    assert 0 < len(str(problem)) < 2000


def accepted(config: dict, study: dict = STUDY) -> Grid | None:
    """What the Snakefile does with a configuration and a study; nothing if they are refused."""
    try:
        schema.check_schema("config.yaml", config, CONFIG_RULES)
        schema.check_schema("fedsls.yaml", study, STUDY_RULES)
        for name, protocol in config.get("protocols", {}).items():
            schema.check_schema(f"config.yaml: protocols.{name}", protocol, STUDY_RULES, "protocol")
        return Grid({"fedsls": study}, config)
    except UsageError as problem:
        assert_one_sentence(problem)
        return None


def assert_usable(made: Grid | None) -> None:
    """Every run of an accepted configuration can be resolved, named and passed on."""
    if made is None:
        return
    study, scale = made.config["study"], made.config["scale"]
    for run in made.runs(study, scale, "table1")[:3]:
        resolved = made.resolve(run)
        assert "\0" not in json.dumps(resolved)
        path = RUN.format(**resolved["name"])
        assert len(path.split("/")) == len(AXES)
        assert path.isprintable()
        assert not {"..", "."} & set(path.split("/"))
        assert all(type(v) is type(PROTOCOL[k]) or isinstance(v, int | float)
                   for k, v in resolved["protocol"].items())  # fmt: skip
        numbers = [v for v in resolved["protocol"].values() if isinstance(v, float)]
        assert all(map(math.isfinite, numbers))


@quick
@given(st.sampled_from(sorted({*CONFIG, *AXES, "nonsense"})), values)
@example("seed", [True])
@example("seed", "9" * 5000)
@example("seed", ["0", 1])
@example("protocols", {1: {}})
@example("variants", {"../x": {"fedavg": {}}})
@example("variants", {"$(touch x)": {"fedavg": {}}})
@example("variants", {"mine": {2: {}}})
@example("data_root", "a\0b")
def test_any_value_of_the_configuration_is_answered(key, value):
    assert_usable(accepted(CONFIG | {key: value}))


@quick
@given(st.sampled_from(sorted(PROTOCOL)), values)
@example("lr", float("nan"))
@example("lr", float("inf"))
@example("rounds", 3.0)
@example("clients", 20.0)
@example("weights", "x" * 5000)
@example("weights", "a\0b")
@example("participation", 5e-324)
def test_any_value_of_a_protocol_is_answered(key, value):
    mine = {"base": "fedsls-quick", key: value}
    assert_usable(accepted(CONFIG | {"protocols": {"mine": mine}, "protocol": "mine"}))


@quick
@given(keys, values)
@example("fedsls", {"tau": float("nan")})
@example("fedsls", {"extra_root": 1})
@example("moon", {"mu": 10**400})
def test_any_variant_is_answered(part, given_):
    config = CONFIG | {"variants": {"mine": {part: given_}}, "method": "mine"}
    assert_usable(accepted(config))


@quick
@given(keys)
@example("a b")
@example("fedsls+fedprox")
@example("ünï")
@example("a\n")
def test_any_name_is_answered(name):
    config = CONFIG | {"variants": {name: {"fedavg": {}}}}
    if isinstance(name, str) and name:
        config["method"] = [name]
    assert_usable(accepted(config))


def places(tree, above=()) -> list[tuple]:
    """Where something is in nested pairs and lists."""
    found = [above] if above else []
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree)
    if isinstance(tree, dict | list):
        for key, value in inside:
            if not isinstance(value, dict | list):
                found.append((*above, key))
            else:
                found += places(value, (*above, key))
    return found


def replaced(tree, place: tuple, value):
    """A copy with something else at a place."""
    tree = copy.deepcopy(tree)
    node = tree
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return tree


@quick
@given(st.sampled_from(places(STUDY)), values)
@example(("published", "table1"), 3)
@example(("published", "table1", "rows"), {"fedavg": [[1, 2, 3]]})
@example(("scales", "quick", "grids", "table1"), [])
@example(("protocols",), {None: {}})
@example(("products", "table1", "from"), {"runs": "runs"})
def test_any_place_of_a_study_may_be_anything(place, value):
    assert_usable(accepted(CONFIG, replaced(STUDY, place, value)))


@quick
@given(st.text(max_size=60) | st.sampled_from(NASTY).map(lambda n: f"fedsls-quick/{n}/dir0.1/a/0"))
@example("fedsls-quick/digits/dir0.1/fedavg/seed٣")
@example("fedsls-quick/digits/dir" + "9" * 400 + "/fedavg/seed0")
@example("fedsls-quick/digits/dir0." + "0" * 400 + "1/fedavg/seed0")
@example("{" * 100_000)
@example("@")
@example("@\0")
@example("@/")
@example('{"name":' * 100_000)
@example('{"name": 3, "protocol": 1, "dataset": [], "partition": 1, "method": 1, "seed": -1}')
def test_any_name_of_a_run_is_answered(text):
    try:
        asked = run_parser("").parse_args(["--", text])
        assert resolve_run(asked, "train")["name"]
    except UsageError as problem:
        assert_one_sentence(problem)


@pytest.mark.parametrize("stage_name", STAGES)
def test_a_protocol_without_a_field_that_a_stage_needs_is_refused(stage_name):
    asked = run_parser("").parse_args(["fedsls-quick/digits/dir0.1/fedavg/seed0"])
    run = resolve_run(asked, stage_name)
    needed = (name for name in STAGES[stage_name] if KINDS[name] is not None)
    field = next(name for name in needed if name not in LATER)
    for wrong, said in ((None, f"the run's protocol lacks `{field}`"), ([], f"{field} is \\[\\]")):
        given = {key: value for key, value in run["protocol"].items() if key != field}
        given |= {} if wrong is None else {field: wrong}
        asked = run_parser("").parse_args([json.dumps(run | {"protocol": given})])
        with pytest.raises(UsageError, match=said):
            resolve_run(asked, stage_name)


@quick
@given(st.sampled_from(NASTY) | st.text())
def test_any_name_is_said_in_one_line(name):
    with pytest.raises(UsageError) as problem:
        known("method", f"{name}!", ["fedavg"])
    assert_one_sentence(problem.value)


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    path = tmp_path_factory.mktemp("dealt") / "p.npz"
    labels = np.arange(60) % 3
    write_partition(dirichlet.draw(labels, 3, 4, "classwise", 0.5, 0), path)
    return path, path.read_bytes(), labels


@settings(quick, max_examples=6 * EXAMPLES)
@given(st.data())
def test_any_damage_of_a_partition_is_answered(dealt, data):
    path, whole, labels = dealt
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, len(whole) - 1))
        changed[where] = data.draw(st.integers(0, 255))
    path.write_bytes(changed[: data.draw(st.integers(0, len(whole)))])
    try:
        assert fits(read_partition(path), labels, 3)
    except UsageError as problem:
        assert_one_sentence(problem)


@settings(quick, max_examples=2 * EXAMPLES)
@given(st.binary(max_size=300))
@example(b"\x93NUMPY\x01\x00\x10\x00{'descr': 'O', }\n")
def test_any_bytes_are_no_dataset_and_no_run(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    for name in ("meta.json", *(f"{array}.npy" for array in ARRAYS), "metrics.csv"):
        (folder / name).write_bytes(content)
    with pytest.raises(UsageError):
        open_data(folder)
    for reader in (
        collected.read_metrics,
        collected.READERS["saliency"],
        collected.read_settings,
        collected.read_counts,
    ):
        with pytest.raises(UsageError):
            collected.read_checked(reader, folder / "metrics.csv")
