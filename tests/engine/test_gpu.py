"""What holds on a CPU holds on a GPU: `python -m pytest -m gpu` on a machine that has one."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils._pytree import tree_map

from conftest import (
    BACKENDS,
    QUIET,
    artifacts,
    assert_same,
    everything,
    federated,
    given_noise,
    methods,
    simulate,
    spoken,
    tiny,
    uneven,
)
from fedgrid import models
from fedgrid.encoders import guided
from fedgrid.method import Method
from fedgrid.training import checkpoint

DEVICE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


def moved(tree, device: str = DEVICE):
    """The tensors of nested dicts on the device."""
    return tree_map(lambda leaf: leaf.to(device) if torch.is_tensor(leaf) else leaf, tree)


def on_gpu(federation, dtype: torch.dtype = torch.float64):
    """The federation in the GPU's memory."""
    found = moved({name: value for name, value in vars(federation).items() if name != "members"})
    found |= {name: found[name].to(dtype) for name in ("mean", "std")}
    return replace(federation, **found)


def played(name: str, backend: str, federation, rounds: int = 3):
    """The run of a method after some rounds, on the CPU."""
    needed = moved(artifacts(name), federation.images.device)
    run = simulate(methods(name), backend, federation, needed=needed).play(rounds)
    parts = ("server", "shared", "memory", "logged")
    return replace(run, **{part: moved(getattr(run, part), "cpu") for part in parts})


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("fedavg", {"optimiser": "adam", "clip": 0.5, "epsilon": 1e-3}),
        *((name, {}) for name in ("moon", "scaffold", "fedper")),
    ],
)
def test_compiled_steps_on_a_gpu_are_those_of_a_loop(name, protocol, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    options = {"local_unit": "epochs", "local": 2, **protocol}
    loop = simulate(methods(name), "loop", uneven(), needed=artifacts(name), **options)
    gpu = on_gpu(uneven())
    needed = moved(artifacts(name), DEVICE)
    run = simulate(methods(name), "stacked", gpu, needed=needed, compile="on", **options)
    loop.play(8)
    run.play(8)
    made = run.engine.backend.compiled.programs.values()
    assert all(one.launch != one.call for one in made)
    server = moved(run.run.server, "cpu")
    torch.testing.assert_close(server, loop.run.server, rtol=1e-9, atol=1e-10)


def test_nothing_in_a_round_waits_for_the_gpu():
    run = simulate(Method(), "stacked", on_gpu(uneven()), local_unit="epochs", local=2)
    run.play(3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run.play(2)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", QUIET)
def test_a_gpu_trains_as_a_cpu_does(name, backend):
    expected = played(name, "loop", uneven())
    assert_same(played(name, backend, on_gpu(uneven())), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_noisy_network_trains_alike_with_the_same_noise(backend, monkeypatch):
    monkeypatch.setattr(torch, "rand_like", given_noise)
    expected = played("autohs", "loop", uneven())
    assert_same(played("autohs", backend, on_gpu(uneven())), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_single_precision_is_near_double(backend):
    single = played("fedavg", backend, on_gpu(uneven(), torch.float32))
    assert single.server["head.weight"].dtype == torch.float32
    double = played("fedavg", "loop", uneven())
    for name, tensor in everything(double).items():
        torch.testing.assert_close(
            everything(single)[name], tensor, rtol=1e-3, atol=1e-4, check_dtype=False
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_resumed_run_has_the_same_bits(backend, tmp_path):
    start = partial(simulate, methods("moon"), backend, on_gpu(uneven()))
    whole, begun, resumed = start(), start(), start()
    begun.run, history = checkpoint.new(begun.run, tmp_path / "saved", DEVICE)
    checkpoint.save(tmp_path / "saved", "key", begun.play(2), history)
    resumed.run, _ = checkpoint.load(tmp_path / "saved", "key", torch.device(DEVICE))
    assert_same(whole.play(4), resumed.play(2))


@pytest.mark.parametrize("name", ["fedavg_cnn", "resnet18"])
def test_a_model_of_the_papers_trains_alike(name):
    random = torch.Generator().manual_seed(3)
    images = [torch.randint(0, 256, (n, 3, 32, 32), generator=random).byte() for n in (5, 8)]
    data = federated([(x, torch.arange(len(x)) % 3) for x in images], 3, scale=4)
    runs = [
        simulate(Method(), backend, where, lambda seed: build(name, seed), participation=1.0)
        for backend, where in (("loop", data), ("stacked", on_gpu(data)))
    ]
    cpu, gpu = (moved(run.play(1).server, "cpu") for run in runs)
    torch.testing.assert_close(gpu, cpu, rtol=1e-6, atol=1e-7)
    accuracies = [run.engine.evaluation.evaluate(run.run.server)["accuracy"] for run in runs]
    assert accuracies[0] == accuracies[1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedgkd"])
def test_a_gpu_counts_the_operations_that_a_cpu_counts(name, backend):
    runs = [
        simulate(methods(name), which, where, metrics=["operations"])
        for which, where in (("loop", uneven()), (backend, on_gpu(uneven())))
    ]
    for run in runs:
        run.play(1)
    cpu, gpu = (run.engine.operations for run in runs)
    assert cpu == gpu > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_lstm_trains_as_on_a_cpu(backend):
    """The loop has the fused layers of cuDNN, and the stack the unrolled ones."""

    def made(seed: int):
        return models.build("char_lstm_small", (5,), 7, seed=seed, tokens=7).double()

    sizes = (3, 6, 4)
    options = {"augment": [], "clients": len(sizes), "clip": 0.5}
    runs = [
        simulate(Method(), name, where, made, **options)
        for name, where in (("loop", spoken(sizes)), (backend, on_gpu(spoken(sizes))))
    ]
    cpu, gpu = (moved(run.play(2).server, "cpu") for run in runs)
    torch.testing.assert_close(gpu, cpu, rtol=1e-8, atol=1e-9)
    accuracies = [run.engine.evaluation.evaluate(run.run.server)["accuracy"] for run in runs]
    assert accuracies[0] == accuracies[1]


def build(name: str, seed: int):
    return models.build(name, (3, 32, 32), 3, seed=seed).double()


def test_the_encoder_finds_the_same_salience():
    model, data = tiny(0).eval(), uneven((20,))
    x = (data.images / 255).double()
    state = dict(model.state_dict())
    cpu = guided.contributions(model, state, x, data.labels)
    gpu = guided.contributions(model.to(DEVICE), moved(state), x.to(DEVICE), data.labels.to(DEVICE))
    torch.testing.assert_close(moved(gpu, "cpu"), cpu, rtol=1e-9, atol=1e-12)
