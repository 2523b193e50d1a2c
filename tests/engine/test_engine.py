"""The round, the backends and what a run leaves: `fedgrid.engine`, `.backends`, `.checkpoint`."""

import csv
import json
import logging

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from conftest import (
    BACKENDS,
    HAND,
    PROTOCOL,
    SIZES,
    artifacts,
    assert_same,
    brief,
    by_hand,
    differ,
    everything,
    federated,
    methods,
    pixel,
    simulate,
    some_slow,
    tiny,
    two_clients,
    uneven,
)
from fedgrid.checking.plain import PlainLoop
from fedgrid.commands import collect
from fedgrid.engine import backends, evaluation, optimisers
from fedgrid.engine.backends import _recorded, stacked
from fedgrid.engine.state import RunState
from fedgrid.engine.state import effective as effective_clients
from fedgrid.federation import array_files, augment, schedule
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.report import _product
from fedgrid.report.fedsls import table1
from fedgrid.runtime.names import UsageError, registered
from fedgrid.training import build, checkpoint, results, rounds

both_backends = pytest.mark.parametrize("backend", BACKENDS)


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def weight(run: RunState) -> torch.Tensor:
    """The weight of class 0 in the linear model of one pixel."""
    return run.server["head.weight"][0, 0]


def assert_weight(run: RunState, expected: float) -> None:
    torch.testing.assert_close(weight(run), t(expected)[0])


def test_both_backends_are_tested():
    assert set(registered("engine/backends")) == set(BACKENDS)


# --- hooks, on two clients whose first deltas are -0.1 and 0.1 -------------------------------


def slope(step, g=1):
    """A loss with the gradient g with respect to weights, and 0 with respect to biases."""
    return g * step.params["head.weight"].sum() + 0 * step.params["head.bias"].sum()


SLOPE = Method(loss=slope)


@both_backends
def test_loss_replaces_the_cross_entropy(backend):
    assert_weight(by_hand(SLOPE, backend), -0.1)


@pytest.mark.parametrize(
    "backend",
    ["loop", "stacked"],
)
def test_a_parameter_that_the_loss_does_not_depend_on_stays(backend):
    method = Method(loss=lambda step: step.params["head.weight"].sum())
    assert not by_hand(method, backend).server["head.bias"].any()


@both_backends
def test_penalty_is_added_to_the_loss(backend):
    # 0.1 (1/4 (-1 + 3) + 3/4 (1 + 3)) = 0.35
    added = Method(penalty=lambda step: 3 * step.params["head.weight"].sum())
    assert_weight(by_hand(added, backend), -0.35)


@both_backends
def test_correct_turns_gradients_into_directions(backend):
    # FedAvg's mean gradient is 1/2: 0.1 (2 1/2 + 5) = 0.6
    def direction(step, grads):
        return {name: 2 * g + 5 for name, g in grads.items()}

    assert_weight(by_hand(Method(correct=direction), backend), -0.6)


@both_backends
def test_correct_sees_the_step(backend):
    # Directions are the client's number of samples: 0.1 (1/4 1 + 3/4 3) = 0.25
    def direction(step, grads):
        return {name: torch.ones_like(g) * step.counts.sum() for name, g in grads.items()}

    assert_weight(by_hand(Method(correct=direction), backend), -0.25)


@both_backends
def test_momentum_acts_on_the_corrected_direction(backend):
    # Directions of 1 twice, momentum 1/2: 0.1 (1 + 1.5)
    def direction(step, grads):
        return {name: torch.ones_like(g) for name, g in grads.items()}

    run = by_hand(Method(correct=direction), backend, momentum=0.5, local=2)
    assert_weight(run, -0.25)


@both_backends
def test_momentum_starts_anew_in_every_round(backend):
    assert_weight(by_hand(SLOPE, backend, rounds=2, momentum=0.5), -0.2)


@both_backends
def test_the_learning_rate_decays_per_round(backend):
    # 0.1 (1 + 1/2 + 1/4), of two steps each
    run = by_hand(SLOPE, backend, rounds=3, lr_decay=0.5, local=2)
    assert_weight(run, -0.35)


@both_backends
def test_weigh_replaces_the_sample_counts(backend):
    # 0.9 (-0.1) + 0.3 (0.1), though the weights do not sum to 1
    method = Method(weigh=lambda cohort: t(0.9, 0.3), any_sum=True)
    assert_weight(by_hand(method, backend), 0.06)


@both_backends
def test_aggregate_replaces_the_weighted_sum(backend):
    def first(cohort, weights):
        assert weights.tolist() == [0.25, 0.75]
        return {name: delta[0] for name, delta in cohort.deltas.items()}

    assert_weight(by_hand(Method(aggregate=first), backend), 0.1)


def momentum(beta: float) -> Method:
    """m <- beta m + update; the server descends along m."""
    zero = {"head.weight": torch.zeros(2, 1).double(), "head.bias": torch.zeros(2).double()}

    def accumulate(cohort, update):
        return {"m": {n: beta * cohort.shared["m"][n] + update[n] for n in update}}

    return Method(
        shared=lambda start: {"m": zero}, share=accumulate, server=lambda _, shared: shared["m"]
    )


@both_backends
def test_server_momentum(backend):
    # Updates of 0.1 each: steps of 0.1, 0.9 0.1 + 0.1 = 0.19, 0.9 0.19 + 0.1 = 0.271
    run = by_hand(SLOPE | momentum(0.9), backend, rounds=3)
    assert_weight(run, -(0.1 + 0.19 + 0.271))
    torch.testing.assert_close(run.shared["m"]["head.weight"][0, 0], t(0.271)[0])


@both_backends
def test_what_is_shared_reaches_the_clients(backend):
    # The slope of round r is r: 0, then 1, then 2.
    method = Method(
        loss=lambda step: slope(step, step.shared["r"]),
        shared=lambda start: {"r": t(0)[0]},
        share=lambda cohort, update: {"r": cohort.shared["r"] + 1},
    )
    assert_weight(by_hand(method, backend, rounds=3), -0.3)


@both_backends
def test_a_client_remembers_what_it_kept(backend):
    # A's slope is 1, then 2; B's is 5, then 6: 0.1 (1/4 (1 + 2) + 3/4 (5 + 6)) = 0.9
    method = Method(
        loss=lambda step: slope(step, step.memory["slope"]),
        memory=lambda start, client: {"slope": t(1, 5)[client]},
        remember=lambda end: {"slope": end.memory["slope"] + 1},
    )
    run = by_hand(method, backend, rounds=2)
    assert_weight(run, -0.9)
    assert {k: float(kept["slope"]) for k, kept in run.memory.items()} == {0: 3, 1: 7}


@both_backends
def test_remember_sees_the_end_of_the_local_training(backend):
    def keep(end):
        assert (end.lr, end.server["head.weight"][0, 0]) == (0.1, 0)
        weight = end.model["head.weight"][0, 0]
        return {"weight": weight, "steps": t(int(end.steps)), "counts": end.counts}

    before = {"weight": t(0)[0], "steps": t(0), "counts": torch.zeros(2, dtype=int)}
    run = by_hand(Method(memory=lambda *_: before, remember=keep), backend)
    assert [float(run.memory[k]["weight"]) for k in (0, 1)] == pytest.approx([0.1, -0.1])
    assert [run.memory[k]["counts"].tolist() for k in (0, 1)] == [[1, 0], [0, 3]]
    assert run.memory[0]["steps"] == 1


@both_backends
def test_measure_sees_all_of_a_clients_data(backend):
    # Sums of squares: 4 for A, 1 + 1 + 16 = 18 for B: (4 (-0.1) + 18 (0.1)) / 22
    method = Method(
        measure=lambda client: {"squares": client.total(lambda x, y: x.square().sum())},
        weigh=lambda cohort: torch.stack([m["squares"] for m in cohort.measured]) / 22,
        weigh_after_training=True,
    )
    assert_weight(by_hand(method, backend), -1.4 / 22)


@both_backends
def test_measure_can_call_the_architecture_with_any_model(backend):
    def both(client):
        def logits(x, y):
            models = (client.model, client.server)
            network = client.architecture
            outputs = [torch.func.functional_call(network, m, (x,))[1] for m in models]
            return torch.stack([output[:, 0].sum() for output in outputs])

        return {"logits": client.total(logits)}

    seen = []
    look = {"weigh": lambda c: seen.append(c.measured) or t(0, 1), "weigh_after_training": True}
    by_hand(Method(measure=both, **look), backend)
    # A: 2 0.1 + 0.05; B: 6 (-0.1) + 3 (-0.05)
    torch.testing.assert_close(
        torch.stack([m["logits"] for m in seen[0]]), t([0.25, 0], [-0.75, 0])
    )


@both_backends
def test_frozen_parameters_stay(backend):
    run = by_hand(Method(frozen=("head.bias",)), backend, rounds=2, weight_decay=0.5)
    assert not run.server["head.bias"].any()
    assert weight(run) != 0


@both_backends
def test_private_parameters_never_leave_their_client(backend):
    # Slopes of 1 and 5 for the biases of A and B, which go on from where they were.
    method = Method(
        loss=lambda step: slope(step, 0) + step.memory["slope"] * step.params["head.bias"][0],
        memory=lambda start, client: {"slope": t(1, 5)[client]},
        remember=lambda end: {"slope": end.memory["slope"]},
        private=("head.bias",),
    )
    run = by_hand(method, backend, rounds=3)
    assert not run.server["head.bias"].any()
    for client, bias in enumerate((-0.3, -1.5)):
        torch.testing.assert_close(run.memory[client]["private"]["head.bias"], t(bias, 0))


@both_backends
def test_private_statistics_never_leave_their_client(backend):
    simulation = simulate(Method(private=("body.1.",)), backend)
    first = everything(simulation.run)
    run = simulation.play(3)
    for name in ("weight", "running_mean"):
        assert torch.equal(run.server[f"body.1.{name}"], first[f"server/body.1.{name}"])
        kept = [run.memory[k]["private"][f"body.1.{name}"] for k in (1, 4)]
        assert not torch.equal(*kept)


def test_private_parameters_are_the_same_in_both_backends():
    method = Method(private=("body.1.", "head."), frozen=("body.5.bias",))
    assert_same(*(simulate(method, b).play(3) for b in BACKENDS), rtol=1e-9, atol=1e-10)


def test_the_model_hook_adds_to_the_architecture():
    def scaled(model):
        model.extra = nn.Parameter(torch.ones(1))
        return model

    simulation = simulate(Method(architecture=scaled))
    assert simulation.run.server["extra"].dtype == torch.float64
    assert "extra" in simulation.engine.architecture.parameters


def test_the_cohort_is_what_it_says():
    seen = []

    def weigh(cohort):
        seen.append((cohort, len(cohort.deltas), len(cohort.memory), len(cohort.measured)))
        return t(0, 1)

    by_hand(Method(weigh=weigh, weigh_after_training=True), rounds=2, local=3)
    assert [sizes for _, *sizes in seen] == [[2, 2, 0]] * 3  # the first call is made twice
    cohort = seen[2][0]
    assert (cohort.round, cohort.population, cohort.lr) == (1, 2, 0.1)
    assert cohort.clients.tolist() == [0, 1]
    assert cohort.sizes.tolist() == [1, 3]
    assert cohort.counts.tolist() == [[1, 0], [0, 3]]
    assert cohort.steps.tolist() == [3, 3]
    assert cohort.deltas["head.weight"].shape == (2, 2, 1)


# --- layouts -----------------------------------------------------------------------------------


def channels_last(seed: int) -> Classifier:
    model = tiny(seed)
    model.layout = torch.channels_last
    return model


def test_a_layout_changes_no_number_beyond_rounding():
    one, other = (simulate(methods("moon"), build=build) for build in (tiny, channels_last))
    weight = other.engine.architecture.live.body[0][0].weight  # MOON adds to the body
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert other.engine.samples.normalise(uneven().images).is_contiguous(
        memory_format=torch.channels_last
    )
    assert_same(one.play(3), other.play(3), rtol=1e-9, atol=1e-11)
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_a_run_in_another_layout_goes_on_with_the_same_bits(tmp_path):
    whole, begun, resumed = (simulate(methods("moon"), build=channels_last) for _ in range(3))
    save(tmp_path / "saved", begun.play(2))
    resumed.run, _ = checkpoint.load(tmp_path / "saved", "key", torch.device("cpu"))
    assert_same(whole.play(4), resumed.play(2))
    found = [each.engine.evaluation.evaluate(each.run.server) for each in (whole, resumed)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: Classifier(nn.Flatten(), 64, 10), "stacked"),
        (lambda: tiny(0), "loop"),  # it has convolutions
        (lambda: Classifier(nn.Linear(1000, 1000), 1000, 10), "loop"),  # it has arithmetic to do
    ],
)
def test_a_cpu_stacks_clients_only_where_a_step_is_calls(model, expected):
    assert backends.best(model(), torch.device("cpu")) == expected
    assert backends.best(model(), torch.device("cuda")) == "stacked"


# --- local steps -----------------------------------------------------------------------------


@both_backends
@pytest.mark.parametrize(("decay", "clip"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3), (0.1, 0.3)])
@pytest.mark.parametrize(
    "rates",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        # A bias before BatchNorm has no gradient but rounding, which a small epsilon shows.
        {"optimiser": "adam", "momentum": 0.0, "epsilon": 1e-3},
        {"optimiser": "adamw", "momentum": 0.0, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.01},
    ],
)
def test_local_steps_are_torchs(backend, rates, decay, clip):
    protocol = {"participation": 1.0, "local": 5, "weight_decay": decay, "clip": clip, **rates}
    simulation = simulate(Method(), backend, uneven((11,)), **protocol)
    plain = PlainLoop(tiny, uneven((11,)), PROTOCOL | protocol, 7)
    model = plain.begin(0)
    optimiser = plain.optimiser(0, model)
    losses, norms = [], []
    for x, y in reference_batches(simulation.engine):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x)[1], y)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf")))
        optimiser.step()
        losses.append(loss.item())
    assert not clip or max(norms) > clip
    run = simulation.play()
    torch.testing.assert_close(run.server, dict(model.state_dict()), rtol=1e-10, atol=1e-12)
    assert float(run.logged["train_loss"]) == pytest.approx(sum(losses) / 5)


@pytest.mark.parametrize("optimiser", [{}, {"optimiser": "adam", "momentum": 0.0}])
def test_every_client_of_a_stack_is_clipped_by_itself(optimiser):
    runs = [simulate(Method(), b, clip=0.5, **optimiser).play(3) for b in ("loop", "stacked")]
    assert_same(*runs, rtol=1e-9, atol=1e-10)
    assert differ(runs[0], simulate(Method(), clip=0.0, **optimiser).play(3))
    loose = simulate(Method(), clip=1e6, **optimiser).play(3)
    assert_same(loose, simulate(Method(), **optimiser).play(3), rtol=1e-12, atol=1e-14)


def test_a_norm_is_of_all_tensors_of_a_client():
    grads = [torch.tensor([[[3.0]], [[0.3]]]), torch.tensor([4.0, 0.4])]  # norms: 5 and 0.5
    one, other = optimisers.clipped(grads, 1.0, stacked=True)
    torch.testing.assert_close(one, torch.tensor([[[0.6]], [[0.3]]]))
    torch.testing.assert_close(other, torch.tensor([0.8, 0.4]))
    alone = optimisers.clipped([grad[0] for grad in grads], 1.0, stacked=False)
    torch.testing.assert_close(alone, [torch.tensor([[0.6]]), torch.tensor(0.8)])


@both_backends
@pytest.mark.parametrize(("limit", "length"), [(1.0, 1.0), (3.0, 3.0)])
def test_what_a_method_makes_of_the_gradient_is_clipped(backend, limit, length):
    """A's and B's gradients are opposite, of norm sqrt(2.5), and here a hundred times as long."""
    longer = Method(correct=lambda step, grads: {name: 100 * g for name, g in grads.items()})
    run = by_hand(longer, backend, clip=limit)
    step = 0.1 * length / 2.5**0.5  # of the weight's 1; B has three of four samples
    expected = torch.tensor([[0.25 - 0.75], [0.75 - 0.25]]).double() * step
    torch.testing.assert_close(run.server["head.weight"], expected, rtol=1e-6, atol=0)


def load(model, state) -> None:
    tensors = model.state_dict()
    assert tensors.keys() == state.keys()
    for name, tensor in tensors.items():
        tensor.copy_(state[name])


def reference_batches(made):
    """The only client's batches of round 0, read off the table one by one."""
    data = made.federation
    work = schedule.work(
        *(schedule.cohort(1, 1.0, *data.names, 0), data.members, made.protocol, *data.names, 0)
    )
    for index, valid, draws in zip(
        work.index[:, 0], work.valid[:, 0], work.draws[:, 0], strict=True
    ):
        images, uniform = data.images[index[valid]], torch.from_numpy(draws[valid])
        x = augment.augment(images, made.protocol["augment"], uniform)
        yield augment.normalise(x, data.mean, data.std), data.labels[index[valid]]


def test_a_step_is_recorded_once_for_each_kind_of_arguments():
    calls = []

    def function(numbers, more):
        calls.append(len(numbers["a"]))
        return {"sum": numbers["a"] + more, "first": numbers["a"][:1]}

    recorded = _recorded.Recorded(function)
    for size in (2, 3, 2, 3):
        a = torch.rand(size)
        found = recorded(_recorded.Flat({"a": a}), a)  # the same tensor in two places
        assert_equal(found, {"sum": 2 * a, "first": a[:1]})
        other = torch.rand(size)
        assert_equal(recorded(_recorded.Flat({"a": a}), other), {"sum": a + other, "first": a[:1]})
    assert calls == [2, 3]


def assert_equal(a: dict, b: dict) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_out_of_memory_halves_the_stack_and_says_so(monkeypatch, caplog):
    whole = simulate(Method(), "stacked").play(2)
    small, widths = stacked.Backend.train_stack, []

    def limited(backend, clients):
        widths.append(len(clients.counts))
        if widths[-1] > 1:
            raise torch.OutOfMemoryError
        return small(backend, clients)

    monkeypatch.setattr(stacked.Backend, "train_stack", limited)
    with caplog.at_level(logging.WARNING):
        halved = simulate(Method(), "stacked").play(2)
    assert widths == [4, 2] + [1] * 8
    assert "out of memory: from now on 1 clients at a time" in caplog.text
    assert_same(halved, whole, rtol=1e-10, atol=1e-12)


def test_out_of_memory_with_one_client_is_an_error(monkeypatch):
    def never(*arguments):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(stacked.Backend, "train_stack", never)
    with pytest.raises(torch.OutOfMemoryError):
        simulate(Method(), "stacked").play()


@both_backends
def test_a_client_without_samples_changes_nothing(backend):
    alone, accompanied = (
        simulate(Method(), backend, uneven(sizes), participation=1.0).play(2)
        for sizes in ((6,), (6, 0))
    )
    torch.testing.assert_close(alone.server, accompanied.server, rtol=1e-12, atol=1e-14)


@both_backends
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_precisions_stay_near(backend, precision):
    data = uneven()
    single = [getattr(data, name).float() for name in ("mean", "std")]
    data = type(data)(**vars(data) | dict(zip(("mean", "std"), single, strict=True)))
    run = simulate(Method(), backend, data, precision=precision).play()
    exact = simulate(Method(), backend).play()
    for name, tensor in run.server.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor.double(), exact.server[name], rtol=0.1, atol=0.05)


# --- BatchNorm's statistics ------------------------------------------------------------------


def normed(seed: int) -> Classifier:
    """One pixel -> BatchNorm -> two classes."""
    torch.manual_seed(seed)
    model = Classifier(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten()), 1, 2).double()
    model.body[0].num_batches_tracked = None
    return model


def known_means(*clients: list[int]):
    """Clients with these pixels."""
    labelled = [
        (torch.tensor(pixels).byte().view(-1, 1, 1, 1), torch.zeros(len(pixels), dtype=int))
        for pixels in clients
    ]
    return federated(labelled, 2, scale=255)


@both_backends
def test_running_statistics_are_averaged_with_the_rounds_weights(backend):
    # A: mean 100, variance 200 (of 90 and 110, over n - 1). B: mean 200, variance 4/3 6^2 = 48.
    # BatchNorm keeps 9/10 of what it had, 0 and 1. Sizes 2 and 4 give the weights 1/3 and 2/3.
    data = known_means([90, 110], [194, 206, 206, 194])
    server = simulate(Method(), backend, data, normed, **HAND).play().server
    torch.testing.assert_close(server["body.0.running_mean"], t((10 + 2 * 20) / 3))
    torch.testing.assert_close(server["body.0.running_var"], t(0.9 + (20 + 2 * 4.8) / 3))


@both_backends
def test_running_statistics_follow_weigh(backend):
    data = known_means([90, 110], [194, 206, 206, 194])
    method = Method(weigh=lambda cohort: t(0.1, 0.3), any_sum=True)
    server = simulate(method, backend, data, normed, **HAND).play().server
    torch.testing.assert_close(server["body.0.running_mean"], t((10 + 3 * 20) / 4))


@both_backends
def test_running_statistics_do_not_leak_to_the_next_client(backend):
    # Each client's statistics are what they are when it is alone.
    pixels = [[90, 110], [194, 206, 206, 194], [10, 10, 70]]
    method = Method(weigh=lambda cohort: t(0, 0, 1))
    last = simulate(method, backend, known_means(*pixels), normed, **HAND | {"local": 2}).play()
    swapped = simulate(
        *(method, backend, known_means(*pixels[1::-1], pixels[2]), normed),
        **HAND | {"local": 2},
    ).play()
    torch.testing.assert_close(last.server["body.0.running_mean"], t(30 * (1 - 0.9**2)))
    assert torch.equal(last.server["body.0.running_var"], swapped.server["body.0.running_var"])


@both_backends
def test_fedaus_small_weights_leave_variances_positive(backend):
    # Twenty rounds in which the weights sum to far less than 1, or to more.
    run = simulate(methods("fedau", cutoff=3), backend, participation=1 / 3).play(20)
    for name in ("body.1.running_var", "body.6.running_var"):
        assert (run.server[name] > 0).all()


def test_evaluation_does_not_touch_running_statistics():
    simulation = simulate(Method())
    before = everything(simulation.run)
    simulation.engine.evaluation.evaluate(simulation.run.server)
    assert all(torch.equal(w, before[n]) for n, w in everything(simulation.run).items())


# --- evaluation and history ------------------------------------------------------------------


def test_evaluation_is_over_the_whole_test_set(monkeypatch):
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", 8)  # of 21
    simulation = simulate(Method())
    found = simulation.engine.evaluation.evaluate(simulation.run.server)
    model, data = tiny(0).eval(), simulation.engine.federation
    load(model, simulation.run.server)
    logits = model(data.test_images.double() * 4 / 255)[1]
    assert found["loss"] == pytest.approx(F.cross_entropy(logits, data.test_labels).item())
    accuracy = (logits.argmax(1) == data.test_labels).double().mean()
    assert found["accuracy"] == pytest.approx(float(accuracy))


def test_no_part_of_the_test_set_is_of_a_few_images(monkeypatch):
    """BatchNorm without running statistics would judge the last of 21 images by itself."""
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", 20)
    simulation, sizes = simulate(Method()), []
    forward = simulation.engine.architecture.forward_server
    simulation.engine.architecture.forward_server = lambda state, x: (
        sizes.append(len(x)) or forward(state, x)
    )
    simulation.engine.evaluation.evaluate(simulation.run.server)
    assert sizes == [11, 10]


def test_a_gpu_evaluates_as_many_samples_at_once_as_its_memory_allows(monkeypatch):
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", 3)
    few = simulate(Method()).engine.evaluation
    counted = []
    for memory in (1, 5 * 10**5, 10**9):
        monkeypatch.setattr(evaluation, "memory_of", lambda device, of=memory: of)
        many = simulate(Method()).engine.evaluation
        counted.append(many.at_once)
        model = many.population.start.server
        found, usual = many.evaluate(model), few.evaluate(model)
        assert found.pop("predicted") == usual.pop("predicted")
        assert found == pytest.approx(usual, rel=1e-12)
    assert few.at_once == counted[0] == 3 < counted[1] < 21 < counted[2]


def test_a_model_whose_code_needs_numbers_is_evaluated_in_usual_parts(monkeypatch):
    monkeypatch.setattr(evaluation, "memory_of", lambda device: 10**9)

    class Needy(type(tiny(0))):
        def forward(self, x):
            return super().forward(x * float(x.sum() > 0))

    def build(seed):
        model = tiny(seed)
        model.__class__ = Needy
        return model

    assert simulate(Method(), build=build).engine.evaluation.at_once == evaluation.EVALUATION_BATCH


def finish(simulation, history=None) -> tuple[RunState, list[dict]]:
    history = [] if history is None else history
    for state in rounds.rounds(simulation.engine, simulation.run, history):
        simulation.run = state
    return simulation.run, history


def test_history_has_the_first_the_scheduled_and_the_last_round():
    _, history = finish(simulate(Method(), rounds=5, evaluate_every=2))
    assert [row["round"] for row in history] == [0, 2, 4, 5]


def test_columns_of_means_have_the_same_order_whatever_was_logged_first():
    names = [*"hgfedcba", "effective_clients", "train_loss"]
    found = rounds.means({name: [1.0, 3.0] for name in names})
    assert [*found] == ["train_loss", "effective_clients", *"abcdefgh"]
    assert {*found.values()} == {2.0}


def test_history_has_means_over_the_rounds_since_the_last_evaluation():
    simulation = simulate(Method(), rounds=2)
    losses = simulation.play(2).logged["train_loss"].tolist()
    _, history = finish(simulate(Method(), rounds=2))
    assert losses[0] != losses[1]
    assert history[-1]["train_loss"] == pytest.approx(sum(losses) / 2)


@pytest.mark.parametrize(
    ("weights", "effective"), [((1, 1), 2), ((1, 0), 1), ((0.1, 0.3), 1.6), ((3, 3), 2)]
)
def test_effective_clients(weights, effective):
    # 1 / (1/4^2 + 3/4^2) = 16 / 10
    assert float(effective_clients(t(*weights))) == pytest.approx(effective)


@both_backends
def test_effective_clients_are_those_of_the_weights_before_they_are_scaled(backend):
    scaled = Method(scale=lambda cohort, weights: weights * t(3, 1))
    run = by_hand(scaled, backend)  # 1/4 and 3/4, and not 3/4 and 3/4
    assert run.logged["effective_clients"].tolist() == pytest.approx([1.6])


@pytest.mark.parametrize("placebo", ["random_weights", "swapped_weights", "fedavg"])
def test_a_placebo_over_fednova_has_its_effective_number(placebo):
    epochs = {"local_unit": "epochs", "participation": 1.0}
    made = [methods("fednova"), methods("fednova") | methods(placebo), methods("fedavg")]
    one, other, plain = (simulate(of, **epochs).play(3).logged["effective_clients"] for of in made)
    torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6)
    assert torch.equal(plain, one)


def first_delta(cohort, weights):
    """An aggregate that does not read the weights."""
    return {name: delta[0] for name, delta in cohort.deltas.items()}


def test_weights_that_nothing_uses_have_no_effective_number(tmp_path):
    simulation = simulate(Method(aggregate=first_delta), rounds=2, evaluate_every=1)
    state, history = finish(simulation)
    assert all("effective_clients" not in row for row in history)
    assert rounds.diverged(history) is None
    results.write(tmp_path, state, history, {})
    with (tmp_path / "metrics.csv").open() as file:
        found = [*csv.DictReader(file)]
    assert [row["effective_clients"] for row in found] == ["", "", ""]
    used = Method(aggregate=first_delta, uses_weights=True)
    assert len(simulate(used).play(2).logged["effective_clients"]) == 2


@pytest.mark.parametrize("field", ["weigh", "reweigh", "scale"])
def test_weights_that_the_aggregate_does_not_use_are_refused(field):
    made = Method(aggregate=first_delta) | Method(**{field: lambda *_: t(0.5, 0.5)})
    says = f"method `a` has an `aggregate` that does not use the weights.*its `{field}` would"
    with pytest.raises(UsageError, match=says):
        build.check_method("a", made, PROTOCOL)
    build.check_method("a", made | Method(uses_weights=True), PROTOCOL)
    build.check_method("a", Method(aggregate=first_delta), PROTOCOL)


# --- batches of one sample -------------------------------------------------------------------


def wide(seed: int) -> Classifier:
    """BatchNorm over whole images only."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten())
    body[0].num_batches_tracked = None
    return Classifier(body, 36, 3).double()


@both_backends
@pytest.mark.parametrize(
    "fields", [{"smallest_batch": 1}, {"batch": 1}, {"smallest_batch": 1, "local_unit": "epochs"}]
)
def test_batches_of_one_sample_are_refused_where_batchnorm_has_one_pixel(fields, backend):
    says = "client [0-9] has a batch of one sample.*set the protocol's `smallest_batch` and"
    with pytest.raises(UsageError, match=says):  # of 9 samples in batches of 4, one is left
        simulate(Method(), backend, uneven((2, 9)), **fields)


@both_backends
def test_batches_of_one_sample_are_taken_where_nothing_speaks_against_them(backend):
    given = Method(), backend
    simulate(*given, uneven((1, 3, 8)), smallest_batch=1).play()  # no client has a batch of one
    run = simulate(*given, uneven((2, 9)), wide, smallest_batch=1, local=3).play()
    assert all(entry.isfinite().all() for entry in run.server.values())
    simulate(*given, two_clients(), pixel, smallest_batch=1, batch=1).play()


# --- checkpoints -----------------------------------------------------------------------------


def test_a_checkpoint_is_the_run_to_the_last_bit(tmp_path):
    """Of every method `test_a_resumed_run_ends_with_the_same_bits` shows it."""
    run = simulate(methods("moon") | methods("scaffold")).play(2)
    history = [{"round": 0, "loss": 1 / 3}, {"round": 2, "loss": float("nan")}]
    save(tmp_path / "kept", run, history=history)
    loaded, read = checkpoint.load(tmp_path / "kept", "key", "cpu")
    assert_same(loaded, run)
    assert all(w.dtype == everything(run)[n].dtype for n, w in everything(loaded).items())
    assert (loaded.round, loaded.memory.keys()) == (2, run.memory.keys())
    assert str(read) == str(history)


def test_nested_and_shared_tensors_are_kept(tmp_path):
    one = torch.arange(6.0)
    memory = {7: {"a": {"b": {"c": one}}, "same": one, "none": torch.zeros(0)}}
    memory[7] |= {"across": one.view(2, 3).T, "wide": torch.ones(1).expand(3)}
    run = RunState({"w": one}, {"deep": {"er": one.double()}}, memory, {"loss": one.sum()}, 3)
    run.recent = {"w": torch.stack([one, 2 * one])}
    assert_same(saved_and_loaded(run, tmp_path / "kept"), run)


def test_overlapping_tensors_are_kept(tmp_path):
    one = torch.arange(6.0)
    run = RunState({"w": one}, {"part": one[2:4], "number": one[5]})
    assert_same(saved_and_loaded(run, tmp_path / "kept"), run)


def save(path, run, key="key", history=()) -> None:
    """Save a run whose clients' memories are in a dict."""
    state, rows = checkpoint.new(run, path)
    for row in history:
        rows.append(row)
    checkpoint.save(path, key, state, rows)


def saved_and_loaded(run, path) -> RunState:
    save(path, run)
    return checkpoint.load(path, "key", "cpu")[0]


def kept(path, key="key") -> None:
    save(path, simulate(Method()).play(), key)


@pytest.mark.parametrize("length", [0, 7, 8, 100, 1000, -1])
def test_a_truncated_checkpoint_is_none(length, tmp_path, caplog):
    kept(tmp_path / "kept")
    content = (tmp_path / "kept").read_bytes()
    (tmp_path / "kept").write_bytes(content[:length])
    assert checkpoint.load(tmp_path / "kept", "key", "cpu") is None
    assert "is damaged" in caplog.text


def test_no_file_and_noise_are_no_checkpoint(tmp_path):
    assert checkpoint.load(tmp_path / "none", "key", "cpu") is None
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    assert checkpoint.load(tmp_path / "noise", "key", "cpu") is None


def test_a_checkpoint_of_another_run_or_version_is_none(tmp_path, monkeypatch):
    kept(tmp_path / "kept", "mine")
    assert checkpoint.load(tmp_path / "kept", "mine", "cpu")
    assert checkpoint.load(tmp_path / "kept", "yours", "cpu") is None
    monkeypatch.setattr(checkpoint, "VERSION", "another")
    assert checkpoint.load(tmp_path / "kept", "mine", "cpu") is None


@pytest.mark.parametrize("where", [0.001, 0.02, 0.3, 0.6, 0.999])
def test_a_flipped_bit_is_seen(where, tmp_path, caplog):
    kept(tmp_path / "kept")
    content = bytearray((tmp_path / "kept").read_bytes())
    content[int(where * len(content))] ^= 4
    (tmp_path / "kept").write_bytes(content)
    assert checkpoint.load(tmp_path / "kept", "key", "cpu") is None
    assert "is not used" in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is damaged"),
        (b"noise" * 100, "is damaged"),
        (None, "is not a checkpoint of this version of fedgrid"),
    ],
)
def test_the_checkpoint_before_a_bad_one_is_used(content, says, tmp_path, caplog):
    path, simulation = tmp_path / "kept", simulate(methods("moon"))
    simulation.run, history = checkpoint.new(simulation.run, path)
    for _ in range(2):
        checkpoint.save(path, "key", simulation.play(), history)
    if content is None:
        save_file({"w": torch.zeros(3)}, path)  # somebody else's
    else:
        path.write_bytes(content)
    run, _ = checkpoint.load(path, "key", "cpu")
    assert run.round == 1
    assert f"{path} {says}" in caplog.text
    assert caplog.text.count("\n") == 1


def test_what_is_discarded_is_gone(tmp_path):
    for _ in range(2):
        kept(tmp_path / "kept")
    assert len(list(tmp_path.iterdir())) == 2
    checkpoint.discard(tmp_path / "kept")
    assert not list(tmp_path.iterdir())


def test_an_interrupted_save_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    kept(tmp_path / "kept")

    def interrupted(tensors, path, about):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(array_files, "save_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path / "kept")
    assert checkpoint.load(tmp_path / "kept", "key", "cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


# A method of each kind of what is kept: by clients, by the server, in optimisers, of other stages.
KEEPING = ["fedacg", "fedadam", "fedau", "fedavg", "fedcurv", "feddyn", "fedpac", "fedproto"]
KEEPING += ["autohs", "moon", "pfedme", "scaffold", "sgdm", "ssp"]


@pytest.mark.parametrize("name", some_slow(registered("methods"), KEEPING))
def test_a_resumed_run_ends_with_the_same_bits(name, tmp_path):
    # Stopped after round 1, of 3; evaluated after 2 and 3.
    def begin():
        return simulate(brief(name), needed=artifacts(name), rounds=3)

    whole, expected = finish(begin())
    path = tmp_path / "kept"
    for stop in (1, 3):
        simulation = begin()
        saved = checkpoint.load(path, "key", "cpu")
        simulation.run, history = saved or checkpoint.new(simulation.run, path)
        for state in rounds.rounds(simulation.engine, simulation.run, history):
            simulation.run = state
            if state.round == stop:
                break
        checkpoint.save(path, "key", simulation.run, history)
    assert history == expected
    assert_same(simulation.run, whole)


def test_only_clients_that_took_part_have_a_memory():
    run = simulate(methods("moon"), participation=1 / 3).play(1)
    names = ("test", "dir0.1", 0, 0)
    assert set(run.memory) == set(schedule.cohort(len(SIZES), 1 / 3, *names))


def test_a_method_that_keeps_nothing_has_no_memory():
    assert simulate(Method()).play(2).memory == {}


# --- divergence ------------------------------------------------------------------------------

NAN = Method(penalty=lambda step: step.shared["r"].log() * step.params["head.weight"].sum())
COUNTED = {"shared": lambda start: {"r": t(2)[0]}}
COUNTED["share"] = lambda cohort, update: {"r": cohort.shared["r"] - 1}  # log: fine, 0, -inf, nan


def diverging(backend: str = "loop"):
    return simulate(NAN | Method(**COUNTED), backend, two_clients(), pixel, **HAND, rounds=9)


@both_backends
def test_a_run_ends_where_its_loss_is_not_finite(backend):
    run, history = finish(diverging(backend))
    assert rounds.diverged(history) == run.round == 4  # the first evaluation after round 3
    assert [row["round"] for row in history] == [0, 2, 4]
    assert rounds.diverged(history[:-1]) is None


def test_a_diverged_run_does_not_go_on_when_it_is_started_again():
    run, history = finish(diverging())
    again = diverging()
    again.run = run
    left = finish(again, list(history))
    assert (left[0].round, len(left[1])) == (run.round, len(history))


def test_a_lost_model_predicts_nothing():
    _, history = finish(diverging())
    assert [sum(row["predicted"]) for row in history] == [*2 * [len(two_clients().test_labels)], 0]
    assert history[-1]["accuracy"] == 0


def test_a_diverged_run_is_a_cell_without_a_mean(tmp_path):
    # One cell with a diverged seed and a finished one, as files, collected and drawn.
    names = {"protocol": "p", "dataset": "d", "partition": "dir0.1", "method": "m"}
    finished = simulate(Method(), "loop", two_clients(), pixel, **HAND, rounds=4)
    for seed, simulation in enumerate((diverging(), finished)):
        run, history = finish(simulation)
        results.write(tmp_path / f"runs/p/d/dir0.1/m/seed{seed}", run, history, {})
    grid = [{name: [value] for name, value in names.items()} | {"seed": [0, 1]}]
    collect.main([
        *("runs", json.dumps(grid), "--results", str(tmp_path)),
        *("--out", str(tmp_path / "runs.csv")),
        *("--protocols", json.dumps({"p": {"rounds": 9, "tail": 9}})),
    ])  # fmt: skip
    table = table1.draw(_product.read_table(tmp_path / "runs.csv"), {}, "quick")
    assert table["mean"].isna().all()
    assert table["std"].isna().all()
    assert (table.loc[0, "diverged"], table.loc[0, "seeds"]) == (1, 2)
    assert "1/2 diverged" in table1.wide(table).to_string()


def test_what_a_run_writes(tmp_path):
    simulation = simulate(Method())
    run, history = finish(simulation)
    results.write(tmp_path, run, history, {"key": "abc"})
    summary = json.loads((tmp_path / "summary.json").read_text())
    listed = ("predicted", "logged")
    final = {name: value for name, value in history[-1].items() if name not in listed}
    assert summary == {"key": "abc", "rounds": 4, "diverged": None, "final": final}
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [float(row["accuracy"]) for row in rows] == [row["accuracy"] for row in history]
    assert rows[0]["train_loss"] == ""  # nobody has trained yet
    said = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    predicted = [n for row in history for n in row["predicted"]]
    assert [int(row["predicted"]) for row in said] == predicted
    assert [(row["round"], row["class"]) for row in said[:3]] == [*zip("000", "012", strict=True)]
    model = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(w, run.server[name]) for name, w in model.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("clients.csv", "metrics.csv", "model.safetensors", "predictions.csv", "summary.json"),
    ]
