"""Local steps of a stack as one program: `fedgrid.engine.backends._compiled`.

A whole step is recorded, compiled and, on a GPU, launched as a graph. On a CPU it is called, in the
same places. torch's compiler takes half a minute a step, so the quick tests compile none, the slow
ones one of each kind, and `-m exhaustive` those of all methods. To record a step takes up to a
second, and three of a method with an inner loop.
"""

import logging
import re
import time
from dataclasses import replace
from functools import cache
from importlib.machinery import ModuleSpec
from multiprocessing import SimpleQueue, get_context

import pytest
import torch
from torch.utils._pytree import tree_flatten

from conftest import (
    QUIET,
    Simulation,
    artifacts,
    assert_same,
    methods,
    needs_compiler,
    simulate,
    slow_but,
    spoken,
    uneven,
)
from fedgrid import models
from fedgrid.engine import backends, convolution
from fedgrid.engine.backends import _compiled, stacked
from fedgrid.engine.backends._compiled import Compiled, Program, name_of
from fedgrid.engine.backends._recorded import record
from fedgrid.engine.state import RunState
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError
from fedgrid.training import checkpoint
from fedgrid.training.results import run_facts

EPOCHS = {"local_unit": "epochs", "local": 2}  # clients take different numbers of steps
LOCAL_EPOCH = {"local_unit": "epochs", "local": 1}
STEPS = {"local_unit": "steps"}
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
KINDS = ["scaffold"]  # a correction; losses, penalties and rates are compiled by `-m exhaustive`
EXHAUSTIVE = pytest.mark.exhaustive
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def simulated(method: Method, fused: bool = False, **given) -> Simulation:
    """A run whose local steps are whole programs."""
    run = simulate(method, "stacked", **given)
    engine = run.engine
    parts = engine.architecture, method, engine.backend.optimiser, engine.samples
    whole = stacked.Steps(*parts, whole=True).take_whole
    engine.backend.compiled = Compiled(whole, fused)
    return run


@cache
def looped(name: str, rounds: int = 3, **local) -> RunState:
    return simulate(methods(name), "loop", needed=artifacts(name), **local).play(rounds)


def warned(caplog, text: str) -> int:
    """How many warnings have a text."""
    return sum(text in one.getMessage() for one in caplog.records if one.levelname == "WARNING")


def programs(run) -> dict:
    return run.engine.backend.compiled.programs


# Of other methods the same is tried exhaustively.
RECORDED = ["fedau", "fedrep", "moon", "scaffold", "ssp"]
CALM = {"pfedme": {"delta": 0.005, "inner": 2}}  # a longer step of its inner loop enlarges rounding
FORMS = {
    "pfedme": CALM["pfedme"] | {"lam": 4.0, "form": "code"},
    "apfl": {"adaptive": True, "form": "code"},
}


@pytest.mark.parametrize("name", slow_but(RECORDED, QUIET, EXHAUSTIVE))
def test_a_step_recorded_in_round_0_is_that_of_round_4(name):
    """What a method computes from the round, the cohort or the memory is no part of the record."""
    recorded_once(name, CALM.get(name, {}))


@pytest.mark.parametrize("name", FORMS)
def test_neither_the_rate_nor_what_the_last_step_left_is_part_of_the_record(name):
    recorded_once(name, FORMS[name])


def recorded_once(name: str, options: dict) -> None:
    """Hold five rounds of whole programs against the loop's."""
    made = methods(name, **options)
    run = simulated(made, needed=artifacts(name), **STEPS)
    other = simulate(made, "loop", needed=artifacts(name), **STEPS)
    assert_same(run.play(5), other.play(5), **CLOSE)


@pytest.mark.parametrize(
    "name", slow_but(["scaffold"], ["scaffold", "moon", "ssp", "fedau"], EXHAUSTIVE)
)
def test_clients_of_different_length_are_in_the_programs(name):
    run = simulated(methods(name), needed=artifacts(name), **EPOCHS)
    assert_same(run.play(4), looped(name, 4, **EPOCHS), **CLOSE)


@pytest.mark.parametrize(
    "protocol",
    [
        {"optimiser": "adam", "optimiser_state": "kept"},
        {"optimiser": "adamw", "clip": 0.1, "epsilon": 1e-3},
        {"momentum": 0.0, "weight_decay": 0.0, "augment": ["crop-reflect", "cutout"]},
    ],
)
def test_every_optimiser_is_in_the_program(protocol):
    run, loop = simulated(Method(), **STEPS | protocol), simulate(Method(), **STEPS | protocol)
    assert_same(run.play(4), loop.play(4), **CLOSE)


def test_a_recurrent_layer_is_in_the_program():
    sizes = (3, 6, 4)
    given = {"federation": spoken(sizes), "build": reader, "augment": [], "clients": len(sizes)}
    loop = simulate(Method(), "loop", **given)
    assert_same(simulated(Method(), **given).play(2), loop.play(2), **CLOSE)


def reader(seed: int) -> Classifier:
    """A network with an LSTM for the sequences of `spoken`."""
    torch.manual_seed(seed)
    return models.draw("char_lstm_small", (5,), 7, 7).double()


def test_a_method_that_pads_nothing_is_compiled_where_all_batches_are_whole():
    own = Method(loss=lambda step: torch.nn.functional.cross_entropy(step.logits, step.y))
    run, loop = simulated(own, **EPOCHS), simulate(own, "loop", **EPOCHS)
    assert_same(run.play(3), loop.play(3), **CLOSE)
    assert all(index.shape[1] == 4 for index in batches_of(programs(run)))


def batches_of(made: dict) -> list:
    return [program.batch[0] for program in made.values()]


# --- how many programs there are -------------------------------------------------------------


def test_a_stack_is_halved_as_clients_finish():
    assert [stacked.fitting(10, busy) for busy in range(1, 11)] == [1, 2, 3, 5, 5, *[10] * 5]
    assert {stacked.fitting(100, busy) for busy in range(1, 101)} == {100, 50, 25, 13, 7, 4, 2, 1}


def test_the_log_has_the_padding_of_a_run_once(caplog):
    """Clients with 12 and 4 samples, batches of 4: three whole batches and one; and with 2."""
    run = simulate(Method(), "stacked", uneven((12, 4, 2)), participation=1.0, **LOCAL_EPOCH)
    with caplog.at_level(logging.INFO, "fedgrid.engine.backends.stacked"):
        run.play(2)
    # All three take the first step, and the largest alone the others: 12 + 4 + 4 samples of 18.
    assert caplog.text.count("are padded") == 1
    assert "computes 20 samples for the 18 that its clients train on (1.11" in caplog.text


def test_there_are_few_programs_and_none_is_made_again():
    run = simulated(Method(), **EPOCHS)
    run.play(2)
    kinds = set(programs(run))
    run.play(4)
    assert {len(index) for index in batches_of(programs(run))} <= {4, 2, 1}
    assert len(programs(run)) <= 3
    assert kinds <= set(programs(run))


# --- the compiler ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The compiler's own folder for a test."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


@needs_compiler
@pytest.mark.slow
def test_a_compiled_step_is_the_step_and_is_compiled_once(folder, monkeypatch, caplog):
    """With products in place of convolutions, as on a GPU.

    There the compiler must not add up windows in an order that changes. A run that another engine
    resumes from a checkpoint has the bytes of an uninterrupted one.
    """
    monkeypatch.setattr(convolution, "worth", lambda x, weight: True)
    caplog.set_level(logging.INFO, "fedgrid.engine.backends._compiled")
    whole, begun, resumed = (simulated(methods("fedprox"), True, **STEPS) for _ in range(3))
    assert_same(whole.play(2), looped("fedprox", 2, **STEPS), **CLOSE)
    made = set(folder.rglob("*.so"))
    assert made
    torch._dynamo.reset()
    begun.run, history = checkpoint.new(begun.run, folder / "saved")
    checkpoint.save(folder / "saved", "key", begun.play(1), history)
    torch._dynamo.reset()
    resumed.run, _ = checkpoint.load(folder / "saved", "key", CPU)
    assert_same(resumed.play(1), whole.run)
    assert set(folder.rglob("*.so")) == made
    assert caplog.text.count("the local step was compiled in") == 1
    assert caplog.text.count("was read from the folder of compiled code in") == 2
    assert not [*folder.glob("*.lock")]
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert code
    assert "atomic_add" not in code


@needs_compiler
@pytest.mark.parametrize(
    "name",
    [*slow_but([], KINDS), *slow_but([], [n for n in QUIET if n not in KINDS], EXHAUSTIVE)],
)
def test_a_method_is_compiled(name, folder, caplog):
    made = methods(name, **CALM.get(name, {}))
    compiled_as_looped(caplog, made, needed=artifacts(name), **STEPS)


@needs_compiler
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["apfl", "fedbn", "moon", "scaffold", "sps", "ssp"])
def test_clients_of_different_length_are_compiled(name, folder, caplog):
    compiled_as_looped(caplog, methods(name), needed=artifacts(name), **EPOCHS)


def compiled_as_looped(caplog, made: Method, **given) -> None:
    """Hold three rounds of compiled programs against the loop's."""
    run, loop = simulated(made, True, **given), simulate(made, "loop", **given)
    with caplog.at_level(logging.WARNING):
        assert_same(run.play(3), loop.play(3), **CLOSE)
    assert "not compiled" not in caplog.text
    assert run.run.compiled


@needs_compiler
@pytest.mark.slow
def test_a_recurrent_layer_is_compiled(folder, caplog):
    """With Adam. One program of two tokens: the compiler takes a time that grows with both."""
    given = {"federation": spoken(length=2), "build": reader, "augment": [], "optimiser": "adam"}
    compiled_as_looped(caplog, Method(), **given, **STEPS)


def test_a_step_that_the_compiler_cannot_take_is_trained_without_it(folder, monkeypatch, caplog):
    def fail(*arguments, **keywords):
        raise RuntimeError("no kernel\nmore")

    monkeypatch.setattr(torch._inductor, "standalone_compile", fail)
    run = simulated(methods("fedprox"), True, **STEPS)
    with caplog.at_level(logging.WARNING):
        assert_same(run.play(2), looped("fedprox", 2, **STEPS), **CLOSE)
    assert "the local step is not compiled: no kernel" in caplog.text
    assert caplog.text.count("not compiled") == 1
    assert not run.run.compiled


def test_compiled_code_that_fails_at_its_first_call_is_not_used(folder, monkeypatch, caplog):
    """The call has changed models by then, but only copies of them.

    The step is that of a run that compiles nothing, also with products in place of convolutions.
    """
    monkeypatch.setattr(convolution, "worth", lambda x, weight: True)

    def breaking(graph, leaves, **options):
        def call(*leaves):
            graph(*leaves)
            raise RuntimeError("out of resources: shared memory\nmore")

        return call

    monkeypatch.setattr(torch._inductor, "standalone_compile", breaking)
    run = simulated(methods("fedprox"), True, **STEPS)
    with caplog.at_level(logging.WARNING):
        run.play(2)
    assert_same(run.run, simulated(methods("fedprox"), **STEPS).play(2))
    assert warned(caplog, "the local step is not compiled: out of resources: shared memory") == 1
    assert len(caplog.records) == 1
    assert not run.run.compiled


@pytest.fixture
def replayed(folder, monkeypatch):
    """A compiler that compiles nothing: its programs are the records."""

    def replay(graph, leaves, **options):
        return graph

    monkeypatch.setattr(torch._inductor, "standalone_compile", replay)


@pytest.mark.usefixtures("replayed")
def test_the_first_call_of_compiled_code_draws_no_random_numbers():
    noisy = methods("autohs")
    assert_same(simulated(noisy, True).play(2), simulated(noisy).play(2))


@pytest.mark.usefixtures("replayed")
def test_a_run_knows_whether_a_step_was_compiled(tmp_path):
    """Also a run that goes on from a checkpoint after its last round."""
    run = simulated(Method(), True, **STEPS)
    assert not run.run.compiled
    assert simulated(Method(), **STEPS).play(1).compiled is False
    run.run, history = checkpoint.new(run.run, tmp_path / "saved")
    assert run.play(1).compiled
    checkpoint.save(tmp_path / "saved", "key", run.run, history)
    state, _ = checkpoint.load(tmp_path / "saved", "key", CPU)
    for engine in (run.engine, simulate(Method(), "loop").engine):
        assert run_facts(engine, 1.0, 1, state, threads=1)["compiled"] is True
    assert "compiled" not in run_facts(run.engine, 1.0, 0, replace(state, compiled=False), 1)


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
def test_a_resumed_run_finds_the_code_of_its_beginning(name, folder, monkeypatch):
    """A checkpoint does not keep the order of a model's entries, and the code depends on it."""
    asked = []

    def note(graph, leaves, **options):
        asked.append(graph.code)
        return graph

    monkeypatch.setattr(torch._inductor, "standalone_compile", note)
    begun, resumed = (simulated(methods(name), True, **STEPS) for _ in range(2))
    begun.run, history = checkpoint.new(begun.run, folder / "saved")
    checkpoint.save(folder / "saved", "key", begun.play(1), history)
    resumed.run, _ = checkpoint.load(folder / "saved", "key", CPU)
    assert_same(resumed.play(1), begun.play(1))
    assert len(asked) == 2
    assert asked[0] == asked[1]


@pytest.mark.usefixtures("replayed")
def test_steps_that_cannot_be_compiled_are_told_of_once_with_the_reason(caplog):
    """Clients with 3 and 2 samples in batches of 4 never have batches of one size."""
    own = Method(loss=lambda step: torch.nn.functional.cross_entropy(step.logits, step.y))
    run = simulated(own, True, federation=uneven((3, 2)), participation=1.0, **STEPS)
    with caplog.at_level(logging.WARNING):
        run.play(2)
    assert warned(caplog, "3 of the 3 local steps of this round are not compiled, because") == 1
    assert "`padded=True`" in caplog.text
    assert not programs(run)
    assert not run.run.compiled


def test_of_two_processes_that_need_the_same_code_one_compiles_it(folder, monkeypatch):
    """The one that compiles goes on when the other waits for it."""
    waited, found = folder / "waited", SimpleQueue()

    def compiler(graph, leaves, **options):
        if not (folder / "code").exists():
            for _ in range(3000):
                time.sleep(0.01 * (not waited.exists()))
            (folder / "code").write_text("")
            found.put("compiled")
        return graph

    def fuse() -> None:
        leaves, form = tree_flatten((torch.ones(2), torch.ones(2)))
        graph, _ = record(lambda a, b: a + b, leaves, form)
        found.put(str(_compiled.fuse(graph, leaves[:1], leaves[1:])(*leaves)[0].tolist()))

    monkeypatch.setattr(torch._inductor, "standalone_compile", compiler)
    monkeypatch.setattr(files.log, "warning", lambda *_: waited.write_text(""))
    both = [get_context("fork").Process(target=fuse) for _ in range(2)]
    for process in both:
        process.start()
    assert sorted(found.get() for _ in range(3)) == ["[2.0, 2.0]", "[2.0, 2.0]", "compiled"]
    for process in both:
        process.join()
    assert waited.exists()
    assert not [*folder.glob("*.lock")]


@pytest.mark.parametrize(
    ("factor", "is_used"), [(1 + 1e-14, True), (0.99, False), (torch.nan, False)]
)
def test_compiled_code_that_gives_other_numbers_is_not_used(factor, is_used, monkeypatch, caplog):
    def wrong(graph, leaves):
        def run(*places):
            losses = graph(*places)
            places[0].mul_(factor)
            return losses

        return run

    monkeypatch.setattr(_compiled, "compiled", wrong)
    run = simulated(methods("fedprox"), True, **STEPS)
    with caplog.at_level(logging.WARNING):
        run.play(1)
    assert ("compiles the local step wrongly" in caplog.text) != is_used
    assert run.engine.backend.has_compiled == is_used
    if not is_used:
        assert_same(run.play(1), looped("fedprox", 2, **STEPS), **CLOSE)


def test_a_number_spread_to_its_place_is_the_scattered_one():
    made = torch.Generator().manual_seed(0)
    x, source = torch.rand(2, 3, 5, generator=made), torch.rand(2, 3, 1, generator=made)
    index = torch.randint(0, 5, (2, 3, 1), generator=made)
    found = _compiled.spread(x, 2, index, source)
    torch.testing.assert_close(found, x.scatter_add(2, index, source), rtol=0, atol=0)
    several = torch.rand(2, 3, 2), torch.zeros(2, 3, 2, dtype=torch.int64)
    assert _compiled.spread(x, 2, several[1], several[0]) is NotImplemented


@pytest.mark.parametrize(("dim", "index"), [(0, 1), (1, -1), (-1, 0)])
def test_the_gradient_of_a_selection_is_at_its_place(dim, index):
    x = torch.rand(2, 3, 5, requires_grad=True)
    x.select(dim, index).square().sum().backward()
    gradient = 2 * x.detach().select(dim, index)
    found = _compiled.select_backward(gradient, [2, 3, 5], dim, index)
    torch.testing.assert_close(found, x.grad, rtol=0, atol=0)


def test_a_step_that_cannot_become_a_graph_is_called(monkeypatch, caplog):
    def fail(program):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Program, "capture", fail)
    run = simulated(methods("fedprox"), **STEPS)
    run.play(1)
    with caplog.at_level(logging.WARNING):
        for program in programs(run).values():
            program.try_capture()
    assert_same(run.play(1), looped("fedprox", 2, **STEPS), **CLOSE)
    assert "cannot become a CUDA graph" in caplog.text


def test_memory_that_does_not_suffice_for_a_program_halves_the_stack(monkeypatch, caplog):
    make = Compiled.make

    def limited(compiled, places, *rest):
        if len(places.models["head.weight"]) > 1:
            raise torch.OutOfMemoryError
        return make(compiled, places, *rest)

    monkeypatch.setattr(Compiled, "make", limited)
    run = simulated(methods("fedprox"), **STEPS)
    with caplog.at_level(logging.WARNING):
        assert_same(run.play(2), looped("fedprox", 2, **STEPS), **CLOSE)
    assert "from now on 1 clients at a time" in caplog.text
    assert {len(index) for index in batches_of(programs(run))} == {1}


def test_jobs_of_two_precisions_compile_at_once(monkeypatch):
    """They wait for each other only where one can use the other's code."""
    graph, leaves = torch.fx.symbolic_trace(torch.nn.Identity()), [torch.ones(2)]
    names = [name_of(graph, leaves) for _ in range(2)]
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert names[0] == names[1] != name_of(graph, leaves)


# --- when a step is compiled -----------------------------------------------------------------


def test_by_default_a_gpu_compiles_the_step_of_a_long_run(monkeypatch, caplog):
    """One with stacks of several sizes must earn a program for each."""
    monkeypatch.setattr(backends, "obstacle", lambda backend, device: "")
    assert backends.compiles("auto", "stacked", GPU, backends.ENOUGH)
    assert not backends.compiles("auto", "stacked", GPU, backends.ENOUGH - 1)
    assert not backends.compiles("off", "stacked", GPU, 10**9)
    assert backends.compiles("on", "stacked", GPU, 1)
    assert backends.count_stacks(10) == 5  # ten, five, three, two and one
    with caplog.at_level(logging.INFO, "fedgrid.engine.backends"):
        assert not backends.compiles("auto", "stacked", GPU, 5 * backends.ENOUGH - 1, 5)
    assert backends.compiles("auto", "stacked", GPU, 5 * backends.ENOUGH, 5)
    assert "stacks of 5 sizes, and compiling pays from 25000 steps on" in caplog.text


def test_what_cannot_be_compiled_is_an_error_if_it_must_be_and_else_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UsageError, match="there is no C\\+\\+ compiler `no-such-compiler`"):
        simulate(Method(), "stacked", compile="on")
    with pytest.raises(UsageError, match="the backend loop compiles nothing"):
        backends.compiles("on", "loop", CPU, 1)
    monkeypatch.setattr(backends, "obstacle", lambda backend, device: "the package is missing")
    assert not backends.compiles("auto", "stacked", GPU, 10**9)
    assert "not compiled, because the package is missing" in caplog.text


TRITON = ModuleSpec("triton", None)
OLD = "the GPU is too old for Triton .before Volta.: set `device: cpu`"
MISSING = "the package triton is missing: install it"


@pytest.mark.parametrize(
    ("card", "triton", "said"), [((6, 1), TRITON, OLD), ((9, 0), None, MISSING)]
)
def test_an_old_card_or_a_missing_triton_compiles_nothing(card, triton, said, monkeypatch, caplog):
    monkeypatch.setattr(backends.importlib.util, "find_spec", {"triton": triton}.get)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card)
    assert not backends.compiles("auto", "stacked", GPU, 10**9)
    assert re.search(f"the local step is not compiled, because {said}", caplog.text)
    assert len(caplog.records) == 1
    with pytest.raises(UsageError, match=f"compile is on, but {said}, or set `compile: auto`"):
        backends.compiles("on", "stacked", GPU, 1)


def test_stacks_have_one_size_where_all_clients_take_equally_many_steps():
    """The clients have up to 9 samples, in batches of 4: two in an epoch. One has none."""
    assert simulate(Method(), rounds=4, **STEPS).engine.count_steps() == (12, 1)
    assert simulate(Method(), rounds=4, **EPOCHS).engine.count_steps() == (16, 3)
