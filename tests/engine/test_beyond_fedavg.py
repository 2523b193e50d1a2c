"""What a method can change about a round beyond its loss and its aggregation, in both backends."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import BACKENDS, assert_same, methods, simulate, uneven
from fedgrid.federation.federation import Pool
from fedgrid.method import Method

EPOCHS = {"local_unit": "epochs", "local": 2}
SIZES = (5, 9, 12, 6, 8, 7)


def scaled_head(client):
    return {name: 1.1 * w for name, w in client.model.items() if name.startswith("head.")}


def with_sum(network):
    network.sum = torch.nn.Parameter(network.head.bias.new_zeros(()))
    return network


def summed(step, gradient):
    return gradient | {"sum": step.params["sum"] + step.lr}


def distance(client):
    return {"distance": client.memory["distance"] + client.steps * client.lr}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_knows_its_number_and_how_many_there_are(backend):
    sums = Method(
        penalty=lambda step: 0 * step.logits.sum(),
        rate=lambda step: {"head.bias": (step.step == step.steps - 1).to(step.valid)},
        padded=True,
    )
    plain, last = (
        simulate(made, backend, uneven(SIZES), local=1, participation=1.0).play(1).server
        for made in (Method(), sums)
    )
    torch.testing.assert_close(plain, last)  # one step is the last one


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_knows_the_rate_of_the_round_and_what_the_step_before_has_left(backend):
    """Clients take different numbers of steps, with a lower rate from round to round."""
    made = Method(
        **{"architecture": with_sum, "private": ("sum",), "frozen": ("sum",), "correct": summed},
        **{"memory": lambda start, k: {"distance": start.sizes.new_zeros(())}, "padded": True},
        remember=distance,
    )
    state = simulate(made, backend, uneven(SIZES), **EPOCHS | {"lr_decay": 0.5}).play(3)
    assert len({float(memory["distance"]) for memory in state.memory.values()}) > 2
    for memory in state.memory.values():
        torch.testing.assert_close(memory["private"]["sum"], memory["distance"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_rests_has_neither_step_nor_momentum_nor_decay(backend):
    rests = Method(rate=lambda step: {"head.weight": torch.zeros_like(step.valid[0])}, padded=True)
    fields = EPOCHS | {"optimiser_state": "kept"}
    run = simulate(rests, backend, **fields)
    before = run.run.server["head.weight"].clone()
    state = run.play(2)
    torch.testing.assert_close(state.server["head.weight"], before, rtol=0, atol=0)
    for memory in state.memory.values():
        assert not memory["optimiser"]["momentum"]["head.weight"].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_rests_is_no_part_of_the_norm_that_is_clipped(backend):
    rests = Method(rate=lambda step: {"head.weight": torch.zeros_like(step.valid[0])}, padded=True)
    frozen = Method(frozen=("head.weight",))
    runs = [simulate(made, backend, clip=0.1).play(2).server for made in (rests, frozen)]
    torch.testing.assert_close(*runs)


def test_a_client_that_takes_no_step_keeps_the_servers_model():
    """It has no samples, and does not begin with what the method gives."""

    def measured(end):
        return {"moved": (end.model["head.weight"] - end.server["head.weight"]).norm()}

    moved = Method(
        begin=scaled_head,
        memory=lambda start, k: {"moved": start.sizes.new_zeros(())},
        remember=measured,
    )
    state = simulate(moved, "loop", uneven((*SIZES, 0)), participation=1.0, **EPOCHS).play(1)
    distances = [float(state.memory[k]["moved"]) for k in range(len(SIZES) + 1)]
    assert distances[-1] == 0 < min(distances[:-1])


def test_a_client_is_evaluated_by_its_personal_model_and_keeps_none_of_it():
    zero = Method(personal=lambda client: {n: 0 * w for n, w in client.model.items()})
    data = uneven(SIZES)
    tests = Pool(data.images, data.labels, torch.arange(sum(SIZES)), [*SIZES])
    run = simulate(zero, "loop", replace(data, client_tests=tests))
    state = run.play()
    results = run.engine.evaluation.evaluate_all_clients(state).results(state.server)
    assert results["own_loss"] == pytest.approx(np.log(3))
    assert results["server_loss"] != pytest.approx(np.log(3))
    assert not any("head.weight" in str(memory) for memory in state.memory.values())


def test_the_server_is_evaluated_by_what_it_deploys_and_trains_on_with_its_own():
    zero = Method(deploy=lambda server: {n: 0 * w for n, w in server.model.items()})
    run, plain = simulate(zero, "loop"), simulate(Method(), "loop")
    state = run.play(2)
    deployed = run.engine.evaluation.deployed(state)
    assert run.engine.evaluation.evaluate(deployed)["loss"] == pytest.approx(np.log(3))
    assert_same(state, plain.play(2))


def test_a_method_reads_the_servers_data_and_all_local_models():
    data = replace(uneven(SIZES), server=np.array([0, 5, 7]))
    seen = {}

    def look(end):
        x = end.data.inputs(torch.tensor([2, 0]))
        seen["x"], seen["size"] = x, end.data.size
        whole = {n: sum(a * end.local(c)[n] for c, a in enumerate(end.weights)) for n in end.model}
        return {n: w for n, w in whole.items() if w.is_floating_point()}

    refined, plain = (
        simulate(made, "loop", data).play() for made in (Method(refine=look), Method())
    )
    assert (seen["size"], seen["x"].shape) == (3, (2, 1, 6, 6))
    assert_same(refined, plain, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [("fedavg", 1, 1), ("fedprox", 1, 1), ("scaffold", 2, 2), ("fedbabu", 1, 1)],
)
def test_what_travels_in_a_round(name, down, up):
    run = simulate(methods(name), "loop", uneven(SIZES))
    server, frozen = run.play().server, {"fedbabu": "head."}.get(name, "-")
    entries = {n: w for n, w in server.items() if not n.startswith(frozen)}
    statistics = sum(w.numel() for n, w in entries.items() if "running" in n)
    weights = sum(w.numel() for n, w in entries.items()) - statistics
    expected = {
        way: 8 * (times * weights + statistics) for way, times in (("down", down), ("up", up))
    }
    assert run.engine.traffic == expected
