"""Typical mistakes in a method: each is told in a sentence with the function, its file and line.

The method's functions are called by `fedgrid.engine.hooks`. What is right there stays untouched:
the tests of every method in both backends show that.
"""

import os
import random
import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import BACKENDS, SIZES, assert_same, methods, simulate, uneven
from fedgrid.engine import backends
from fedgrid.engine.hooks import state
from fedgrid.federation.federation import Pool
from fedgrid.method import Method, by_samples, relative, weighted_sum
from fedgrid.runtime.names import UsageError

both_backends = pytest.mark.parametrize("backend", BACKENDS)


def nothing(*arguments):
    """As if `return` were forgotten."""


def head(model):
    return {"head.weight": model["head.weight"]}


def by_length(cohort):
    return relative(torch.cat([d.flatten(1) for d in cohort.deltas.values()], 1).norm(dim=1))


def zero(start, client=None):
    return {"h": start.server["head.bias"].new_zeros(())}


def counted():
    """A penalty whose own counter goes up."""
    calls = 0

    def penalty(step):
        nonlocal calls
        calls += 1
        return calls * step.features.new_ones(())

    return penalty


def in_place(tensor, result):
    tensor.add_(1)
    return result


def by_data(tensor, result):
    tensor.data.zero_()
    return result


def change_dict(client):
    client.memory["h"] = client.memory["h"] + 1
    return {"h": client.memory["h"]}


STEP = ("loss", "penalty", "correct", "rate")  # functions of a local step
EVERY = ("body.", "head.")
FORGOTTEN = ("loss", "correct", "share", "observe")
ADDED = {"shared": zero, "share": lambda c, u: {"h": c.deltas["head.bias"]}, "uses_deltas": False}


def by_sample(step):
    return F.cross_entropy(step.logits, step.y, reduction="none")


def unpadded(step):
    return step.features.square().mean()


def over_nothing(step):
    return 0.5 * sum(step.params[name].sum() for name in step.memory)


def of_gradient(step):
    return step.gradient(step.params)["head.bias"].square().sum()


def changing_the_server(step):
    return in_place(step.server["head.bias"], step.features.sum())


def bare(client):
    return {"m": client.total(lambda x, y: client.architecture(x)[1].sum())}


def in_training(client):
    return {"m": client.counts + 0 * client.architecture.train().width}


def some(client):
    return {"m": client.counts.sum()} if client.counts.sum() % 2 else {}


def forgetting(cohort):
    return [{"a": n} for n in cohort.sizes[1:]]


def by_entry(cohort):
    return relative(torch.stack([one["m"] for one in cohort.measured]))


def by_memory(cohort):
    return torch.stack([memory["h"] for memory in cohort.memory])


def of_everybody(cohort):
    return relative(torch.ones(cohort.population).double())


def negative(cohort):
    return relative(cohort.sizes - 0.9 * cohort.sizes.mean())


def part(cohort, weights):
    return head(weighted_sum(cohort, weights))


def hidden(cohort, weights):
    return by_data(cohort.deltas["head.bias"], weighted_sum(cohort, weights))


def new_entry(cohort, update):
    return {f"round{cohort.round}": cohort.sizes.sum()}


def late(**fields) -> Method:
    """A method whose weights are known after the training."""
    return Method(**fields, weigh_after_training=True)


def kept(**fields) -> Method:
    """A method whose clients keep a number."""
    return Method(memory=zero, **fields)


# The function, a part of the sentence about its mistake, and the method that has it.
MISTAKES = [
    *((name, "is a `return` missing", Method(**{name: nothing})) for name in FORGOTTEN),
    ("remember", "is a `return` missing", kept(remember=nothing)),
    # values
    ("loss", "not one number", Method(loss=by_sample)),
    ("loss", "not a tensor", Method(loss=lambda s: 0.5)),
    ("loss", "does not depend on the parameters", Method(loss=lambda s: s.logits.sum().detach())),
    ("loss", "not finite in the first round", Method(loss=lambda s: s.cross_entropy() / 0)),
    ("penalty", "step.mean", Method(penalty=lambda s: s.features.sum(1))),
    ("penalty", "0.0, not a tensor .* all parameters", Method(penalty=over_nothing)),
    ("penalty", "missing 1 required positional argument: 'mu'", Method(penalty=lambda s, mu: 0)),
    ("penalty", "another result .*`cohort.noise`", Method(penalty=counted())),
    ("penalty", "counts the padding", Method(penalty=unpadded, padded=True)),
    ("penalty", "neither of them can call it: call it in `correct`", Method(penalty=of_gradient)),
    ("reweigh", "number 2 replaces the default .* `tau`", Method(reweigh=lambda c, tau=2: tau)),
    ("rate", "negative factor", Method(rate=lambda s: {"head.bias": -torch.ones_like(s.lr)})),
    ("architecture", "not a network", Method(architecture=nothing)),
    ("measure", "not finite", Method(measure=lambda c: {"mean": c.counts[:0].double().mean()})),
    ("measure", "the float 0.05 as `m`", Method(measure=lambda c: {"m": float(c.lr)})),
    ("measure", "The network has no weights of its own: call it by `torch", Method(measure=bare)),
    ("measure", "changes its argument `architecture` in place", Method(measure=in_training)),
    ("observe", "not finite", Method(observe=lambda end: {"m": end.weights.sum() * torch.nan})),
    ("observe", "as `m`, not a tensor with one", Method(observe=lambda end: {"m": end.weights})),
    # entries
    ("correct", "lacks `body.0", Method(correct=lambda s, g: head(g))),
    ("correct", "as float16", Method(correct=lambda s, g: {n: w.half() for n, w in g.items()})),
    ("begin", "`head.bias` as float32", Method(begin=lambda c: {"head.bias": torch.zeros(3)})),
    ("aggregate", "lacks `body.0.bias`, .* and 4 more, of the entries", Method(aggregate=part)),
    ("aggregate", "whose shape in the deltas is", Method(aggregate=lambda c, w: c.deltas)),
    ("penalty", "KeyError: 'fc.weight'", Method(penalty=lambda s: s.params["fc.weight"].sum())),
    ("penalty", "did you mean `head.weight`", Method(penalty=lambda s: s.params["head.weights"])),
    ("penalty", "'weight': its fields are counts, cross_en", Method(penalty=lambda s: s.weight)),
    ("penalty", "`h` is in `memory`", kept(penalty=lambda s: s.shared["h"])),
    ("weigh", "'size': did you mean `sizes`", Method(weigh=lambda c: relative(c.size))),
    ("measure", "'step': did you mean `steps`", Method(measure=lambda c: {"m": c.counts / c.step})),
    ("weigh", "`m` is in `measured` of some clients only", late(measure=some, weigh=by_entry)),
    # what clients and the server keep
    ("remember", "the float 1.0 as `h`, not a dict of te", kept(remember=lambda c: {"h": 1.0})),
    ("remember", "initial memory", Method(remember=lambda c: {"h": c.counts})),
    ("remember", "where the initial memory", kept(remember=lambda c: {"h": c.counts})),
    ("remember", "`h` as int64, and in the", kept(remember=lambda c: {"h": c.counts.sum()})),
    ("memory", "a name that the engine uses", Method(memory=lambda s, k: {"private": s.server})),
    ("memory", "the int 0 as `h`", Method(memory=lambda start, k: {"h": 0})),
    ("shared", "not a dict", Method(shared=lambda start: [1])),
    ("share", "where the earlier one", Method(shared=zero, share=lambda c, u: {"h": c.sizes})),
    ("share", "`round0`, which the initial memory .* lacks", Method(share=new_entry)),
    ("send", "not a list with a dict", Method(send=lambda c: {"a": c.sizes})),
    ("send", "of length 3, not a list with a dict for each of the 4", Method(send=forgetting)),
    # weights
    ("weigh", r"shape \(6,\), not \(4,\).*not of all 6", Method(weigh=of_everybody)),
    ("weigh", "the sum 1[0-9], not 1", Method(weigh=lambda c: c.sizes)),
    ("weigh", "the list", Method(weigh=lambda c: [0.25] * 4)),
    ("weigh", "of int64, not .* floating", Method(weigh=lambda c: c.sizes.long())),
    ("weigh", "not finite", Method(weigh=lambda c: c.sizes / 0)),
    ("weigh", "the weight -.* which is negative", Method(weigh=negative)),
    ("reweigh", "the sum 2", Method(reweigh=lambda c, w: 2 * w)),
    ("scale", r"shape \(\), not \(4,\)", Method(scale=lambda c, w: w.sum())),
    # what is not there, or not yet
    ("weigh", "set weigh_after_training=True", Method(weigh=by_length)),
    ("weigh", "`cohort.memory` is there after local training only", kept(weigh=by_memory)),
    ("weigh", "keep all parameters for themselves, so `del", late(private=EVERY, weigh=by_length)),
    ("share", "added up, because the method says uses_deltas=False", Method(**ADDED)),
    # changes of arguments
    ("penalty", r"server\['head.bias'\]` in place", Method(penalty=changing_the_server)),
    ("correct", "in place", Method(correct=lambda s, g: in_place(g["head.bias"], g))),
    ("remember", "in place", kept(remember=change_dict)),
    ("reweigh", "in place", Method(reweigh=lambda c, w: in_place(w, w) / 5)),
    ("server", "in place", Method(server=lambda u, s: in_place(u["head.bias"], u))),
    ("aggregate", r"its argument `deltas\['head.bias'\]` in place", Method(aggregate=hidden)),
]
STACKED = [(*one, "stacked") for one in MISTAKES if one[0] in STEP]


@pytest.mark.parametrize(
    ("field", "sentence", "method", "backend"), [*((*one, "loop") for one in MISTAKES), *STACKED]
)
def test_a_mistake_is_told_with_function_file_and_line(field, sentence, method, backend):
    """In the stack, mistakes of what it maps over clients: the other functions are called alike."""
    with pytest.raises(UsageError, match=sentence) as told:
        simulate(method, backend).play(2)
    assert f"`{field}` " in str(told.value)
    assert "test_hooks.py, line " in str(told.value)


def test_what_reads_data_of_a_server_that_has_none_is_told_how_to_give_it_some():
    bare = replace(uneven(SIZES), server=uneven(SIZES).server[:0])
    made = Method(refine=lambda end: {"head.bias": end.data.inputs(torch.arange(2)).mean()})
    with pytest.raises(UsageError, match="has no samples: write SERVER_DATA = True"):
        simulate(made, federation=bare).play()


def with_graph(model):
    return {"head.weight": 0.9 * model["head.weight"].clone().requires_grad_()}


def without_graph(model):
    return {"head.weight": 0.9 * model["head.weight"]}


@both_backends
def test_what_a_function_gives_has_no_graph_of_gradients(backend):
    def play(change):
        kept = {"memory": lambda s, k: head(s.server), "remember": lambda c: change(c.model)}
        made = Method(begin=lambda c: change(c.model), refine=lambda e: change(e.model), **kept)
        return simulate(made, backend).play(3)

    run = play(with_graph)
    assert not any(tensor.requires_grad for tensor in run.server.values())
    assert not any(kept["head.weight"].requires_grad for kept in run.memory.values())
    assert_same(run, play(without_graph))


def odd(number):
    return {"odd": torch.ones(())} if number % 2 else {"even": torch.ones(())}


@pytest.mark.parametrize(
    ("method", "field"),
    [
        (Method(memory=lambda start, client: odd(client)), "memory"),
        (Method(begin=lambda c: head(c.model) if c.counts.sum() % 2 else {}), "begin"),
    ],
)
def test_clients_with_other_entries_cannot_be_stacked(method, field):
    simulate(method, "loop").play(1)
    with pytest.raises(UsageError, match=f"`{field}`.* of a client .* the backend loop"):
        simulate(method, "stacked").play(1)


@pytest.mark.parametrize(
    ("field", "parts", "says"),
    [
        ("frozen", ("head.", "fc."), r'frozen=\("fc.",\) fits no entry .*body\.0\..*head\.'),
        ("private", ("head.", "fc."), r'private=\("fc.",\) fits no entry .*body\.0\..*head\.'),
        ("private", ("hea",), "ends within the name"),
        ("frozen", ("body.1.w",), "ends within the name"),
        ("frozen", ("body.", "head."), "freezes all parameters"),
        ("private", (lambda network: [],), "fits no entry"),
        ("private", (lambda network: 5,), "hooks.py, line .* gives 5, not names"),
        ("private", (lambda network: "head.weight",), "hooks.py, line .* gives 'head.weight', no"),
        ("private", (lambda network: ["hed.bias"],), "gives `hed.bias`, and no entry .* head\\."),
        (
            "private",
            (lambda network: network.norms,),
            "hooks.py, line .*Error: .* 'norms'",
        ),
    ],
)
def test_entries_that_are_not_there_are_refused(field, parts, says):
    with pytest.raises(UsageError, match=says):
        simulate(Method(**{field: parts}))


@pytest.mark.parametrize("part", ["head", "body.1.weight"])
def test_a_beginning_that_is_whole_is_taken(part):
    simulate(Method(private=(part,)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"frozen": ("head.", " ")}, "each part of it must be a text"),
        ({"private": (b"head.",)}, "each part of it must be a text"),
        ({"forgets": "yes"}, "not True or False"),
    ],
)
def test_a_field_of_another_type_is_refused(fields, sentence):
    with pytest.raises(UsageError, match=sentence):
        Method(**fields)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "nothing .is a `return` missing"),
        ({"m": torch.ones(2)}, r"a tensor of shape \(2,\) as `m`, not one number"),
        ({"m": None}, "nothing .* as `m`"),
    ],
)
def test_what_an_evaluation_gives_is_checked(value, sentence):
    simulation = simulate(Method(evaluate_server=lambda server: value))
    with pytest.raises(UsageError, match=f"`evaluate_server` gives {sentence}"):
        simulation.engine.evaluation.evaluate_server(simulation.run)


def reading_penalty(step):
    return step.params["head.bias"].sum() if step.round > 0 else step.cross_entropy()


def reading_correct(step, gradients):
    return {name: g * min(float(g.norm()), 1.0) for name, g in gradients.items()}


READING = {
    "penalty": Method(penalty=reading_penalty, padded=True),
    "correct": Method(correct=reading_correct),
}


@pytest.mark.usefixtures("recorded")
def test_a_function_that_reads_a_value_is_refused_in_the_stack_with_what_to_do():
    with pytest.raises(UsageError, match=r"`penalty` fails with .*torch.where.*backend loop"):
        simulate(READING["penalty"], "stacked").play()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("field", READING)
def test_a_function_that_reads_a_value_is_trained_in_the_loop_if_the_backend_is_free(
    field, monkeypatch, caplog
):
    """As on a GPU, where `auto` is the stack. A resumed run decides the same."""
    monkeypatch.setattr(backends, "best", lambda model, device: "stacked")
    run, resumed = (simulate(READING[field], "auto") for _ in range(2))
    resumed.run = run.play(1)
    run.play(2)
    assert_same(run.run, simulate(READING[field], "loop").play(3))
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert re.search(rf"\(backend loop\): test_hooks.py, line \d+: `{field}` fails with", said)
    assert_same(resumed.play(2), run.run)
    assert resumed.engine.backend_name == run.engine.backend_name == "loop"


def test_a_function_that_can_be_mapped_is_trained_in_the_stack_that_auto_chooses(
    monkeypatch, caplog
):
    """Whatever is tried before the first round changes no bit."""
    monkeypatch.setattr(backends, "best", lambda model, device: "stacked")
    for name in ("moon", "autohs"):
        run = simulate(methods(name), "auto")
        assert_same(run.play(2), simulate(methods(name), "stacked").play(2))
        assert run.engine.backend_name == "stacked"
    assert not caplog.records


@pytest.mark.parametrize("field", ["begin", "personal", "deploy", "refine"])
def test_what_trains_may_diverge_after_the_first_rounds(field):
    def after(first: int):
        def lost(seen):
            number = seen.cohort.round if field == "refine" else seen.round
            return {"head.bias": seen.model["head.bias"] * (torch.nan if number >= first else 1)}

        data = uneven()
        tests = Pool(data.images, data.labels, torch.arange(len(data.labels)), [*SIZES])
        return simulate(Method(**{field: lost}), "loop", replace(data, client_tests=tests))

    with pytest.raises(UsageError, match="not finite"):
        evaluated(after(0))
    seen = evaluated(after(2))
    assert not all(np.isfinite(list(seen.values())))


def evaluated(made) -> dict[str, float]:
    """Evaluations of the server and of clients after each of four rounds."""
    found = {}
    for number in range(4):
        run, evaluation = made.play(1), made.engine.evaluation
        deployed = evaluation.deployed(run)
        rows = evaluation.evaluate_server(run), evaluation.evaluate_all_clients(run)
        found |= {f"{number} {n}": v for n, v in (rows[0] | rows[1].results(deployed)).items()}
    return {name: value for name, value in found.items() if isinstance(value, float)}


# --- padding ---------------------------------------------------------------------------------

CARELESS = {
    "loss": Method(loss=lambda s: F.cross_entropy(s.logits, s.y)),
    "penalty": Method(penalty=lambda s: s.features.square().mean()),
    "correct": Method(correct=lambda s, g: {n: w + s.logits.mean() for n, w in g.items()}),
}


@pytest.mark.parametrize(
    ("field", "sizes"), [("loss", SIZES), ("penalty", (40, 3, 7, 25)), ("correct", (9, 9, 9))]
)
def test_a_function_that_knows_nothing_of_padding_gets_none(field, sizes):
    one, other = (
        simulate(CARELESS[field], b, uneven(sizes), participation=1.0, smallest_batch=2).play(3)
        for b in BACKENDS
    )
    assert_same(one, other, rtol=1e-9, atol=1e-9)


def test_a_combination_is_padded_if_all_its_parts_say_so():
    careful = Method(penalty=lambda s: s.mean(s.features[:, 0]), padded=True)
    assert Method().padded
    assert not CARELESS["loss"].padded
    assert (Method() | careful).padded
    assert not (careful | CARELESS["penalty"]).padded


# --- what is not changed behind a function's back --------------------------------------------


@both_backends
@pytest.mark.parametrize("rounds", [2, 9])
def test_a_diverging_model_is_no_mistake_of_the_method_in_a_resumed_run(rounds, backend):
    def played(state, count):
        made = simulate(method, backend, lr=1e200, rounds=rounds)
        made.run = state or made.run
        return made.play(count)

    method = Method(penalty=lambda s: s.params["head.weight"].square().sum(), padded=True)
    assert_same(played(played(None, 1), 1), played(None, 2))


# --- state in Python -------------------------------------------------------------------------


COUNTER = {"rounds": 0}


def with_closure():
    seen = []
    return lambda cohort: by_samples(cohort) if seen.append(1) is None else None


def with_default(cohort, seen=[]):  # noqa: B006
    seen.append(1)
    return by_samples(cohort)


def with_global(cohort):
    COUNTER["rounds"] += 1
    return by_samples(cohort)


def through_another(cohort):
    return with_global(cohort)


def with_attribute(cohort):
    with_attribute.calls = getattr(with_attribute, "calls", 0) + 1
    return by_samples(cohort)


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, cohort):
        self.calls += 1
        return by_samples(cohort)

    def weigh(self, cohort):
        return self(cohort)


def with_generator():
    generator = torch.Generator()

    def weigh(cohort):
        torch.rand(1, generator=generator)
        return by_samples(cohort)

    return weigh


class Shared:
    calls = 0


def of_a_class(cohort):
    Shared.calls += 1
    return by_samples(cohort)


def of_a_module(cohort):
    torch.calls_of_a_test = getattr(torch, "calls_of_a_test", 0) + 1
    return by_samples(cohort)


def of_the_environment(cohort):
    os.environ["CALLS_OF_A_TEST"] = os.environ.get("CALLS_OF_A_TEST", "") + "1"
    return by_samples(cohort)


def with_iterator():
    numbers = (number for number in range(1000))
    return lambda cohort: by_samples(cohort) * min(next(numbers) + 1, 1)


KEEPING = {
    "closure": (with_closure(), "seen"),
    "default": (with_default, "0"),
    "global": (with_global, "COUNTER"),
    "through another function": (through_another, "COUNTER"),
    "attribute": (with_attribute, "calls"),
    "object": (Counting(), "Counting.calls"),
    "bound method": (Counting().weigh, "self.calls"),
    "generator": (with_generator(), "generator"),
    "class": (of_a_class, "Shared.calls"),
    "module": (of_a_module, "torch.calls_of_a_test"),
    "environment": (of_the_environment, "os.environ"),
    "iterator": (with_iterator(), "numbers"),
}


@pytest.mark.parametrize("kind", KEEPING)
def test_state_that_a_resumed_run_would_lose_is_found(kind, monkeypatch):
    monkeypatch.setattr(torch, "calls_of_a_test", 0, raising=False)
    monkeypatch.setenv("CALLS_OF_A_TEST", "")
    weigh, name = KEEPING[kind]
    simulation = simulate(Method(weigh=weigh))
    watch = state.Watch(simulation.engine)
    simulation.play()
    with pytest.raises(UsageError, match=rf"`{name}.*`, which `weigh` reads, changes.*`round`"):
        watch.check()


def test_a_method_may_call_the_functions_of_another_one():
    """What it holds of that method is the same whenever both are made, and so are its data."""

    def twice(mu: float) -> Method:
        other = methods("fedprox", mu=mu)
        return Method(penalty=lambda step: 2 * other.penalty(step))

    assert not state.between(twice(0.1), twice(0.1))
    assert state.between(twice(0.1), twice(0.2)) == "mu"


class OwnNetwork(nn.Module):
    """A network whose logits have a factor."""

    def __init__(self, network):
        super().__init__()
        self.body, self.head = network.body, network.head
        self.begin()

    def begin(self):
        pass

    def forward(self, x):
        features = self.body(x)
        return features, self.head(features) * self.factor(x)


class CountingCalls(OwnNetwork):
    def begin(self):
        self.calls = 0

    def factor(self, x):
        self.calls += 1
        return 1 if self.calls < 10_000 else 2


class FollowingMeans(OwnNetwork):
    def begin(self):
        self.mean = torch.zeros((), dtype=torch.float64)

    def factor(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return 1 + self.mean


class HiddenBuffer(OwnNetwork):
    def begin(self):
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def factor(self, x):
        self.calls += 1
        return 1 + 0 * self.calls


class DrawingFromNumpy(OwnNetwork):
    def factor(self, x):
        return 1 + 1e-6 * np.random.rand()


class DrawingUnseeded(OwnNetwork):
    def factor(self, x):
        return 1 + 1e-6 * np.random.default_rng().random()


class NumpyWeights(OwnNetwork):
    def begin(self):
        start = np.random.default_rng().random()
        self.scale = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def factor(self, x):
        return self.scale


class Showing(OwnNetwork):
    """What it keeps is written anew by each call."""

    def forward(self, x):
        self.last = self.body(x)
        return self.last, self.head(self.last)


class WithConstant(OwnNetwork):
    def begin(self):
        self.register_buffer("two", torch.full((), 2.0), persistent=False)

    def factor(self, x):
        return self.two


class WithDropout(OwnNetwork):
    def begin(self):
        self.drop = nn.Dropout(0.3)

    def factor(self, x):
        return self.drop(torch.ones_like(x[:1, 0, 0, :1]))


class Scaler:
    def scale(self, x):
        return 2.0


class HoldingObjects(OwnNetwork):
    """Its objects are in other places of memory in each copy."""

    def begin(self):
        self.scale, self.more = Scaler().scale, SimpleNamespace(scaler=Scaler())

    def factor(self, x):
        return self.scale(x)


class Recurrent(OwnNetwork):
    def begin(self):
        self.layer = nn.LSTM(1, 1)

    def factor(self, x):
        return 1 + self.layer(x[:, :1, 0, 0])[0]


def watched(method, backend="loop", **protocol):
    """A run of a method to its end, as a stage plays it."""
    made = simulate(method, backend, **protocol)
    made.finish()
    return made.run


KEEPS = [CountingCalls, FollowingMeans, HiddenBuffer, DrawingFromNumpy]
KEEPS += [DrawingUnseeded, NumpyWeights]


@pytest.mark.parametrize(
    ("network", "backend"), [*((one, "loop") for one in KEEPS), (FollowingMeans, "stacked")]
)
def test_a_network_keeps_and_draws_nothing_of_its_own(network, backend):
    with pytest.raises(UsageError, match=rf"test_hooks.py, line .*`{network.__name__}`"):
        watched(Method(architecture=network), backend, rounds=1)


@pytest.mark.parametrize(
    ("network", "backend"),
    [
        *((one, "loop") for one in (Showing, WithConstant, WithDropout, HoldingObjects, Recurrent)),
        (WithDropout, "stacked"),
    ],
)
def test_a_network_may_show_what_it_computes_and_draw_the_runs_numbers(network, backend):
    assert watched(Method(architecture=network), backend, rounds=2).round == 2


@both_backends
def test_a_clients_gradient_with_dropout_is_the_same_in_a_resumed_run(backend):
    def begin(client):
        found = [client.gradient(client.model, x, y)["head.weight"] for x, y in client.epoch()]
        return {"head.weight": client.model["head.weight"] - sum(found)}

    method = Method(architecture=WithDropout, begin=begin)
    whole, first = (simulate(method, backend).play(rounds) for rounds in (2, 1))
    resumed = simulate(method, backend)
    torch.manual_seed(5)
    resumed.run = first
    assert_same(resumed.play(1), whole)


def mixed(step, share, order):
    found = -step.logits.log_softmax(1)
    ours, theirs = (found.gather(1, y[:, None]).mean() for y in (step.y, step.y[order]))
    return share * ours + (1 - share) * theirs


def turned(step):
    return torch.arange(len(step.y)).flip(0)


DRAWING = {
    "numpy": Method(loss=lambda s: mixed(s, float(np.random.beta(1, 1)), turned(s))),
    "Python": Method(loss=lambda s: mixed(s, random.random(), turned(s))),
    "PyTorch": Method(loss=lambda s: mixed(s, 0.5, torch.randperm(len(s.y)))),
    "without effect": Method(weigh=lambda c: by_samples(c) if np.random.rand() < 2 else None),
    "unseeded": Method(
        correct=lambda s, g: {n: t + 1e-9 * np.random.default_rng().random() for n, t in g.items()}
    ),
    "late": Method(
        aggregate=lambda c, w: {
            n: d + (c.round > 1) * 1e-9 * np.random.default_rng().random()
            for n, d in weighted_sum(c, w).items()
        }
    ),
    "late in a step": Method(
        penalty=lambda s: (
            (s.round > 1) * 1e-9 * np.random.default_rng().random()
            + 0 * s.params["head.bias"].sum()
        )
    ),
}


@pytest.mark.parametrize(
    ("kind", "backend"), [*((kind, "loop") for kind in DRAWING), ("late in a step", "stacked")]
)
def test_random_numbers_that_are_not_the_runs_are_found(kind, backend):
    with pytest.raises(UsageError, match=r"draws random numbers|another result"):
        watched(DRAWING[kind], backend, rounds=3)


def counted_late():
    """Weights with a counter that begins in round 2."""
    seen = []
    return lambda cohort: by_samples(cohort) if cohort.round < 2 or seen.append(1) is None else None


def remembered():
    """A sum that divides by the first norm that it has met, which a cache keeps."""
    current = [1.0]

    @cache
    def first():
        return current[0]

    def aggregate(cohort, weights):
        update = weighted_sum(cohort, weights)
        current[0] = float(update["head.bias"].norm())
        return {name: one / first() for name, one in update.items()}

    return aggregate


@pytest.mark.parametrize("made", [{"weigh": counted_late()}, {"aggregate": remembered()}])
def test_state_is_found_that_begins_after_the_first_round(made):
    with pytest.raises(UsageError, match=r"resumed|another result"):
        watched(Method(**made), rounds=4)


@both_backends
@pytest.mark.parametrize("place", ["server", "params"])
def test_changes_that_pytorch_does_not_count_are_found_in_a_local_step(place, backend):
    def penalty(step):
        getattr(step, place)["head.weight"].data.neg_()
        return step.params["head.bias"].square().sum()

    with pytest.raises(UsageError, match=r"changes .*`.*head.weight'\]` .*in place"):
        simulate(Method(penalty=penalty), backend).play(1)


IDLE = {
    "detached": {"penalty": lambda s: (s.params["head.bias"].detach() + 1).square().sum()},
    "constant": {"penalty": lambda s: 0 * s.lr + 1},
    "of the server": {"penalty": lambda s: s.server["head.weight"].square().sum()},
    "times zero": {"penalty": lambda s: (0 * s.params["head.weight"]).sum() + 1},
    "loss": {"loss": lambda s: (0 * s.logits).sum() + 1},
    "gradients": {"correct": lambda s, g: {n: one + 0 for n, one in g.items()}},
}
BUSY = {
    "neutral": {"penalty": lambda s: 0.0 * s.params["head.weight"].square().sum()},
    "later": {"correct": lambda s, g: {n: one * (1 + s.round) for n, one in g.items()}},
    "pull": {"penalty": lambda s: (s.params["head.bias"] - s.server["head.bias"]).square().sum()},
}


@pytest.mark.parametrize(
    ("kind", "backend"), [*((kind, "stacked") for kind in IDLE | BUSY), ("detached", "loop")]
)
def test_a_function_without_effect_is_named_in_one_warning(kind, backend, caplog):
    made = (IDLE | BUSY)[kind]
    simulate(Method(**made), backend, rounds=3).play(3)
    said = [m for m in caplog.messages if f"`{next(iter(made))}`" in m]
    assert len(said) == (kind in IDLE)
