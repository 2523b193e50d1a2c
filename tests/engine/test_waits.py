"""How often a round waits for a GPU: never, but for methods that need an answer from it.

A CPU has no queue, so operations and calls are counted that would wait on a GPU. On a GPU
`test_gpu.py` and `tests/benchmarks/gpu.py waits` count with torch's own means.
"""

from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import QUIET, artifacts, brief, methods, simulate, slow_but, uneven
from fedgrid.checking.small import move
from fedgrid.engine.backends import stacked
from fedgrid.engine.backends._compiled import Compiled
from fedgrid.engine.hooks import rules
from fedgrid.engine.hooks.calling import settle
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError
from fedgrid.training import checkpoint
from fedgrid.training.rounds import rounds

DISPATCHED = {
    *("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select"),
    *("bincount", "_unique2", "unique_dim", "unique_consecutive"),
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
CALLED = {Tensor.tolist, Tensor.cpu}  # which a CPU answers without an operation
MADE = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.to}  # copies, if they name a device

# Methods that need an answer of the GPU, and why.
WAITS = {
    "contribution": "refuses latents that are not finite, in the round in which they are not",
    "dp_fedavg": "its noise is drawn by the CPU, to be the same on every device",
    "fedala": "a client takes other steps in its first round, and none without a change",
    "feddf": "only clients that have trained are teachers; Adam counts its steps on the CPU",
    "fedpac": "least squares without negative weights are solved by SciPy",
    "krum": "only clients that have trained are compared",
    "median": "only clients that have trained are compared",
    "multi_krum": "only clients that have trained are compared",
    "power_of_choice": "clients are chosen by losses, and the CPU plans their work",
    "power_of_choice_random": "clients are chosen as in power_of_choice",
    "random_weights": "its bisection is done by the CPU, to be the same on every device",
    "size_sampling": "clients are drawn as in power_of_choice",
    "similarity": "the names of its columns are the numbers of the clients",
    "trimmed_mean": "only clients that have trained are compared",
}
LOCAL = {"local_unit": "epochs", "local": 2}


class Operations(TorchDispatchMode):
    """Notes operations for whose result, or its shape, a CPU waits if they run on a GPU."""

    def __init__(self, found: list[str]):
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = function._schema.name.partition("::")[2]
        masks = name in INDEXING and any(
            m is not None and m.dtype in (torch.bool, torch.uint8) for m in arguments[1]
        )
        if name in DISPATCHED or masks:
            self.found.append(name)
        return function(*arguments, **keywords or {})


class Calls(TorchFunctionMode):
    """Notes calls that copy from a GPU, or to it without saying that nobody waits."""

    def __init__(self, found: list[str]):
        super().__init__()
        self.found = found

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        device = keywords.get("device") or any(isinstance(a, torch.device) for a in arguments)
        copies = function in MADE and device and not keywords.get("non_blocking")
        if function in CALLED or copies:
            self.found.append(function.__name__)
        return function(*arguments, **keywords)


@contextmanager
def waits():
    """The names of what waits for a GPU."""
    found: list[str] = []
    with Calls(found), Operations(found):
        yield found


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Checks of numbers are left for later, as if all tensors were on a GPU."""
    monkeypatch.setattr(rules, "is_waited_for", lambda tensor: True)


def started(name: str, compiled: bool, federation=None):
    """A run of a method after the rounds in which its functions are tried and recorded."""
    method = brief(name)
    federation = federation or uneven()
    device = federation.images.device
    needed = move(artifacts(name), device)
    run = simulate(method, "stacked", federation, needed=needed, **LOCAL | {"rounds": 10})
    engine = run.engine
    if compiled:
        parts = engine.architecture, method, engine.backend.optimiser, engine.samples
        whole = stacked.Steps(*parts, whole=True).take_whole
        engine.backend.compiled = Compiled(whole, fused=False)
    run.play(3)
    return run


QUICK = ["fedavg", "fedsls", "scaffold", "moon", "fednova", "krum"]
# A method of each kind of function, and of each reason to wait; others are tried exhaustively.
KINDS = [*QUICK, "fedlc", "fedrep", "fedacg", "fedau", "feddisco", "fedadam", "fedpac", "ditto"]
KINDS += ["contribution", "dp_fedavg", "fedala", "feddf", "power_of_choice", "random_weights"]
KINDS += ["similarity", "trimmed_mean"]
OTHERS = [name for name in QUIET if name not in KINDS]
COMPILED = slow_but(["scaffold"], QUIET, pytest.mark.exhaustive)


@pytest.mark.parametrize(
    "name", [*slow_but(QUICK, KINDS), *slow_but([], OTHERS, pytest.mark.exhaustive)]
)
def test_a_round_waits_for_a_gpu_only_where_its_method_must(name, as_on_a_gpu):
    round_waits(name, False)


@pytest.mark.parametrize("name", COMPILED)
def test_a_round_of_programs_waits_only_where_its_method_must(name, as_on_a_gpu):
    round_waits(name, True)


def round_waits(name: str, compiled: bool) -> None:
    """Hold what waits in a round against the list of the methods."""
    run = started(name, compiled)
    with waits() as found:
        run.play(1)
    assert bool(found) == (name in WAITS), found
    settle(run.engine.method)


def test_an_evaluation_waits_at_its_end_only():
    run = simulate(Method())
    run.play(1)
    with waits() as found:
        run.engine.evaluation.evaluate(run.run.server)
    assert sorted(found) == ["_local_scalar_dense"] * 2 + ["tolist"]  # all that it returns


@pytest.mark.parametrize(
    ("factor", "says"), [(torch.inf, "a number that is not finite"), (2, "weights with the sum 2")]
)
def test_a_wrong_number_on_a_gpu_is_told_of_when_it_is_waited_for(factor, says, as_on_a_gpu):
    def weigh(cohort):
        return cohort.sizes / cohort.sizes.sum() * (factor if cohort.round == 2 else 1)

    run = simulate(Method(weigh=weigh))
    run.play(2)
    settle(run.engine.method)
    run.play(2)
    with pytest.raises(UsageError, match=f"`weigh` gives {says}"):
        settle(run.engine.method)
    settle(run.engine.method)


def test_an_evaluation_of_a_run_tells_of_a_wrong_number_on_a_gpu(as_on_a_gpu):
    def weigh(cohort):
        return cohort.sizes / (0 if cohort.round == 1 else cohort.sizes.sum())

    run = simulate(Method(weigh=weigh), rounds=5, evaluate_every=3)
    history = []
    with pytest.raises(UsageError, match="`weigh` gives a number that is not finite"):
        list(rounds(run.engine, run.run, history))
    assert [row["round"] for row in history] == [0]


def test_a_checkpoint_is_written_after_its_check(tmp_path):
    def check():
        raise UsageError("a wrong number")

    run = simulate(Method())
    path = tmp_path / "saved"
    state, history = checkpoint.new(run.run, path)
    saved = checkpoint.Saved(path, "key", 1e9, None)
    saved.keep(state, history, False, check)
    with pytest.raises(UsageError, match="a wrong number"):
        saved.keep(state, history, True, check)
    assert not path.exists()
    saved.keep(state, history, True)
    assert path.exists()


def test_a_model_that_diverges_on_a_gpu_is_no_mistake(as_on_a_gpu):
    run = simulate(methods("scaffold"), lr=1e9, rounds=9)
    run.play(12)
    settle(run.engine.method)
    assert not run.run.server["head.weight"].isfinite().all()
