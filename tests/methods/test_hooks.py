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

from conftest import BACKENDS, SIZES, assert_same, differ, methods, simulate, uneven
from fedgrid.engine import backends
from fedgrid.engine.hooks import rules, state
from fedgrid.federation.federation import Pool
from fedgrid.method import Method, by_samples, relative, weighted_sum
from fedgrid.runtime.names import UsageError
from fedgrid.training.rounds import rounds

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


def change_memory(client):
    return {"h": client.memory["h"].add_(1)}


def change_dict(client):
    client.memory["h"] = client.memory["h"] + 1
    return {"h": client.memory["h"]}


RANDOM = np.random.default_rng(0)
STEP = ("loss", "penalty", "correct", "rate")  # functions of a local step


# The function, its mistake, and a part of the sentence about it.
MISTAKES = {
    "no return in loss": (Method(loss=nothing), "loss", "is a `return` missing"),
    "a loss per sample": (
        Method(loss=lambda s: F.cross_entropy(s.logits, s.y, reduction="none")),
        "loss",
        "not one number",
    ),
    "a loss in Python": (Method(loss=lambda s: 0.5), "loss", "not a tensor"),
    "a loss apart from the model": (
        Method(loss=lambda s: s.cross_entropy().detach()),
        "loss",
        "does not depend on the parameters",
    ),
    "a loss that is infinite": (
        Method(loss=lambda s: s.cross_entropy() / 0),
        "loss",
        "not finite in the first round",
    ),
    "no return in penalty": (Method(penalty=nothing), "penalty", "is a `return` missing"),
    "a penalty per sample": (Method(penalty=lambda s: s.features.sum(1)), "penalty", "step.mean"),
    "a name that the model lacks": (
        Method(penalty=lambda s: s.params["fc.weight"].sum()),
        "penalty",
        "KeyError: 'fc.weight'",
    ),
    "a penalty of two arguments": (
        Method(penalty=lambda s, mu: s.features.sum()),
        "penalty",
        "missing 1 required positional argument: 'mu'",
    ),
    "the server changed in a penalty": (
        Method(penalty=lambda s: in_place(s.server["head.bias"], s.features.sum())),
        "penalty",
        r"server\['head.bias'\]` in place",
    ),
    "torch's random numbers": (
        Method(penalty=lambda s: torch.randn(()).to(s.features)),
        "penalty",
        "cohort.noise",
    ),
    "numpy's random numbers": (
        Method(penalty=lambda s: s.features.sum() * RANDOM.random()),
        "penalty",
        "cohort.noise",
    ),
    "a counter": (Method(penalty=counted()), "penalty", "another result"),
    "a default value that is replaced": (
        Method(reweigh=lambda cohort, tau=2.0: tau),
        "reweigh",
        "number 2 replaces the default value of `tau`",
    ),
    "a mean over the padding": (
        Method(penalty=lambda s: s.features.square().mean(), padded=True),
        "penalty",
        "counts the padding",
    ),
    "no return in correct": (Method(correct=nothing), "correct", "is a `return` missing"),
    "some of the gradients": (
        Method(correct=lambda s, g: head(g)),
        "correct",
        "lacks `body.0",
    ),
    "gradients changed": (
        Method(correct=lambda s, g: in_place(g["head.bias"], g)),
        "correct",
        "in place",
    ),
    "no return in remember": (
        Method(memory=zero, remember=nothing),
        "remember",
        "is a `return` missing",
    ),
    "a number in a memory": (
        Method(memory=zero, remember=lambda c: {"h": 1.0}),
        "remember",
        "the float 1.0 as `h`, not a dict of tensors",
    ),
    "a memory changed": (Method(memory=zero, remember=change_memory), "remember", "in place"),
    "a memory exchanged": (Method(memory=zero, remember=change_dict), "remember", "in place"),
    "a memory without a beginning": (
        Method(remember=lambda c: {"h": c.counts}),
        "remember",
        "initial memory",
    ),
    "a memory of another form": (
        Method(memory=zero, remember=lambda c: {"h": c.counts}),
        "remember",
        "where the initial memory",
    ),
    "a name of the engine": (
        Method(memory=lambda start, k: {"private": start.server}),
        "memory",
        "a name that the engine uses",
    ),
    "a number in the initial memory": (
        Method(memory=lambda start, k: {"h": 0}),
        "memory",
        "the int 0 as `h`",
    ),
    "a list in `shared`": (Method(shared=lambda start: [1]), "shared", "not a dict"),
    "a mean of nothing": (
        Method(measure=lambda c: {"mean": c.counts[:0].double().mean()}),
        "measure",
        "not finite",
    ),
    "a number that is measured": (
        Method(measure=lambda c: {"m": float(c.lr)}),
        "measure",
        "the float 0.05 as `m`",
    ),
    "a dict that is sent": (
        Method(send=lambda c: {"a": c.sizes}),
        "send",
        "not a list with a dict",
    ),
    "a client forgotten": (
        Method(send=lambda c: [{"a": n} for n in c.sizes[1:]]),
        "send",
        "of length 3, not a list with a dict for each of the 4 clients",
    ),
    "weights of the population": (
        Method(weigh=lambda c: relative(torch.ones(c.population).double())),
        "weigh",
        r"shape \(6,\), not \(4,\).*not of all 6",
    ),
    "weights that are sizes": (Method(weigh=lambda c: c.sizes), "weigh", "the sum 1[0-9], not 1"),
    "weights in a list": (Method(weigh=lambda c: [0.25] * 4), "weigh", "the list"),
    "weights of nothing": (Method(weigh=lambda c: c.sizes / 0), "weigh", "not finite"),
    "deltas before they are there": (
        Method(weigh=lambda c: relative(c.deltas["head.bias"].norm(dim=1))),
        "weigh",
        "set weigh_after_training=True",
    ),
    "deltas that are added up": (
        Method(share=lambda c, u: {"h": c.deltas["head.bias"][0]}, shared=zero, uses_deltas=False),
        "share",
        "added up, because the method says uses_deltas=False",
    ),
    "memories before they are there": (
        Method(weigh=lambda c: torch.stack([m["h"] for m in c.memory]), memory=zero),
        "weigh",
        "`cohort.memory` is there after local training only",
    ),
    "new weights of another sum": (Method(reweigh=lambda c, w: 2 * w), "reweigh", "the sum 2"),
    "one factor": (Method(scale=lambda c, w: w.sum()), "scale", r"shape \(\), not \(4,\)"),
    "weights changed": (Method(reweigh=lambda c, w: in_place(w, w) / 5), "reweigh", "in place"),
    "some of the deltas": (
        Method(aggregate=lambda c, w: head(weighted_sum(c, w))),
        "aggregate",
        r"lacks `body.0.bias`, `body.0.weight`, .* and 4 more, of the entries of the deltas",
    ),
    "all clients' deltas": (
        Method(aggregate=lambda c, w: c.deltas),
        "aggregate",
        r"whose shape in the deltas is",
    ),
    "deltas changed": (
        Method(aggregate=lambda c, w: in_place(c.deltas["head.bias"], weighted_sum(c, w))),
        "aggregate",
        "in place",
    ),
    "some of the update": (Method(server=lambda u, s: head(u)), "server", "lacks `body.0"),
    "no return in server": (Method(server=nothing), "server", "is a `return` missing"),
    "the update changed": (
        Method(server=lambda u, s: in_place(u["head.bias"], u)),
        "server",
        "in place",
    ),
    "no return in share": (Method(share=nothing), "share", "is a `return` missing"),
    "another shape in share": (
        Method(shared=zero, share=lambda c, u: {"h": c.sizes}),
        "share",
        "where the earlier one",
    ),
    "nothing observed": (Method(observe=nothing), "observe", "is a `return` missing"),
    "NaN observed": (
        Method(observe=lambda end: {"m": end.weights.sum() * torch.nan}),
        "observe",
        "not finite",
    ),
    "a vector observed": (
        Method(observe=lambda end: {"m": end.weights}),
        "observe",
        "as `m`, not a tensor with one number",
    ),
    "a field that a step lacks": (
        Method(penalty=lambda s: s.weight * s.features.sum()),
        "penalty",
        "'weight': its fields are counts, cross_entropy, .*memory",
    ),
    "a sum over no entries": (
        Method(penalty=lambda s: 0.5 * sum(s.params[n].sum() for n in s.memory)),
        "penalty",
        "0.0, not a tensor .* all parameters",
    ),
    "a field that is like another": (
        Method(weigh=lambda c: relative(c.size)),
        "weigh",
        "'size': did you mean `sizes`",
    ),
    "a field of another record": (
        Method(measure=lambda c: {"m": c.counts / c.step}),
        "measure",
        "'step': did you mean `steps`",
    ),
    "an entry that is like another": (
        Method(penalty=lambda s: s.params["head.weights"].sum()),
        "penalty",
        "'head.weights': did you mean `head.weight`",
    ),
    "an entry of another field": (
        Method(memory=zero, penalty=lambda s: s.shared["h"]),
        "penalty",
        "`h` is in `memory`",
    ),
    "an entry of some clients only": (
        Method(
            measure=lambda c: {"m": c.counts.sum()} if c.counts.sum() % 2 else {},
            weigh=lambda c: relative(torch.stack([one["m"] for one in c.measured])),
            weigh_after_training=True,
        ),
        "weigh",
        "`m` is in `measured` of some clients only",
    ),
    "no network": (Method(architecture=nothing), "architecture", "not a network"),
    "whole numbers in an aggregate": (
        Method(aggregate=lambda c, w: {n: d[0].long() for n, d in c.deltas.items()}),
        "aggregate",
        "`body.0.bias` as int64, and in the deltas it is float64",
    ),
    "another type in begin": (
        Method(begin=lambda c: {"head.bias": c.model["head.bias"].float()}),
        "begin",
        "`head.bias` as float32",
    ),
    "another type in correct": (
        Method(correct=lambda s, g: {n: one.half() for n, one in g.items()}),
        "correct",
        "as float16",
    ),
    "a memory of another type": (
        Method(memory=zero, remember=lambda c: {"h": c.counts.sum()}),
        "remember",
        "`h` as int64, and in the initial memory .* it is float64",
    ),
    "a new entry in share": (
        Method(share=lambda c, u: {f"round{c.round}": u["head.bias"]}, uses_deltas=False),
        "share",
        "`round0`, which the initial memory .* lacks",
    ),
    "a negative weight": (
        Method(weigh=lambda c: relative(c.sizes - 0.9 * c.sizes.mean())),
        "weigh",
        "the weight -.* which is negative",
    ),
    "a negative factor": (
        Method(rate=lambda s: {"head.bias": -torch.ones_like(s.lr)}),
        "rate",
        "negative factor",
    ),
    "a network without weights": (
        Method(measure=lambda c: {"m": c.total(lambda x, y: c.architecture(x)[1].sum())}),
        "measure",
        "The network has no weights of its own: call it by `torch.func.functional_call",
    ),
    "a network left in training mode": (
        Method(measure=lambda c: {"m": c.counts + 0 * c.architecture.train().width}),
        "measure",
        "changes its argument `architecture` in place",
    ),
    "changes of clients that send none": (
        Method(private=("body.", "head."), weigh=by_length, weigh_after_training=True),
        "weigh",
        "keep all parameters for themselves, so `deltas` has none",
    ),
    "a gradient of the loss in the loss": (
        Method(penalty=lambda s: s.gradient(s.params)["head.bias"].square().sum()),
        "penalty",
        "neither of them can call it: call it in `correct`",
    ),
    "deltas changed behind PyTorch's back": (
        Method(aggregate=lambda c, w: by_data(c.deltas["head.bias"], weighted_sum(c, w))),
        "aggregate",
        r"changes its argument `deltas\['head.bias'\]` in place",
    ),
}


OF_A_STEP = [name for name, (_, field, _) in MISTAKES.items() if field in STEP]
STACKED = [(name, "stacked") for name in OF_A_STEP]


@pytest.mark.parametrize(("mistake", "backend"), [*((name, "loop") for name in MISTAKES), *STACKED])
def test_a_mistake_is_told_with_function_file_and_line(mistake, backend):
    """In the stack, mistakes of what it maps over clients: the other functions are called alike."""
    method, field, sentence = MISTAKES[mistake]
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


def test_an_observed_value_has_a_name_of_its_own():
    method = Method(observe=lambda end: {"train_loss": end.weights.sum()})
    with pytest.raises(UsageError, match="`train_loss`, which is the name of another column"):
        simulate(method).play(1)


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


@both_backends
@pytest.mark.parametrize("field", ["frozen", "private"])
def test_a_beginning_that_no_name_has_is_refused(field, backend):
    with pytest.raises(UsageError, match=rf'{field}=\("fc.",\) fits no entry .*head\.') as told:
        simulate(Method(**{field: ("head.", "fc.")}), backend)
    assert "body.0." in str(told.value)


@pytest.mark.parametrize("field", ["frozen", "private"])
@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda network: network.norms, "fails with AttributeError: .* 'norms'"),
        (lambda network: 5, "gives 5, not names"),
        (lambda network: "head.weight", "gives 'head.weight', not names"),
        (lambda network: [], "fits no entry"),
        (lambda network: ["head.weight", "hed.bias"], "gives `hed.bias`, and no entry .* head\\."),
    ],
)
def test_a_function_that_names_no_entries_is_refused(field, function, sentence):
    with pytest.raises(UsageError, match=sentence) as told:
        simulate(Method(**{field: (function,)}))
    assert "fits no entry" in sentence or "test_hooks.py, line" in str(told.value)


def test_a_method_that_freezes_everything_is_refused():
    with pytest.raises(UsageError, match="freezes all parameters"):
        simulate(Method(frozen=("body.", "head.")))


BLANK = (("",), (" ",), ("\t",), (None,), (3,), (b"head.",), (("head.",),))


@pytest.mark.parametrize("field", ["private", "frozen"])
@pytest.mark.parametrize("part", ["hea", "head.wei", "bod", "body.1.w"])
def test_a_beginning_that_ends_within_a_name_is_refused(field, part):
    with pytest.raises(UsageError, match=r"ends within the name"):
        simulate(Method(**{field: (part,)}))


@pytest.mark.parametrize("part", ["head", "head.", "head.weight", "body.1.weight"])
def test_a_beginning_that_is_whole_is_taken(part):
    simulate(Method(private=(part,)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"frozen": ("head")}, "not a tuple of texts"),  # noqa: RUF100, UP034
        *(({"private": parts}, "each part of it must be a text") for parts in BLANK),
        *(({"frozen": ("head.", *parts)}, "each part of it must be a text") for parts in BLANK),
        ({"penalty": 0.1}, "`penalty` is 0.1, not a function"),
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


@pytest.mark.parametrize("number", [1, 0.5, torch.ones(()), torch.ones(1), torch.nan])
def test_an_evaluation_may_give_one_number(number):
    simulation = simulate(Method(evaluate_server=lambda server: {"m": number}))
    assert "m" in simulation.engine.evaluation.evaluate_server(simulation.run)


@pytest.mark.usefixtures("recorded")
def test_a_function_that_reads_a_value_is_refused_in_the_stack_with_what_to_do():
    def penalty(step):
        return step.params["head.bias"].sum() if step.round > 0 else step.cross_entropy()

    method = Method(penalty=penalty, padded=True)
    with pytest.raises(UsageError, match=r"`penalty` fails with .*torch.where.*backend loop"):
        simulate(method, "stacked").play()
    simulate(method, "loop").play(2)


def reading_penalty(step):
    return step.params["head.bias"].sum() if step.round > 0 else step.cross_entropy()


def reading_correct(step, gradients):
    return {name: g * min(float(g.norm()), 1.0) for name, g in gradients.items()}


READING = {
    "penalty": Method(penalty=reading_penalty, padded=True),
    "correct": Method(correct=reading_correct),
}


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


@pytest.mark.parametrize("field", CARELESS)
@pytest.mark.parametrize("sizes", [SIZES, (40, 3, 7, 25), (9, 9, 9)])
def test_a_function_that_knows_nothing_of_padding_gets_none(field, sizes):
    one, other = (
        simulate(CARELESS[field], b, uneven(sizes), participation=1.0, smallest_batch=2).play(3)
        for b in BACKENDS
    )
    assert_same(one, other, rtol=1e-9, atol=1e-9)


def test_the_loss_of_pytorch_is_fedavgs():
    runs = [simulate(method, "stacked").play(3) for method in (CARELESS["loss"], Method())]
    assert_same(*runs, rtol=1e-9, atol=1e-9)


def test_a_combination_is_padded_if_all_its_parts_say_so():
    careful = Method(penalty=lambda s: s.mean(s.features[:, 0]), padded=True)
    assert Method().padded
    assert not CARELESS["loss"].padded
    assert (Method() | careful).padded
    assert not (careful | CARELESS["penalty"]).padded


# --- what is not changed behind a function's back --------------------------------------------


@both_backends
def test_what_is_measured_is_each_clients_own(backend):
    told = []
    method = Method(
        measure=lambda client: {"m": client.model},
        weigh=lambda c: told.append(c.measured) or by_samples(c),
        weigh_after_training=True,
    )
    simulate(method, backend).play()
    first, second = (kept["m"]["head.weight"] for kept in told[0][-2:])
    assert not torch.equal(first, second)


def test_weights_of_any_sum_need_the_methods_word():
    doubled = Method(reweigh=lambda c, w: 2 * w, any_sum=True)
    assert differ(simulate(doubled).play(), simulate(Method()).play())


def test_a_diverging_model_is_no_mistake_of_the_method():
    method = Method(
        weigh=lambda c: relative(c.deltas["head.bias"].square().sum(1)),
        observe=lambda end: {"norm": end.model["head.weight"].norm()},
        weigh_after_training=True,
    )
    run = simulate(method, lr=1e200).play(3)
    assert not all(w.isfinite().all() for w in run.server.values())


@both_backends
@pytest.mark.parametrize("rounds", [2, 3, 9])
def test_a_diverging_model_is_no_mistake_of_the_method_in_a_resumed_run(rounds, backend):
    def played(state, count):
        made = simulate(method, backend, lr=1e200, rounds=rounds)
        made.run = state or made.run
        return made.play(count)

    method = Method(penalty=lambda s: s.params["head.weight"].square().sum(), padded=True)
    assert_same(played(played(None, 1), 1), played(None, 2))


@pytest.mark.usefixtures("recorded")
@both_backends
def test_the_rounds_number_reaches_every_function(backend):
    seen = []
    method = Method(
        penalty=lambda s: s.round * s.params["head.bias"].sum(),
        padded=True,
        measure=lambda c: seen.append(c.round) or {"round": c.counts.new_tensor(c.round)},
    )
    run = simulate(method, backend).play(2)
    assert {*seen} == {0, 1}
    assert differ(run, simulate(Method(), backend).play(2))
    # In round 0 the factor is 0, in round 1 it is 1: a constant of a recorded step would stay 0.
    assert_same(simulate(method, "loop").play(3), run_of(method, 3), rtol=1e-9, atol=1e-9)


def run_of(method, rounds):
    return simulate(method, "stacked").play(rounds)


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


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedcurv", "moon", "fedau", "contribution"])
def test_a_method_without_state_is_not_refused(name):
    simulation = simulate(methods(name))
    watch = state.Watch(simulation.engine)
    simulation.play()
    watch.check()


def test_methods_with_other_data_in_each_call_differ():
    made = [Method(weigh=with_closure(), penalty=lambda s, a=a: a) for a in (1, 2)]
    assert state.between(*made)
    assert not state.between(made[0], made[0])


def test_whole_numbers_are_told_by_their_type():
    cohort = SimpleNamespace(clients=[0, 1], population=6)
    with pytest.raises(rules.MistakeError, match=r"of int64, not .* floating"):
        rules.weights(torch.ones(2, dtype=int), cohort)


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


class KeepingTheFirst(OwnNetwork):
    def begin(self):
        self.first = []

    def factor(self, x):
        self.first = self.first or [x.shape[-1] + len(x)]
        return self.first[0]


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


def watched(method, backend="loop", build=None, **protocol):
    """A run of a method to its end, as a stage plays it."""
    made = simulate(method, backend, **({"build": build} if build else {}), **protocol)
    *_, last = rounds(made.engine, made.run, [])
    return last


@both_backends
@pytest.mark.parametrize(
    "network",
    [CountingCalls, FollowingMeans, KeepingTheFirst, HiddenBuffer, DrawingFromNumpy,
     DrawingUnseeded, NumpyWeights],
)  # fmt: skip
def test_a_network_keeps_and_draws_nothing_of_its_own(network, backend):
    with pytest.raises(UsageError, match=rf"test_hooks.py, line .*`{network.__name__}`"):
        watched(Method(architecture=network), backend, rounds=1)


@both_backends
@pytest.mark.parametrize("network", [Showing, WithConstant, WithDropout, HoldingObjects, Recurrent])
def test_a_network_may_show_what_it_computes_and_draw_the_runs_numbers(network, backend):
    assert watched(Method(architecture=network), backend, rounds=2).round == 2


def far(step, gradients):
    """The gradient beside the model, as SAM has it; a network with dropout draws numbers."""
    return step.gradient({n: step.params[n] + 0.1 * one for n, one in gradients.items()})


def test_a_gradient_elsewhere_may_be_one_of_a_network_with_dropout():
    assert watched(Method(architecture=WithDropout, correct=far), rounds=2).round == 2


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
    "system": Method(rate=lambda s: {"head.bias": s.lr * int.from_bytes(os.urandom(7))}),
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


@both_backends
@pytest.mark.parametrize("kind", DRAWING)
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


def test_what_is_computed_from_arguments_alone_may_be_cached():
    power = cache(lambda number: 0.9**number)

    def aggregate(cohort, weights):
        return {n: d * power(cohort.round) for n, d in weighted_sum(cohort, weights).items()}

    assert watched(Method(aggregate=aggregate), rounds=3).round == 3


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


@both_backends
@pytest.mark.parametrize("kind", [*IDLE, *BUSY])
def test_a_function_without_effect_is_named_in_one_warning(kind, backend, caplog):
    made = (IDLE | BUSY)[kind]
    simulate(Method(**made), backend, rounds=3).play(3)
    said = [m for m in caplog.messages if f"`{next(iter(made))}`" in m]
    assert len(said) == (kind in IDLE)
