"""Local steps of a stack as one program: `fedgrid.engine.backends._compiled`.

A whole step is recorded, compiled and, on a GPU, launched as a graph. On a CPU it is called, in the
same places. torch's compiler takes ten seconds a step, so the quick tests compile one, a slow one
that of MOON, and `-m exhaustive` those of other methods.
"""

import logging
import os
import shutil
from functools import cache

import pytest
import torch

from conftest import (
    QUIET,
    Simulation,
    artifacts,
    assert_same,
    methods,
    simulate,
    some_slow,
    spoken,
    uneven,
)
from fedgrid import models
from fedgrid.engine import backends, convolution
from fedgrid.engine.backends import stacked
from fedgrid.engine.backends._compiled import Compiled, Program, name_of
from fedgrid.engine.state import RunState
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.runtime.names import UsageError

EPOCHS = {"local_unit": "epochs", "local": 2}  # clients take different numbers of steps
LOCAL_EPOCH = {"local_unit": "epochs", "local": 1}
STEPS = {"local_unit": "steps"}
needs_compiler = pytest.mark.skipif(
    not shutil.which(os.environ.get("CXX", "g++")), reason="there is no C++ compiler"
)
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


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


def programs(run) -> dict:
    return run.engine.backend.compiled.programs


# Of other methods the same is tried exhaustively.
RECORDED = ["fedavg", "fedau", "feddyn", "fedrep", "fedsam", "moon", "pfedme", "scaffold", "ssp"]
CALM = {"pfedme": {"delta": 0.005, "inner": 2}}  # a longer step of its inner loop enlarges rounding
FORMS = {
    "pfedme": CALM["pfedme"] | {"lam": 4.0, "form": "code"},
    "apfl": {"adaptive": True, "form": "code"},
}


@pytest.mark.parametrize("name", some_slow(QUIET, RECORDED, pytest.mark.exhaustive))
def test_a_step_recorded_in_round_0_is_that_of_round_7(name):
    """What a method computes from the round, the cohort or the memory is no part of the record."""
    recorded_once(name, CALM.get(name, {}))


@pytest.mark.parametrize("name", FORMS)
def test_neither_the_rate_nor_what_the_last_step_left_is_part_of_the_record(name):
    recorded_once(name, FORMS[name])


def recorded_once(name: str, options: dict) -> None:
    """Hold eight rounds of whole programs against the loop's."""
    made = methods(name, **options)
    run = simulated(made, needed=artifacts(name), **STEPS)
    other = simulate(made, "loop", needed=artifacts(name), **STEPS)
    assert_same(run.play(8), other.play(8), **CLOSE)


@pytest.mark.parametrize("name", ["scaffold", "moon", "ssp", "fedau"])
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
    run = simulated(Method(), **EPOCHS | protocol)
    loop = simulate(Method(), "loop", **EPOCHS | protocol)
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


def test_a_resumed_run_has_the_same_bytes():
    whole, begun, resumed = (simulated(methods("moon"), **EPOCHS) for _ in range(3))
    begun.play(2)
    resumed.run = begun.run
    assert_same(whole.play(4), resumed.play(2))


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


def test_a_run_without_padding_says_nothing_of_it(caplog):
    own = Method(loss=lambda step: torch.nn.functional.cross_entropy(step.logits, step.y))
    with caplog.at_level(logging.INFO, "fedgrid.engine.backends.stacked"):
        simulate(own, "stacked", **EPOCHS).play(2)
        simulate(Method(), "stacked", uneven((8, 8)), participation=1.0, **LOCAL_EPOCH).play(2)
    assert "are padded" not in caplog.text


def test_there_are_few_programs_and_none_is_made_again():
    run = simulated(Method(), **EPOCHS)
    run.play(2)
    kinds = set(programs(run))
    run.play(4)
    assert {len(index) for index in batches_of(programs(run))} <= {4, 2, 1}
    assert len(programs(run)) <= 3
    assert kinds <= set(programs(run))


def test_clients_of_any_order_end_as_themselves():
    """The stack has the clients with more steps first; results come in the order of the cohort."""
    sizes = (2, 12, 4, 9)
    runs = [
        simulate(Method(), backend, uneven(sizes), participation=1.0, **EPOCHS)
        for backend in ("loop", "stacked")
    ]
    found = []
    for run in runs:
        state = run.engine.start(7)
        work = run.engine.plan(state)
        memories = [run.engine.population.memory(state, k) for k in range(len(sizes))]
        trained = run.engine.train(state, work, memories, 0.1)
        found.append(torch.cat([models["head.weight"].clone() for _, models, *_ in trained]))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


# --- the compiler ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The compiler's own folder for a test."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


@needs_compiler
def test_a_compiled_step_is_the_step_and_is_compiled_once(folder, monkeypatch):
    """With products in place of convolutions, as on a GPU.

    There the compiler must not add up windows in an order that changes.
    """
    monkeypatch.setattr(convolution, "worth", lambda x, weight: True)
    runs = [simulated(methods("fedprox"), True, **STEPS) for _ in range(2)]
    assert_same(runs[0].play(2), looped("fedprox", 2, **STEPS), **CLOSE)
    made = set(folder.rglob("*.so"))
    assert made
    torch._dynamo.reset()
    assert_same(runs[1].play(2), runs[0].run)
    assert set(folder.rglob("*.so")) == made
    assert not [*folder.glob("*.lock")]
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert code
    assert "atomic_add" not in code


@needs_compiler
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("moon", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("ssp", "fedlmd")),
    ],
)
def test_methods_are_compiled(name, folder, caplog):
    run = simulated(methods(name), True, needed=artifacts(name), **STEPS)
    with caplog.at_level(logging.WARNING):
        assert_same(run.play(8), looped(name, 8, **STEPS), **CLOSE)
    assert "not compiled" not in caplog.text


def test_a_step_that_the_compiler_cannot_take_is_trained_without_it(folder, monkeypatch, caplog):
    def fail(*arguments, **keywords):
        raise RuntimeError("no kernel\nmore")

    monkeypatch.setattr(torch._inductor, "standalone_compile", fail)
    run = simulated(methods("fedprox"), True, **STEPS)
    with caplog.at_level(logging.WARNING):
        assert_same(run.play(2), looped("fedprox", 2, **STEPS), **CLOSE)
    assert "the local step is not compiled: no kernel" in caplog.text
    assert caplog.text.count("not compiled") == 1


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

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_by_default_a_cpu_compiles_nothing(monkeypatch):
    assert not backends.compiles("auto", "stacked", CPU, 10**9)
    assert not backends.compiles("auto", "loop", CPU, 10**9)


def test_by_default_a_gpu_compiles_the_step_of_a_long_run(monkeypatch):
    monkeypatch.setattr(backends, "obstacle", lambda backend, device: "")
    assert backends.compiles("auto", "stacked", GPU, backends.ENOUGH)
    assert not backends.compiles("auto", "stacked", GPU, backends.ENOUGH - 1)
    assert not backends.compiles("off", "stacked", GPU, 10**9)
    assert backends.compiles("on", "stacked", GPU, 1)


def test_what_cannot_be_compiled_is_an_error_if_it_must_be_and_else_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UsageError, match="there is no C\\+\\+ compiler `no-such-compiler`"):
        simulate(Method(), "stacked", compile="on")
    with pytest.raises(UsageError, match="the backend loop compiles nothing"):
        backends.compiles("on", "loop", CPU, 1)
    monkeypatch.setattr(backends, "obstacle", lambda backend, device: "the package is missing")
    assert not backends.compiles("auto", "stacked", GPU, 10**9)
    assert "not compiled, because the package is missing" in caplog.text
