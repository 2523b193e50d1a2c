"""The round, the backends and what a run leaves: `fedgrid.engine`, `.backends`, `.checkpoint`."""

import csv
import json
import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import nn

from conftest import (
    BACKENDS,
    HAND,
    PROTOCOL,
    assert_same,
    by_hand,
    everything,
    federated,
    methods,
    pixel,
    simulate,
    tiny,
    two_clients,
    uneven,
)
from fedgrid.checking.plain import PlainLoop
from fedgrid.engine import backends, evaluation
from fedgrid.engine.aggregation import Kept, Running, start_sum
from fedgrid.engine.backends import _recorded, stacked
from fedgrid.engine.state import RunState
from fedgrid.engine.state import effective as effective_clients
from fedgrid.federation import array_files, augment, schedule
from fedgrid.method import Method, weighted_sum
from fedgrid.models import Classifier
from fedgrid.runtime.names import UsageError
from fedgrid.training import build, checkpoint, results, rounds

both_backends = pytest.mark.parametrize("backend", BACKENDS)


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- hooks, on two clients whose first deltas are -0.1 and 0.1 -------------------------------


def slope(step, g=1):
    """A loss with the gradient g with respect to weights, and 0 with respect to biases."""
    return g * step.params["head.weight"].sum() + 0 * step.params["head.bias"].sum()


def everywhere(value):
    """A direction with the same number in all entries."""
    return lambda step, grads: {n: torch.ones_like(g) * value(step) for n, g in grads.items()}


def first_delta(cohort, weights):
    """An aggregate that does not read the weights."""
    return {name: delta[0] for name, delta in cohort.deltas.items()}


SLOPE = Method(loss=slope)
ZERO = {"head.weight": torch.zeros(2, 1).double(), "head.bias": torch.zeros(2).double()}
ROLLING = SLOPE | Method(  # m <- 0.9 m + update; the server descends along m
    shared=lambda start: {"m": ZERO},
    share=lambda cohort, update: {"m": {n: 0.9 * cohort.shared["m"][n] + update[n] for n in ZERO}},
    server=lambda _, shared: shared["m"],
)
COUNTED = Method(  # the slope of round r is r
    loss=lambda step: slope(step, step.shared["r"]),
    shared=lambda start: {"r": t(0)[0]},
    share=lambda cohort, update: {"r": cohort.shared["r"] + 1},
)
KEEPING = Method(  # A's slope is 1, then 2; B's is 5, then 6
    loss=lambda step: slope(step, step.memory["slope"]),
    memory=lambda start, client: {"slope": t(1, 5)[client]},
    remember=lambda end: {"slope": end.memory["slope"] + 1},
)
SQUARES = Method(  # sums of squares: 4 for A, 1 + 1 + 16 = 18 for B
    measure=lambda client: {"squares": client.total(lambda x, y: x.square().sum())},
    weigh=lambda cohort: torch.stack([m["squares"] for m in cohort.measured]) / 22,
    weigh_after_training=True,
)
# A method, fields of the protocol, and the server's weight: FedAvg's mean gradient is 1/2, and A
# and B have the weights 1/4 and 3/4.
WEIGHTS = {
    "loss": (SLOPE, {}, -0.1),
    "loss of weights": (Method(loss=lambda s: s.params["head.weight"].sum()), {}, -0.1),
    "penalty": (Method(penalty=lambda step: 3 * step.params["head.weight"].sum()), {}, -0.35),
    "correct": (Method(correct=lambda _, g: {n: 2 * w + 5 for n, w in g.items()}), {}, -0.6),
    "samples": (Method(correct=everywhere(lambda step: step.counts.sum())), {}, -0.25),
    "momentum": (Method(correct=everywhere(lambda _: 1)), {"momentum": 0.5, "local": 2}, -0.25),
    "momentum anew": (SLOPE, {"rounds": 2, "momentum": 0.5}, -0.2),
    "decay": (SLOPE, {"rounds": 3, "lr_decay": 0.5, "local": 2}, -0.35),  # 0.2 (1 + 1/2 + 1/4)
    "weigh": (Method(weigh=lambda cohort: t(0.9, 0.3), any_sum=True), {}, 0.06),
    "aggregate": (Method(aggregate=first_delta), {}, 0.1),
    "server": (ROLLING, {"rounds": 3}, -(0.1 + 0.19 + 0.271)),
    "share": (COUNTED, {"rounds": 3}, -0.3),
    "remember": (KEEPING, {"rounds": 2}, -0.1 * (1 / 4 * (1 + 2) + 3 / 4 * (5 + 6))),
    "measure": (SQUARES, {}, (4 * 0.1 - 18 * 0.1) / 22),
}


@both_backends
@pytest.mark.parametrize("hook", WEIGHTS)
def test_what_a_function_changes_worked_out_by_hand(hook, backend):
    method, fields, expected = WEIGHTS[hook]
    run = by_hand(method, backend, **fields)
    torch.testing.assert_close(run.server["head.weight"][0, 0], t(expected)[0])  # of class 0
    if hook in ("loss", "loss of weights"):
        assert not run.server["head.bias"].any()
    if hook == "remember":
        assert {k: float(kept["slope"]) for k, kept in run.memory.items()} == {0: 3, 1: 7}


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


# A bias before BatchNorm has no gradient but rounding, which a small epsilon shows.
ADAMW = {"optimiser": "adamw", "momentum": 0.0, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.01}


@both_backends
@pytest.mark.parametrize(
    ("rates", "decay", "clip"),
    [
        ({"momentum": 0.0}, 0.1, 0.0),
        ({"momentum": 0.9}, 0.0, 0.0),
        ({"momentum": 0.9}, 0.1, 0.3),
        ({"optimiser": "adam", "momentum": 0.0, "epsilon": 1e-3}, 0.1, 0.0),
        (ADAMW, 0.0, 0.3),
        (ADAMW, 0.1, 0.3),
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


@both_backends
def test_what_a_method_makes_of_the_gradient_is_clipped(backend):
    """A's and B's gradients are opposite, of norm sqrt(2.5), and here a hundred times as long."""
    longer = Method(correct=lambda step, grads: {name: 100 * g for name, g in grads.items()})
    run = by_hand(longer, backend, clip=3.0)
    step = 0.1 * 3.0 / 2.5**0.5  # of the weight's 1; B has three of four samples
    expected = torch.tensor([[0.25 - 0.75], [0.75 - 0.25]]).double() * step
    torch.testing.assert_close(run.server["head.weight"], expected, rtol=1e-6, atol=0)


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
        assert torch.equal(found["sum"], 2 * a)
        other = torch.rand(size)
        found = recorded(_recorded.Flat({"a": a}), other)
        assert torch.equal(found["sum"], a + other)
        assert torch.equal(found["first"], a[:1])
    assert calls == [2, 3]


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
    model.load_state_dict(simulation.run.server, strict=False)
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


def test_columns_of_means_have_the_same_order_whatever_was_logged_first():
    names = [*"hgfedcba", "effective_clients", "train_loss"]
    found = rounds.means({name: [1.0, 3.0] for name in names})
    assert [*found] == ["train_loss", "effective_clients", *"abcdefgh"]
    assert {*found.values()} == {2.0}


def test_history_has_means_over_the_rounds_since_the_last_evaluation():
    simulation = simulate(Method(), rounds=2)
    losses = simulation.play(2).logged["train_loss"].tolist()
    history = simulate(Method(), rounds=2).finish()
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


def test_weights_that_nothing_uses_have_no_effective_number(tmp_path):
    simulation = simulate(Method(aggregate=first_delta), rounds=2, evaluate_every=1)
    history = simulation.finish()
    assert all("effective_clients" not in row for row in history)
    assert rounds.diverged(history) is None
    results.write(tmp_path, simulation.run, history, {})
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


def test_nested_shared_and_overlapping_tensors_are_kept(tmp_path):
    """Of the runs of every method `test_every_method.py` shows it."""
    one = torch.arange(6.0)
    memory = {7: {"a": {"b": {"c": one}}, "same": one, "none": torch.zeros(0)}}
    memory[7] |= {"across": one.view(2, 3).T, "wide": torch.ones(1).expand(3)}
    shared = {"deep": {"er": one.double()}, "part": one[2:4], "number": one[5]}
    run = RunState({"w": one}, shared, memory, {"loss": one.sum()}, 3)
    run.recent = {"w": torch.stack([one, 2 * one])}
    checkpoint.save(tmp_path / "kept", "key", *checkpoint.new(run, tmp_path / "kept"))
    found, _ = checkpoint.load(tmp_path / "kept", "key", "cpu")
    assert_same(found, run)
    assert (found.round, found.memory.keys()) == (3, {7})
    assert torch.equal(found.recent["w"], run.recent["w"])


def kept(path, key="key") -> None:
    run = simulate(Method()).play()
    checkpoint.save(path, key, *checkpoint.new(run, path))


def test_a_checkpoint_of_another_run_or_version_is_none(tmp_path, monkeypatch):
    kept(tmp_path / "kept", "mine")
    assert checkpoint.load(tmp_path / "kept", "mine", "cpu")
    assert checkpoint.load(tmp_path / "kept", "yours", "cpu") is None
    monkeypatch.setattr(checkpoint, "VERSION", "another")
    assert checkpoint.load(tmp_path / "kept", "mine", "cpu") is None


def flipped(content: bytes, where: float) -> bytes:
    changed = bytearray(content)
    changed[int(where * len(content))] ^= 4
    return bytes(changed)


OF_OTHERS = save({"w": torch.zeros(3)})  # a file of safetensors, but no checkpoint
BAD = {
    **{f"the first {n}": (lambda of, n=n: of[:n], "is damaged") for n in (0, 7, 100, -1)},
    **{f"a bit at {at}": (lambda of, at=at: flipped(of, at), "") for at in (0.001, 0.3, 0.999)},
    "noise": (lambda of: b"noise" * 100, "is damaged"),
    "of others": (lambda of: OF_OTHERS, "is not a checkpoint of this version of fedgrid"),
}


@pytest.mark.parametrize("kind", BAD)
def test_the_checkpoint_before_a_bad_one_is_used_if_there_is_one(kind, tmp_path, caplog):
    path, simulation, (change, says) = tmp_path / "kept", simulate(Method()), BAD[kind]
    simulation.run, history = checkpoint.new(simulation.run, path)
    for _ in range(2):
        checkpoint.save(path, "key", simulation.play(), history)
    path.write_bytes(change(path.read_bytes()))
    run, _ = checkpoint.load(path, "key", "cpu")
    assert run.round == 1
    checkpoint.before(path).unlink()
    assert checkpoint.load(path, "key", "cpu") is None
    first, second = caplog.messages
    assert first == second
    assert f"{path} {says}" in first
    assert first.endswith(": it is not used")


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


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    """Stopped after round 1, of 3; evaluated after 2 and 3, with noise of the network."""

    def begin():
        return simulate(methods("autohs"), rounds=3)

    whole = begin()
    expected = whole.finish()
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
    assert_same(simulation.run, whole.run)


# --- divergence ------------------------------------------------------------------------------

NAN = Method(penalty=lambda step: step.shared["r"].log() * step.params["head.weight"].sum())
FALLING = {"shared": lambda start: {"r": t(2)[0]}}
FALLING["share"] = lambda cohort, update: {"r": cohort.shared["r"] - 1}  # log: fine, 0, -inf, nan


def diverging(backend: str = "loop"):
    return simulate(NAN | Method(**FALLING), backend, two_clients(), pixel, **HAND, rounds=9)


@both_backends
def test_a_run_ends_where_its_loss_is_not_finite(backend):
    simulation = diverging(backend)
    history = simulation.finish()
    assert (
        rounds.diverged(history) == simulation.run.round == 4
    )  # the first evaluation after round 3
    assert [row["round"] for row in history] == [0, 2, 4]
    assert rounds.diverged(history[:-1]) is None


def test_a_diverged_run_does_not_go_on_when_it_is_started_again():
    ended, again = diverging(), diverging()
    history = ended.finish()
    again.run = ended.run
    assert again.finish([*history]) == history
    assert again.run.round == ended.run.round


def test_a_lost_model_predicts_nothing():
    history = diverging().finish()
    assert [sum(row["predicted"]) for row in history] == [*2 * [len(two_clients().test_labels)], 0]
    assert history[-1]["accuracy"] == 0


def test_what_a_run_writes(tmp_path):
    simulation = simulate(Method())
    history = simulation.finish()
    results.write(tmp_path, simulation.run, history, {"key": "abc"})
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
    assert all(torch.equal(w, simulation.run.server[name]) for name, w in model.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("clients.csv", "metrics.csv", "model.safetensors", "predictions.csv", "summary.json"),
    ]


# --- when the weights are known --------------------------------------------------------------


def test_a_round_holds_one_sum_if_the_weights_are_known_before_and_all_deltas_if_not():
    for method, kind in (
        (Method(), Running),
        (Method(weigh=lambda cohort: cohort.sizes), Running),
        (Method(weigh=lambda cohort: cohort.sizes, weigh_after_training=True), Kept),
        (Method(aggregate=weighted_sum), Kept),
        (Method(share=lambda cohort, update: {}), Kept),
        (Method(observe=lambda end: {}), Kept),
        (Method(share=lambda cohort, update: {}, uses_deltas=False), Running),
    ):
        made = simulate(method).engine
        work = schedule.work(np.array([0, 2]), made.federation.members, PROTOCOL, "test")
        cohort = made.cohort(made.start(7), work, 0.1)
        assert isinstance(start_sum(method, cohort, {}, [], []), kind)


class Counting(nn.Module):
    """A body whose buffer counts its calls in training, and changes what it gives."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x.flatten(1) * (1 + self.calls / 10)


@pytest.mark.usefixtures("recorded")
def test_a_buffer_that_is_changed_in_place_is_changed_once_a_step():
    """Also by the step that is recorded."""

    def build(seed):
        torch.manual_seed(seed)
        return Classifier(Counting(), 1, 2).double()

    runs = [
        simulate(Method(), backend, two_clients(), build, **HAND | {"participation": 1.0}).play(2)
        for backend in BACKENDS
    ]
    assert [float(run.server["body.calls"]) for run in runs] == [2, 2]
    assert_same(*runs, rtol=1e-12)


@pytest.mark.usefixtures("recorded")
@both_backends
def test_a_noisy_network_goes_on_with_the_same_noise(backend):
    """A new engine, as of a resumed run, records its steps anew."""
    whole, begun, resumed = (simulate(methods("autohs"), backend) for _ in range(3))
    begun.play(2)
    resumed.run = begun.run
    assert_same(whole.play(3), resumed.play(1))
