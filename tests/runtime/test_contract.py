"""What a user's own file may get wrong: a method, a dataset, a model or a product. One sentence."""

import json
import re
import sys

import pytest

from conftest import forget
from fedgrid import datasets, methods, models
from fedgrid.experiments import costs
from fedgrid.experiments.fidelity.setting import check_counts
from fedgrid.runtime import names
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.study.checks import check_keywords, check_needs, check_protocol
from fedgrid.study.command import resolve_run, run_parser
from fedgrid.study.grid import Grid
from fedgrid.study.options import Checker
from fedgrid.study.products import check_product
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.reading import SCHEMAS
from fedgrid.study.schema import make_validator
from fedgrid.study.stated import collect_names
from fedgrid.training.build import ARTIFACTS, build_method

# It names words of files of the package, which these tests replace: it is read before.
make_validator(SCHEMAS / "study.schema.yaml", "costs", True)

KINDS = {"datasets": datasets, "methods": methods, "models": models}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes `mine.py` of a kind; it is the only file of its kind that can be named then."""
    root = tmp_path / "fedgrid"
    for kind, package in KINDS.items():
        monkeypatch.setattr(package, "__path__", [str(root / kind), *package.__path__])
    monkeypatch.setattr(source, "ROOT", root)
    monkeypatch.setattr(names, "PACKAGE", root)

    def written(kind: str, text: str | bytes, name: str = "mine") -> None:
        path = root / kind / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        forget()

    yield written
    forget()
    for kind in KINDS:
        sys.modules.pop(f"fedgrid.{kind}.mine", None)


def said(work, *arguments) -> str:
    """The one sentence that answers a mistake."""
    with pytest.raises(UsageError) as found:
        work(*arguments)
    assert "\n" not in str(found.value)
    return str(found.value)


# --- datasets --------------------------------------------------------------------------------

FASHION = """
TRAIN = 60_000
TEST: int = 10_000
CLASSES = 10
SHAPE = (1, 28, 28)
STATISTICS = {"standard": ((0.2860,), (0.3530,))}

def load(root):
    return None
"""
STANDARD = '{"standard": ((0.2860,), (0.3530,))}'


def check_dataset() -> None:
    check_protocol("a", PROTOCOL | {"model": "mine"}, "mine")


@pytest.fixture
def fashion(write):
    """Writes the dataset with one part changed, beside a model that is right."""

    def written(old: str = "", new: str | bytes = "") -> None:
        assert old in FASHION
        write("datasets", FASHION.replace(old, new) if old else new or FASHION)
        write("models", "def body(shape): ...")

    return written


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("TRAIN = 60_000", "TRAIN: int = 60_000"),
        ("TRAIN = 60_000", "TRAIN = 5\nTRAIN = 60_000"),
        ("TRAIN = 60_000", "TRAIN = SAMPLES = 60_000"),
        ("TRAIN = 60_000", "TRAIN: int\nTRAIN = 60_000"),
        ("def load(root):\n    return None", "from elsewhere import load"),
        ("TEST: int = 10_000", "TEST = None"),
        (STANDARD, "{}"),
        ("TEST: int", "HASHES = ()\nTEST: int"),
        ("TEST: int", f"WRITERS = True\nHASHES = {('01234567',) * 5}\nTEST: int"),
        (
            "TEST: int",
            f"WRITERS = True\nTEST_WRITERS = True\nHASHES = {('01234567',) * 6}\nTEST: int",
        ),
        ("", "\ufeff" + FASHION),
        ("", FASHION.replace("\n", "\r\n")),
        ("", ("# -*- coding: latin-1 -*-\n# größe" + FASHION).encode("latin-1")),
    ],
)
def test_a_dataset_may_be_written_in_these_ways(old, new, fashion):
    fashion(old, new)
    check_dataset()
    assert source.literal("datasets.mine", "TRAIN") == 60_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "60_000",
            "60 * 1000",
            "line 2: TRAIN is not a plain value, .* write `TRAIN = ` and the val",
        ),
        ("TRAIN = 60_000", "from sizes import TRAIN", "line 2: TRAIN is not a plain value"),
        ("TRAIN = 60_000", "TRAIN, FEW = 60_000, 5", "line 2: TRAIN is not a plain value"),
        ("60_000", "len(ALL)", "line 2: TRAIN is not a plain value"),
        ("60_000", "60_000\nTRAIN += 1", "line 3: TRAIN is not a plain value"),
        ("60_000", "60_000\nif TRAIN:\n    TRAIN = 5", "line 3: TRAIN is not a plain value"),
        ("(1, 28, 28)", "(CLASSES, 28, 28)", "line 5: SHAPE is not a plain value"),
        (STANDARD, "dict(standard=((0.5,), (0.5,)))", "line 6: STATISTICS is not a plain value"),
        (STANDARD, "{[1]: 2}", "line 6: STATISTICS is not a plain value"),
        ("TRAIN = 60_000", "", "lacks TRAIN: it is a whole number above 0, such as 60_000"),
        ("TRAIN = 60_000", "TRAIN: int", "lacks TRAIN"),
        ("SHAPE = (1, 28, 28)", "", "lacks SHAPE: it is three whole numbers"),
        (f"STATISTICS = {STANDARD}", "", "lacks STATISTICS: it is a dict with"),
        ("def load", "def lode", "has no function `load`: write `def load"),
        ("60_000", "60_000.0", "TRAIN is 60000.0, not a whole number above 0, such as 60_000"),
        ("60_000", '"60_000"', "TRAIN is '60_000', not a whole number"),
        ("60_000", "True", "TRAIN is True, not a whole number"),
        ("60_000", "0", "TRAIN is 0, not a whole number above 0, such as 60_000, or None if only"),
        ("10_000", "-1", "TEST is -1, not a whole number"),
        ("CLASSES = 10", "CLASSES = None", "CLASSES is None, not a whole number"),
        ("(1, 28, 28)", "(28, 28)", r"SHAPE is \(28, 28\), not three whole numbers"),
        ("(1, 28, 28)", "28", "SHAPE is 28, not three whole numbers"),
        ("(1, 28, 28)", "(1, 28.0, 28)", "SHAPE is .*, not three whole numbers"),
        (STANDARD, '{"standard": (0.2860, 0.3530)}', r"STATISTICS has \(0.286, 0.353\) as `sta"),
        (STANDARD, '{"standard": ((0.1, 0.2), (0.3, 0.4))}', "for each of 1 channels, such as"),
        (STANDARD, '{"standard": ((0.1,), (0.3, 0.4))}', "for each of 1 channels"),
        (STANDARD, '{"standard": ((0.1,),)}', "for each of 1 channels"),
        (STANDARD, '{"standard": ((0.1,), (0,))}', "a deviation above 0"),
        (STANDARD, '{"standard": ((1e999,), (1,))}', "STATISTICS has"),
        (STANDARD, '{"standard": (("a",), (1,))}', "STATISTICS has"),
        (STANDARD, '{"standard": ((0.5,), (0.5,)), "other": 3}', "STATISTICS has 3 as `other`"),
        (STANDARD, '{"usual": ((0.1,), (0.3,))}', 'STATISTICS is .*, not a dict with "standard"'),
        (STANDARD, '{1: 2, "standard": ((0.1,), (0.3,))}', "STATISTICS is .*, not a dict with"),
        (STANDARD, "((0.1,), (0.3,))", r"STATISTICS is \(.*, not a dict with"),
        ("CLASSES", "WRITERS = 1\nCLASSES", "WRITERS is 1, not True or False"),
        ("CLASSES", "TEST_WRITERS = True\nCLASSES", "TEST_WRITERS is True, and WRITERS is not"),
        (
            "CLASSES",
            f"WRITERS = True\nTEST_WRITERS = True\nHASHES = {('01234567',) * 5}\nCLASSES",
            "HASHES has 5 texts for 6 arrays",
        ),
        ("CLASSES", "TOKENS = 81\nCLASSES", r"SHAPE is \(1, 28, 28\), and with TOKENS it is one n"),
        ("(1, 28, 28)", "(80,)", r"SHAPE is \(80,\), which is the length of a sequence of tokens"),
        ("(1, 28, 28)", "(80,)\nTOKENS = 81", "STATISTICS are those of images, and with TOKENS"),
        ("CLASSES", "TOKENS = 1\nCLASSES", "TOKENS is 1, not a whole number from 2 to 256, such"),
        ("CLASSES", "TOKENS = 257\nCLASSES", "TOKENS is 257, not a whole number from 2 to 256"),
        ("CLASSES", "TOKENS = True\nCLASSES", "TOKENS is True, not a whole number from 2 to 256"),
        ("CLASSES", "HASHES = ('0123',)\nCLASSES", r"HASHES is \('0123',\), not \(\) or a text"),
        (
            "CLASSES",
            f"HASHES = {('01234567',) * 5}\nCLASSES",
            r"HASHES has 5 texts for 4 arrays: give one for each",
        ),
        ("", "TRAIN = (", r", line 1, is not Python: '\(' was never closed"),
        ("", "# größe\n".encode("latin-1"), "is not Python: invalid or missing encoding"),
        ("", "TRAIN = 5\0", "Python: source code .* null bytes"),
        ("", "# nothing", "lacks TRAIN"),
    ],
)
def test_a_wrong_dataset_is_named_with_its_file(old, new, message, fashion):
    fashion(old, new)
    answer = said(check_dataset)
    assert answer.startswith("datasets/mine.py")
    assert re.search(message, answer)


def test_a_dataset_whose_constants_are_measured_can_be_used_but_for_costs(fashion):
    fashion("", FASHION.replace("60_000", "None").replace(STANDARD, "{}"))
    check_dataset()
    answer = said(check_protocol, "a", PROTOCOL | {"model": "mine", "normalization": "x"}, "mine")
    assert "the dataset mine has no normalization `x`, only standard and scaled" in answer
    setting = {"model": "mine", "dataset": "mine", "images": 1, "chunk": 1}
    assert "dataset mine has no `TRAIN` in its file" in said(costs.check, setting)


TEXT = FASHION.replace("(1, 28, 28)", "(80,)\nTOKENS = 81").replace(STANDARD, "{}")


def test_a_dataset_of_tokens_goes_with_a_model_of_tokens(fashion, write):
    fashion("", TEXT)
    assert "the model mine reads images, and the inputs of the dataset mine" in said(check_dataset)
    write("models", "TOKENS = True\ndef body(shape, tokens): ...")
    check_dataset()
    fashion()
    write("models", "TOKENS = True\ndef body(shape, tokens): ...")
    assert "the model mine reads sequences of tokens, and the inp" in said(check_dataset)


def test_what_needs_images_refuses_tokens(fashion, write):
    fashion("", TEXT)
    write("models", "TOKENS = True\ndef body(shape, tokens): ...")
    write("methods", "NEEDS = ('latents',)\ndef method(): ...")
    tokens = "and the inputs of the dataset mine are sequences of tokens"

    def check(**fields) -> None:
        check_protocol("a", PROTOCOL | {"model": "mine"} | fields, "mine")

    assert tokens in said(lambda: check(augment=["flip"]))
    assert "no normalization `moon`, only standard" in said(lambda: check(normalization="moon"))
    assert f"method `b` needs images, {tokens}" in said(check_needs, "b", {"mine": {}}, "mine")
    setting = {"model": "mine", "dataset": "mine", "images": 1, "chunk": 1}
    assert f"the setting needs images, {tokens}" in said(costs.check, setting)
    counts = {"images": {"mine": 9}, "encoders": {}}
    assert f"the setting needs images, {tokens}" in said(check_counts, counts)
    write("partitions", "PATTERN = 'mine'\nEXAMPLE = 'mine'")
    names = {"protocol": "p", "seed": 0}
    names |= dict.fromkeys(("dataset", "partition", "method"), "mine")
    study = {"protocols": {"p": {"model": "mine"}}, "products": {}}
    study |= {"scales": {"quick": {"grids": {"main": [names]}}}}
    assert f"method `mine` needs images, {tokens}" in said(Grid, {"mine": study})
    run = json.dumps(
        {"name": names, "protocol": PROTOCOL, "dataset": "mine", "partition": "mine"}
        | {"method": {}, "seed": 0}
    )
    for stage in ("saliency", "latents"):
        asked = run_parser("").parse_args([run])
        assert f"the stage {stage} needs images, {tokens}" in said(resolve_run, asked, stage)


def test_a_wrong_dataset_is_named_when_it_is_decoded(fashion, tmp_path):
    fashion(STANDARD, '{"standard": (0.2860, 0.3530)}')
    assert said(datasets.load, "mine", tmp_path).startswith("datasets/mine.py: STATISTICS has")
    fashion("def load", "import not_there\n\ndef load")
    answer = said(datasets.load, "mine", tmp_path)
    assert answer.startswith("datasets/mine.py, line 8: its import fails with ModuleNotFoundError")


# --- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no function `body`: write `def body"),
        ("body = 5 +", ", line 1, is not Python: invalid syntax"),
        ("WEIGHTS = ()", r"WEIGHTS is \(\), not a dict of texts"),
        ("WEIGHTS = {'mine': 5}", "WEIGHTS is {'mine': 5}, not a dict of texts"),
        ("WEIGHTS = dict()", "line 1: WEIGHTS is not a plain value"),
        ("SIDE_PATHS = ('downsample')", "SIDE_PATHS is 'downsample', not a tuple of texts"),
        ("CHANNELS_LAST = 1", "CHANNELS_LAST is 1, not True or False"),
        ("TOKENS = 81", "TOKENS is 81, not True or False"),
        ("BLOCKS = ('0', '3')", r"BLOCKS is \('0', '3'\), not a tuple .* ends in \"head\""),
        ("BLOCKS = ('head',)", r"BLOCKS is \('head',\), not a tuple of at least two texts"),
        ("BLOCKS = 'ahead'", "BLOCKS is 'ahead', not a tuple"),
        ("BLOCKS = (0, 'head')", r"BLOCKS is \(0, 'head'\), not a tuple"),
        ("ENCODER = True", "ENCODER is True, not a whole number above 0"),
        ("ENCODER = 1", "ENCODER counts BLOCKS, which are missing"),
        ("BLOCKS = ('0', 'head')", "of 2 BLOCKS, ENCODER says .* from 1 to 1, and it is 0"),
        ("BLOCKS = ('0', 'head')\nENCODER = 2", "of 2 BLOCKS, .* from 1 to 1, and it is 2"),
    ],
)
def test_a_wrong_model_is_named_with_its_file(text, message, write):
    write("datasets", FASHION)
    write("models", f"{text}\n" + "def body(shape): ..." * ("body" not in message))
    answer = said(check_dataset)
    assert answer.startswith("models/mine.py")
    assert re.search(message, answer)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return nn.Flatten()", "`body` gives Flatten.*, not a module and the width"),
        ("    return nn.Flatten(), 1.5", "`body` gives .*, not a module and the width"),
        ("    return None", "`body` gives None, not a module and the width"),
        ("    return shape[5]", ", line 3: `body` fails with IndexError: tuple index out of range"),
    ],
)
def test_a_body_that_is_none_is_named_with_its_file(body, message, write):
    write("models", f"from torch import nn\ndef body(shape):\n{body}")
    answer = said(models.build, "mine", (1, 8, 8), 10)
    assert answer.startswith("models/mine.py")
    assert re.search(message, answer)


BODY = """
from collections import OrderedDict
from torch import nn

def body(shape):
    parts = ["first", "second", "third"]
    return nn.Sequential(OrderedDict((part, nn.Flatten()) for part in parts)), 64
"""


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (("second", "head"), "not the first child of each block"),
        (("first", "third", "second", "head"), "not the first child of each block"),
        (("first", "first", "head"), "not the first child of each block"),
        (("first", "fourth", "head"), "the body has the children first, second, third"),
    ],
)
def test_blocks_that_are_not_in_the_body_are_named_with_the_file(blocks, message, write):
    write("models", f"BLOCKS, ENCODER = {blocks}, 1\n{BODY}")
    answer = said(models.build, "mine", (1, 8, 8), 10)
    assert answer.startswith("models/mine.py: BLOCKS is (")
    assert message in answer


def test_a_child_of_the_body_cannot_be_called_head(write):
    text = BODY.replace("third", "head")
    write("models", f"BLOCKS, ENCODER = ('first', 'head'), 1\n{text}")
    assert "which no child may be called" in said(models.build, "mine", (1, 8, 8), 10)


def test_blocks_need_a_sequence_of_modules(write):
    text = BODY.replace("nn.Sequential", "nn.ModuleDict")
    write("models", f"BLOCKS, ENCODER = ('first', 'head'), 1\n{text}")
    answer = said(models.build, "mine", (1, 8, 8), 10)
    assert "BLOCKS needs a body that is an nn.Sequential, and `body` gives ModuleDict" in answer


def test_blocks_that_are_in_the_body_are_the_models(write):
    write("models", f"BLOCKS, ENCODER = ('first', 'third', 'head'), 2\n{BODY}")
    model = models.build("mine", (1, 8, 8), 10)
    assert (model.blocks, model.encoder) == (("first", "third", "head"), 2)


def test_initial_weights_that_fail_are_named_with_their_line(write):
    write("models", f"{BODY}\ndef initialise(model):\n    model.tail\n")
    answer = said(models.build, "mine", (1, 8, 8), 10)
    assert re.search(r"models/mine.py, line \d+: `initialise` fails with AttributeError", answer)


# --- methods ---------------------------------------------------------------------------------


def keywords(text: str, write, **given) -> dict:
    """The hyper-parameters of a method's file, after those given are checked."""
    write("methods", f"{text}\n    return None")
    check_keywords("variant `a`", "mine", given)
    return source.keywords("methods.mine", "method")


@pytest.mark.parametrize(
    ("text", "defaults", "given"),
    [
        ("def method(*, mu=0.1, tau=2):", {"mu": 0.1, "tau": 2}, {"mu": 1, "tau": 3}),
        ("def method(tau=2, *, mu: float = -0.1):", {"tau": 2, "mu": -0.1}, {"mu": 0.5}),
        ("def method(layers=(1, 2)):", {"layers": [1, 2]}, {"layers": [3]}),
        ("def method(mu=None):", {"mu": None}, {"mu": 0.5}),
        ("def method(mu=5):\n    pass\ndef method(mu=0.5):", {"mu": 0.5}, {"mu": 0.1}),
    ],
)
def test_hyper_parameters_may_be_written_in_these_ways(text, defaults, given, write):
    found = keywords(text, write, **given)
    assert found == defaults == json.loads(json.dumps(found))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def method(mu):", "`method` has no default for `mu`: give it one, as in `mu=0.1`"),
        ("def method(mu, tau=1):", "`method` has no default for `mu`"),
        ("def method(tau=1, *, mu):", "`method` has no default for `mu`"),
        ("def method(mu=0.1, /):", "`method` cannot be given `mu` by name"),
        ("def method(*mu):", "`method` cannot be given `mu` by name"),
        ("def method(tau=1, **mu):", "`method` cannot be given `mu` by name"),
        ("def method(mu=1 / 3):", "the default of `mu`, 1 / 3, is not a number, text, true, false"),
        ("MU = 3\ndef method(mu=MU):", "the default of `mu`, MU, is not a number"),
        ("def method(mu=b'a'):", "the default of `mu`, b'a', is not a number"),
        ("def method(mu={1, 2}):", "the default of `mu`, {1, 2}, is not a number"),
        ("def methode(mu=1):", "has no function `method`: write `def method`"),
        ("from fedgrid.methods.fedprox import method\ndef a():", "has no function `method`"),
        ("class method:\n  def a():", "has no function `method`"),
        ("NEEDS = ('saliency')\ndef method():", "NEEDS is 'saliency', not a tuple of stages"),
        ("NEEDS = ('salience',)\ndef method():", "NEEDS is .*: the stages are saliency, latents"),
        ("NEEDS = ('partition',)\ndef method():", "NEEDS is .*, not a tuple of stages"),
        ("NEEDS = tuple()\ndef method():", "line 1: NEEDS is not a plain value"),
        ("OPTIMISERS = 'sgd'\ndef method():", "OPTIMISERS is 'sgd', not a tuple of optimisers"),
        ("OPTIMISERS = ()\ndef method():", "OPTIMISERS is .*: they are sgd, adam, adamw"),
        ("OPTIMISERS = ('sgdm',)\ndef method():", "OPTIMISERS is .*, not a tuple of optimisers"),
        ("def method(:", ", line 1, is not Python: invalid syntax"),
    ],
)
def test_a_wrong_method_is_named_with_its_file(text, message, write):
    answer = said(keywords, text, write)
    assert answer.startswith("methods/mine.py")
    assert re.search(message, answer)


def test_what_a_file_imports_of_the_package_is_read_too(write):
    write(".", "def loss(:", name="shared")
    answer = said(keywords, "from fedgrid import shared\ndef method():", write)
    assert answer.startswith("shared.py, line 1, is not Python")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import not_there",
            ", line 1: its import fails with ModuleNotFoundError: No module named",
        ),
        ("X = 1\nraise TypeError('no')", ", line 2: its import fails with TypeError: no"),
        (
            "def method(mu=1):\n    return mu + 'a'",
            ", line 2: `method` fails with TypeError: ",
        ),
        ("def method():\n    return None", "`method` fails with TypeError: .* unexpected keyword"),
        ("def method(mu=1):\n    return None", "`method` gives None, no Method"),
        ("method = 5", "`method` fails with TypeError: 'int' object is not callable"),
        (
            "from fedgrid.methods import scaffold\ndef method(mu=1):\n    return scaffold.method()",
            r"the Method has `optimisers=\('sgd',\)`, and OPTIMISERS.*give both the same",
        ),
    ],
)
def test_a_method_that_fails_at_once_is_named_with_its_file(text, message, write):
    write("methods", text)
    answer = said(build_method, {"method": {"mine": {"mu": 1}}})
    assert answer.startswith("methods/mine.py")
    assert re.search(message, answer)


def test_a_method_that_works_in_training_keeps_its_own_errors(write):
    made = "return Method(penalty=lambda step: 1 / 0)"
    write("methods", f"from fedgrid.method import Method\ndef method():\n    {made}")
    with pytest.raises(ZeroDivisionError):
        build_method({"method": {"mine": {}}}).penalty(None)


UNSTEADY = """
import torch
from fedgrid.method import Method
seen = []

def method():
    {data}
    return Method(penalty=lambda step: number * step.features.sum())
"""


@pytest.mark.parametrize(
    "data",
    ["number = torch.rand(())", "seen.append(1); number = len(seen)"],
    ids=["random", "kept"],
)
def test_a_method_that_differs_at_each_call_is_refused(write, data):
    write("methods", UNSTEADY.format(data=data))
    answer = said(build_method, {"method": {"mine": {}}})
    assert answer.startswith("methods/mine.py: `method` gives functions with another `number`")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('frozen=("head")', "`frozen` is 'head', not a tuple of texts"),
        ("penalty=0.1", "`penalty` is 0.1, not a function"),
        ("penalti=print", "unexpected keyword argument 'penalti'"),
    ],
)
def test_a_wrong_field_of_a_method_is_told_with_its_line(write, fields, problem):
    write(
        "methods",
        f"from fedgrid.method import Method\n\ndef method():\n    return Method({fields})",
    )
    answer = said(build_method, {"method": {"mine": {}}})
    assert answer.startswith("methods/mine.py, line 4: `method` fails with TypeError: ")
    assert problem in answer


def test_methods_may_need_what_runs_can_read():
    from fedgrid.runtime.code import contract

    assert {*contract.NEEDED} == {*ARTIFACTS}


# --- products --------------------------------------------------------------------------------

DRAW = "def draw(runs, study, scale): ...\ndef caption(table): ...\ndef plot(table, study): ..."


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def draw", "def drew", "has no function `draw`: write `def draw`"),
        ("study, scale", "study", "`draw` does not take `scale`: add it"),
        ("runs, study, scale", "runs", "`draw` does not take `study`: add it"),
        ("def caption", "def captain", "has no function `caption`, which all formats but csv need"),
        ("def plot", "def plots", "has no function `plot`, which pdf, svg and png need"),
        ("def plot", "plot = ", ", line 3, is not Python: invalid syntax"),
    ],
)
def test_a_wrong_product_is_named_with_its_file(old, new, message, write):
    write("report", DRAW.replace(old, new))
    facts = {"from": {"runs": "runs/main"}, "formats": ["csv", "svg"], "category": "Results"}
    answer = said(check_product, "study", "mine", facts)
    assert answer.startswith("report/mine.py")
    assert re.search(message, answer)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ('{"over": "method"}', {"over": "moon"}, "with.over: no method of .* is called `moon`"),
        ('{"over": "method"}', {"over": ["fedavg", 5]}, "with.over: 5 is not a name"),
        ('{"over": "partition"}', {"over": "dir1"}, "with.over: no partition of .* `dir1`"),
        ('{"over": "methods"}', {}, "no kind of names in OPTIONS of report/mine.py is .* method"),
        (
            '{"oven": "method"}',
            {},
            "no argument in OPTIONS of report/mine.py is .* did you mean over",
        ),
        ('["over"]', {}, "report/mine.py: OPTIONS is not a dict"),
    ],
)
def test_a_product_says_what_its_options_name(options, given, message, write):
    write("report", f"OPTIONS = {options}\ndef draw(runs, study, scale, over=''): ...\n")
    block = {"protocol": "p", "dataset": "digits", "partition": "dir0.1", "method": "fedavg"}
    checker = Checker(None, collect_names([block]), {})
    assert re.search(message, said(checker.check, "report.mine", given))
    write("report", "OPTIONS = {'over': 'method'}\ndef draw(runs, study, scale, over=''): ...\n")
    checker.check("report.mine", {"over": ["fedavg"]})


def test_a_product_may_take_its_facts_by_keyword(write):
    write("report", "def draw(runs, **facts): ...\n")
    facts = {"from": {"runs": "runs/main"}, "formats": ["csv"], "category": "Results"}
    check_product("study", "mine", facts)
