"""What a user's own file may get wrong: a method, a dataset, a model or a product. One sentence."""

import json
import math
import re
import sys

import pytest
import torch

from conftest import answers, forget, said
from fedgrid import datasets, methods, models
from fedgrid.checking import model as measured
from fedgrid.experiments import costs
from fedgrid.experiments.fidelity.setting import check_counts
from fedgrid.runtime import places
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.schema import make_validator
from fedgrid.study.checks import check_keywords, check_needs, check_protocol
from fedgrid.study.command import resolve_run, run_parser
from fedgrid.study.grid import Grid
from fedgrid.study.options import Checker
from fedgrid.study.products import check_product
from fedgrid.study.protocol import PROTOCOL, SCHEMAS
from fedgrid.study.stated import collect_names
from fedgrid.training.build import ARTIFACTS, build_method

# They name words of files of the package, which these tests replace: they are read before.
make_validator(SCHEMAS / "study.schema.yaml", "costs", True)
for kind in ("dataset", "method", "model"):
    contract.read_rules(kind)

KINDS = {"datasets": datasets, "methods": methods, "models": models}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes `mine.py` of a kind; it is the only file of its kind that can be named then."""
    root = tmp_path / "fedgrid"
    for kind, package in KINDS.items():
        monkeypatch.setattr(package, "__path__", [str(root / kind), *package.__path__])
    monkeypatch.setattr(places, "PACKAGE", root)

    def written(kind: str, text: str | bytes, name: str = "mine") -> None:
        path = root / kind / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        sys.modules.pop(f"fedgrid.{kind}.mine", None)
        forget()

    yield written
    forget()
    for kind in KINDS:
        sys.modules.pop(f"fedgrid.{kind}.mine", None)


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
COSTS = {"model": "mine", "dataset": "mine", "images": 1, "chunk": 1}


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
        ("TEST: int", f"WRITERS = TEST_WRITERS = True\nHASHES = {('01234567',) * 6}\nTEST: int"),
        ("", "\ufeff" + FASHION),
        ("", FASHION.replace("\n", "\r\n")),
        ("", ("# -*- coding: latin-1 -*-\n# größe" + FASHION).encode("latin-1")),
    ],
)
def test_a_dataset_may_be_written_in_these_ways(old, new, fashion):
    fashion(old, new)
    check_dataset()
    assert source.literal("datasets.mine", "TRAIN") == 60_000


WRONG_DATASETS = [
    ("60_000", "60 * 1000"),
    ("TRAIN = 60_000", "from sizes import TRAIN"),
    ("TRAIN = 60_000", "TRAIN, FEW = 60_000, 5"),
    ("60_000", "len(ALL)"),
    ("60_000", "60_000\nTRAIN += 1"),
    ("60_000", "60_000\nif TRAIN:\n    TRAIN = 5"),
    ("(1, 28, 28)", "(CLASSES, 28, 28)"),
    (STANDARD, "dict(standard=((0.5,), (0.5,)))"),
    (STANDARD, "{[1]: 2}"),
    ("TRAIN = 60_000", ""),
    ("TRAIN = 60_000", "TRAIN: int"),
    ("SHAPE = (1, 28, 28)", ""),
    (f"STATISTICS = {STANDARD}", ""),
    ("def load", "def lode"),
    ("60_000", "60_000.0"),
    ("60_000", '"60_000"'),
    ("60_000", "True"),
    ("60_000", "0"),
    ("10_000", "-1"),
    ("CLASSES = 10", "CLASSES = None"),
    ("(1, 28, 28)", "(28, 28)"),
    ("(1, 28, 28)", "28"),
    ("(1, 28, 28)", "(1, 28.0, 28)"),
    (STANDARD, '{"standard": (0.2860, 0.3530)}'),
    (STANDARD, '{"standard": ((0.1, 0.2), (0.3, 0.4))}'),
    (STANDARD, '{"standard": ((0.1,), (0.3, 0.4))}'),
    (STANDARD, '{"standard": ((0.1,),)}'),
    (STANDARD, '{"standard": ((0.1,), (0,))}'),
    (STANDARD, '{"standard": ((1e999,), (1,))}'),
    (STANDARD, '{"standard": (("a",), (1,))}'),
    (STANDARD, '{"standard": ((0.5,), (0.5,)), "other": 3}'),
    (STANDARD, '{"usual": ((0.1,), (0.3,))}'),
    (STANDARD, '{1: 2, "standard": ((0.1,), (0.3,))}'),
    (STANDARD, "((0.1,), (0.3,))"),
    ("CLASSES", "WRITERS = 0\nCLASSES"),
    ("CLASSES", "TEST_WRITERS = True\nCLASSES"),
    ("CLASSES", f"WRITERS = True\nTEST_WRITERS = True\nHASHES = {('01234567',) * 5}\nCLASSES"),
    ("CLASSES", "TOKENS = 81\nCLASSES"),
    ("(1, 28, 28)", "(80,)"),
    ("(1, 28, 28)", "(80,)\nTOKENS = 81"),
    ("CLASSES", "TOKENS = 1\nCLASSES"),
    ("CLASSES", "TOKENS = 257\nCLASSES"),
    ("CLASSES", "TOKENS = True\nCLASSES"),
    ("CLASSES", "HASHES = ('0123',)\nCLASSES"),
    ("CLASSES", f"HASHES = {('01234567',) * 5}\nCLASSES"),
    ("", "TRAIN = ("),
    ("", "# größe\n".encode("latin-1")),
    ("", "TRAIN = 5\0"),
    ("", "# nothing"),
]


def test_a_wrong_dataset_is_named_with_its_file(fashion, golden):
    def check(mistake: tuple) -> None:
        fashion(*mistake)
        check_dataset()

    golden("datasets", answers(check, WRONG_DATASETS, "datasets/mine.py"))


def test_a_dataset_whose_constants_are_measured_can_be_used_but_for_costs(fashion):
    fashion("", FASHION.replace("60_000", "None").replace(STANDARD, "{}"))
    check_dataset()
    answer = said(check_protocol, "a", PROTOCOL | {"model": "mine", "normalization": "x"}, "mine")
    assert "the dataset mine has no normalization `x`, only standard and scaled" in answer
    assert "dataset mine has no `TRAIN` in its file" in said(costs.check, COSTS)


OF_TOKENS = "TOKENS = True\ndef body(shape, tokens): ..."
TEXT = FASHION.replace("(1, 28, 28)", "(80,)\nTOKENS = 81").replace(STANDARD, "{}")


def test_a_dataset_of_tokens_goes_with_a_model_of_tokens(fashion, write):
    fashion("", TEXT)
    assert "the model mine reads images, and the inputs of the dataset mine" in said(check_dataset)
    write("models", OF_TOKENS)
    check_dataset()
    fashion()
    write("models", OF_TOKENS)
    assert "the model mine reads sequences of tokens, and the inp" in said(check_dataset)


def test_what_needs_images_refuses_tokens(fashion, write):
    fashion("", TEXT)
    write("models", OF_TOKENS)
    write("methods", "NEEDS = ('latents',)\ndef method(): ...")
    tokens = "and the inputs of the dataset mine are sequences of tokens"

    def check(**fields) -> None:
        check_protocol("a", PROTOCOL | {"model": "mine"} | fields, "mine")

    assert tokens in said(lambda: check(augment=["flip"]))
    assert "no normalization `moon`, only standard" in said(lambda: check(normalization="moon"))
    assert f"method `b` needs images, {tokens}" in said(check_needs, "b", {"mine": {}}, "mine")
    assert f"the setting needs images, {tokens}" in said(costs.check, COSTS)
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


WRONG_MODELS = [
    "",
    "body = 5 +",
    "WEIGHTS = ()",
    "WEIGHTS = {'mine': 5}",
    "WEIGHTS = dict()",
    "SIDE_PATHS = ('downsample')",
    "CHANNELS_LAST = 1",
    "TOKENS = 81",
    "BLOCKS = ('0', '3')",
    "BLOCKS = ('head',)",
    "BLOCKS = 'ahead'",
    "BLOCKS = (0, 'head')",
    "ENCODER = True",
    "ENCODER = 1",
    "BLOCKS = ('0', 'head')",
    "BLOCKS = ('0', 'head')\nENCODER = 2",
]


def test_a_wrong_model_is_named_with_its_file(write, golden):
    def check(text: str) -> None:
        write("models", f"{text}\n" + "def body(shape): ..." * bool(text))
        check_dataset()

    write("datasets", FASHION)
    golden("models", answers(check, WRONG_MODELS, "models/mine.py"))


BODIES = [
    "    return nn.Flatten()",
    "    return nn.Flatten(), 1.5",
    "    return None",
    "    return shape[5]",
]


def test_a_body_that_is_none_is_named_with_its_file(write, golden):
    def check(body: str) -> None:
        write("models", f"from torch import nn\ndef body(shape):\n{body}")
        models.build("mine", (1, 8, 8), 10)

    golden("bodies of models", answers(check, BODIES, "models/mine.py"))


def test_a_model_that_no_run_can_have_is_told_in_a_sentence_while_it_is_measured(write):
    write("models", "from torch import nn\ndef body(shape):\n    return nn.Flatten(), 9")
    inputs = '{"shape": [1, 8, 8], "classes": 10, "tokens": 0}'
    with pytest.raises(UsageError, match=r"models/mine\.py: the body gives \(2, 64\), not"):
        measured.try_model("mine", inputs)


# What a file's `body` makes, with `d` the size of an input: (module, width), or code before it.
NETWORKS = {
    "a lazy layer": ("nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), 4", r"`body\.1\.w.* lazy"),
    "tied weights": ("tied(nn.Linear(d, d), nn.Linear(d, d)), d", "is the same parameter as"),
    "a shared module": ("nn.Sequential(nn.Flatten(), one := nn.Linear(d, d), one), d", "same par"),
    "one for all models": ("nn.Sequential(nn.Flatten(), ALWAYS), 4", "in each model"),
    "a wrong width": ("nn.Sequential(nn.Flatten(), nn.Linear(d, 4)), 5", r"gives \(2, 4\), .*5"),
    "no width": ("nn.Flatten(), 0", "not a module and the width"),
    "maps as features": ("nn.Conv2d(1, 4, 1), 4", r"gives \(2, 4, 8, 8\)"),
    "a tuple": ("Of(lambda x: (x.flatten(1), x)), d", "gives a tuple"),
    "nothing": ("Of(lambda x: None), d", "gives a NoneType"),
    "a class": ("nn.Flatten, d", "gives a Flatten"),
    "other numbers": ("Of(lambda x: x.flatten(1).double()), d", "gives torch.float64"),
    "a failure": ("nn.Sequential(nn.Flatten(), nn.Linear(7, 4)), 4", "fails with RuntimeError"),
    "complex weights": ("with_entry(nn.Parameter(COMPLEX)), d", "parameter `body.k`"),
    "whole weights": ("with_entry(nn.Parameter(torch.ones(1).int(), False)), d", "`body.k`"),
    "untrained weights": ("fixed(nn.Linear(d, 4)), 4", "cannot be trained"),
    "a complex buffer": ("with_entry(COMPLEX), d", "buffer `body.k`"),
    "no memory": ("nn.Sequential(nn.Flatten(), nn.Linear(d, 4, device='meta')), 4", "on meta"),
    "a list": ("Of(lambda x, of=[nn.Linear(d, 4)]: of[0](x.flatten(1))), 4", "nn.ModuleList"),
}
RIGHT = {
    "no parameters": "nn.Flatten(), d",
    "a function": "(lambda x: x.flatten(1)), d",
    "other numbers": "nn.Sequential(nn.Flatten(), nn.Linear(d, 4).double()), 4",
    "normalised weights": "nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(d, 4))), 4",
    "orthogonal weights": "nn.Sequential(nn.Flatten(), orthogonal(nn.Linear(d, 4))), 4",
    "a buffer of whole numbers": "with_entry(torch.ones(1).int()), d",
}
OTHERS = """
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, weight_norm

ALWAYS = nn.Linear(64, 4)
COMPLEX = torch.zeros(1, dtype=torch.cfloat)

class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

def tied(one, other):
    other.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, other)

def fixed(layer):
    return nn.Sequential(nn.Flatten(), layer.requires_grad_(False))

def with_entry(entry):
    made = Of(lambda x: x.flatten(1))
    if isinstance(entry, nn.Parameter):
        made.k = entry
    else:
        made.register_buffer("k", entry)
    return made

def body(shape, d=64):
    return """


@pytest.mark.parametrize(("made", "sentence"), NETWORKS.values(), ids=NETWORKS)
def test_a_network_that_cannot_be_trained_is_told_with_its_file(write, made, sentence):
    write("models", f"{OTHERS}{made}")
    told = said(lambda: [models.build("mine", (1, 8, 8), 10, seed=seed) for seed in range(2)])
    assert re.search(sentence, told)
    assert told.startswith("models/mine.py: ")


@pytest.mark.parametrize("made", RIGHT.values(), ids=RIGHT)
def test_a_network_of_another_kind_is_taken(write, made):
    write("models", f"{OTHERS}{made}")
    one, other = (models.build("mine", (1, 8, 8), 10, seed=seed).float() for seed in (1, 1))
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(one(x)[1], other(x)[1])


BODY = """
from collections import OrderedDict
from torch import nn

def body(shape):
    parts = ["first", "second", "third"]
    return nn.Sequential(OrderedDict((part, nn.Flatten()) for part in parts)), 64
"""


BLOCKS = [
    ("second", "head"),
    ("first", "third", "second", "head"),
    ("first", "first", "head"),
    ("first", "fourth", "head"),
]


def test_blocks_that_are_not_in_the_body_are_named_with_the_file(write, golden):
    def check(blocks: tuple) -> None:
        write("models", f"BLOCKS, ENCODER = {blocks}, 1\n{BODY}")
        models.build("mine", (1, 8, 8), 10)

    golden("blocks of models", answers(check, BLOCKS, "models/mine.py: BLOCKS is ("))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("third", "head", "which no child may be called"),
        ("nn.Sequential", "nn.ModuleDict", "an nn.Sequential, and `body` gives ModuleDict"),
    ],
)
def test_blocks_need_a_sequence_of_modules_none_of_which_is_the_head(old, new, sentence, write):
    write("models", f"BLOCKS, ENCODER = ('first', 'head'), 1\n{BODY.replace(old, new)}")
    assert sentence in said(models.build, "mine", (1, 8, 8), 10)


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


WRONG_METHODS = [
    "def method(mu):",
    "def method(mu, tau=1):",
    "def method(tau=1, *, mu):",
    "def method(mu=0.1, /):",
    "def method(*mu):",
    "def method(tau=1, **mu):",
    "def method(mu=1 / 3):",
    "MU = 3\ndef method(mu=MU):",
    "def method(mu=b'a'):",
    "def method(mu={1, 2}):",
    "def methode(mu=1):",
    "from fedgrid.methods.fedprox import method\ndef a():",
    "class method:\n  def a():",
    "NEEDS = ('saliency')\ndef method():",
    "NEEDS = ('salience',)\ndef method():",
    "NEEDS = ('partition',)\ndef method():",
    "NEEDS = tuple()\ndef method():",
    "OPTIMISERS = 'sgd'\ndef method():",
    "OPTIMISERS = ()\ndef method():",
    "OPTIMISERS = ('sgdm',)\ndef method():",
    "NEUTRALS = {'mu': 0.0}\ndef method(mu=0.1):",
    "NEUTRAL = {'nu': 0.0}\ndef method(mu=0.1):",
    "ADDED = ('nu',)\ndef method():",
    "RANGES = {'nu': '[0, 1]'}\ndef method(mu=0.1):",
    "RANGES = {'mu': '0 to 1'}\ndef method(mu=0.1):",
    "RANGES = {'mu': '[1, 0]'}\ndef method(mu=0.1):",
    "RANGES = {'mu': '[0, nan]'}\ndef method(mu=0.1):",
    "RANGES = {'mu': ()}\ndef method(mu=0.1):",
    "RANGES = {'mu': (0, 1)}\ndef method(mu=0.1):",
    "RANGES = {'mu': '(0, 1]'}\ndef method(mu=0.0):",
    "RANGES = {'mu': '(0, 1]'}\nNEUTRAL = {'mu': 0.0}\ndef method(mu=0.1):",
    "RANGES = {'by': '[0, 1]'}\ndef method(by='size'):",
    "RANGES = {'by': ('size', 'count')}\ndef method(by='steps'):",
    "RANGE = {'mu': '[0, 1]'}\ndef method(mu=0.1):",
    "def method(:",
]


def test_a_wrong_method_is_named_with_its_file(write, golden):
    def check(text: str) -> None:
        keywords(text, write)

    golden("methods", answers(check, WRONG_METHODS, "methods/mine.py"))


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        ("[0, 1)", [0, 0.0, 0.5], [-1e-9, 1, 1.5, True, "a"]),
        ("(0, 1]", [1e-9, 1], [0, 1.1]),
        ("(-inf, inf)", [-1e300, 0, 1e300], [math.inf, math.nan]),
        ("[-2.5, 1e3]", [-2.5, 1000], [-2.6, 1001]),
        (("a", "b"), ["a", "b"], ["c", 0]),
    ],
)
def test_a_hyper_parameter_has_a_range(allowed, inside, outside):
    assert all(contract.is_allowed(value, allowed) for value in [*inside, None])
    assert not any(contract.is_allowed(value, allowed) for value in outside)


def test_what_a_file_imports_of_the_package_is_read_too(write):
    write(".", "def loss(:", name="shared")
    answer = said(keywords, "from fedgrid import shared\ndef method():", write)
    assert answer.startswith("shared.py, line 1, is not Python")


FAILING = [
    "import not_there",
    "X = 1\nraise TypeError('no')",
    "def method(mu=1):\n    return mu + 'a'",
    "def method():\n    return None",
    "def method(mu=1):\n    return None",
    "method = 5",
    "from fedgrid.methods import scaffold\ndef method(mu=1):\n    return scaffold.method()",
    "from fedgrid.method import Method\ndef method(mu=1):\n    return Method(private=('head.',))",
]


def test_a_method_that_fails_at_once_is_named_with_its_file(write, golden):
    def check(text: str) -> None:
        write("methods", text)
        build_method({"method": {"mine": {"mu": 1}}})

    golden("methods that fail", answers(check, FAILING, "methods/mine.py"))


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
    text = f"from fedgrid.method import Method\n\ndef method():\n    return Method({fields})"
    write("methods", text)
    answer = said(build_method, {"method": {"mine": {}}})
    assert answer.startswith("methods/mine.py, line 4: `method` fails with ")
    assert problem in answer


def test_methods_may_need_what_runs_can_read():
    assert {*contract.NEEDED} == {*ARTIFACTS}


# --- products --------------------------------------------------------------------------------

DRAW = "def draw(runs, study, scale): ...\ndef caption(table): ...\ndef plot(table, study): ..."


WRONG_PRODUCTS = [
    ("def draw", "def drew"),
    ("study, scale", "study"),
    ("runs, study, scale", "runs"),
    ("def caption", "def captain"),
    ("def plot", "def plots"),
    ("def plot", "plot = "),
]


def test_a_wrong_product_is_named_with_its_file(write, golden):
    facts = {"from": {"runs": "runs/main"}, "formats": ["csv", "svg"], "category": "Results"}

    def check(mistake: tuple) -> None:
        write("report", DRAW.replace(*mistake))
        check_product("study", "mine", facts)

    golden("products", answers(check, WRONG_PRODUCTS, "report/mine.py"))


WRONG_OPTIONS = [
    ('{"over": "method"}', {"over": "moon"}),
    ('{"over": "method"}', {"over": ["fedavg", 5]}),
    ('{"over": "partition"}', {"over": "dir1"}),
    ('{"over": "methods"}', {}),
    ('{"oven": "method"}', {}),
    ('["over"]', {}),
]


def test_a_product_says_what_its_options_name(write, golden):
    block = {"protocol": "p", "dataset": "digits", "partition": "dir0.1", "method": "fedavg"}
    checker = Checker(None, collect_names([block]), {})

    def check(mistake: tuple) -> None:
        options, given = mistake
        write("report", f"OPTIONS = {options}\ndef draw(runs, study, scale, over=''): ...\n")
        checker.check("report.mine", given)

    golden("options of products", answers(check, WRONG_OPTIONS, ""))
    write("report", "OPTIONS = {'over': 'method'}\ndef draw(runs, study, scale, over=''): ...\n")
    checker.check("report.mine", {"over": ["fedavg"]})


def test_a_product_may_take_its_facts_by_keyword(write):
    write("report", "def draw(runs, **facts): ...\n")
    facts = {"from": {"runs": "runs/main"}, "formats": ["csv"], "category": "Results"}
    check_product("study", "mine", facts)
