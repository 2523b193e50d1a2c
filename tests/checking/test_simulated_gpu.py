"""The code of every method says where its tensors are: it runs on a simulated GPU."""

import numpy as np
import pytest
import torch

from conftest import QUIET, artifacts, brief, everything, simulate, slow_but, uneven
from fedgrid.checking.simulated_gpu import simulated_gpu
from fedgrid.checking.small import move, move_federation
from fedgrid.engine.backends import _recorded, _steps
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError

FAST = ["fedavg", "moon", "scaffold", "fedsls", "krum"]


def played(method: Method, backend: str, device="cpu", needed=None) -> dict:
    """All that a run holds after two rounds and an evaluation, on the CPU."""
    torch.manual_seed(0)
    federation = move_federation(uneven(), device)
    run = simulate(method, backend, federation, needed=move(needed or {}, device))
    run.engine.backend.compiled = None  # it needs CUDA graphs
    run.play(2)
    run.engine.evaluation.evaluate(run.run.server)
    return move(everything(run.run), "cpu")


def assert_same_on_gpu(name: str, backend: str) -> None:
    expected = played(brief(name), backend, needed=artifacts(name))
    with simulated_gpu() as gpu:
        found = played(brief(name), backend, gpu, artifacts(name))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("name", slow_but(FAST, QUIET))
def test_a_method_runs_where_its_tensors_are(name):
    assert_same_on_gpu(name, "loop")


@pytest.mark.parametrize("name", FAST)
def test_a_stack_is_trained_where_its_tensors_are(name, monkeypatch):
    monkeypatch.setattr(_steps, "Recorded", _recorded.unrecorded)
    assert_same_on_gpu(name, "stacked")


def on_the_cpu(entries):
    return {"head.bias": entries["head.bias"].cpu()}


GIVING = {
    "begin": lambda client: on_the_cpu(client.model),
    "memory": lambda start, client: on_the_cpu(start.server),
    "remember": lambda client: on_the_cpu(client.model),
    "send": lambda cohort: [{"sent": torch.ones(1)} for _ in cohort.clients],
    "measure": lambda client: on_the_cpu(client.model),
    "weigh": lambda cohort: torch.full((len(cohort.clients),), 1 / len(cohort.clients)),
    "aggregate": lambda cohort, weights: {n: d.cpu().mean(0) for n, d in cohort.deltas.items()},
    "server": lambda update, shared: {name: one.cpu() for name, one in update.items()},
    "shared": lambda start: on_the_cpu(start.server),
    "share": lambda cohort, update: on_the_cpu(update),
    "refine": lambda end: on_the_cpu(end.model),
    "personal": lambda client: on_the_cpu(client.model),
    "choose": lambda candidates: torch.arange(3),
}
BESIDE = {"remember": "memory", "share": "shared"}


@pytest.mark.parametrize("field", GIVING)
def test_what_a_function_gives_is_moved_to_the_gpu(field):
    names = {field, BESIDE.get(field, field)}
    method = Method(**{name: GIVING[name] for name in names})
    with simulated_gpu() as gpu:
        run = simulate(method, "loop", move_federation(uneven(), gpu)).play(2)
        kept = [*run.server.values(), *run.shared.values()]
        kept += [tensor for memory in run.memory.values() for tensor in memory.values()]
        assert all(tensor.is_cuda for tensor in kept)


def test_a_direction_on_the_cpu_is_refused():
    method = Method(correct=lambda step, gradients: {n: g.cpu() for n, g in gradients.items()})
    with (
        simulated_gpu() as gpu,
        pytest.raises(UsageError, match=r"`correct` gives .* on the device"),
    ):
        simulate(method, "loop", move_federation(uneven(), gpu)).play(1)


def test_a_generator_of_another_device_is_refused():
    with simulated_gpu() as gpu:
        generator = torch.Generator().manual_seed(0)
        assert not torch.rand(2, generator=generator).is_cuda
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(2, generator=generator, device=gpu)
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(2, generator=torch.Generator(gpu))
        assert torch.rand(2, generator=torch.Generator(gpu), device=gpu).is_cuda


def forgets(cohort):
    return cohort.sizes / cohort.sizes.sum() * torch.ones(len(cohort.sizes))


def counts_on_the_cpu(cohort):
    return cohort.sizes / float(np.asarray(cohort.sizes).sum())


def takes_from_the_cpu(cohort):
    return torch.ones(9)[cohort.sizes.argsort()] / len(cohort.sizes)


@pytest.mark.parametrize("weigh", [forgets, counts_on_the_cpu, takes_from_the_cpu])
def test_a_method_that_forgets_the_device_fails(weigh):
    played(Method(weigh=weigh), "loop")
    with simulated_gpu() as gpu, pytest.raises(UsageError, match=r"Make a tensor where"):
        played(Method(weigh=weigh), "loop", gpu)


def test_numbers_and_indices_of_the_cpu_may_be_used():
    with simulated_gpu() as gpu:
        there = torch.arange(4.0, device=gpu)
        found = (there * torch.tensor(2.0))[torch.tensor([3, 0])]
        assert (found.is_cuda, found.tolist()) == (True, [6, 0])
        there[torch.tensor([1])] = 5.0
        assert (there.cpu().is_cuda, there.cpu().tolist()) == (False, [0, 5, 2, 3])
