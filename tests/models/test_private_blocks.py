"""Blocks that are shared, private or both: `models/_branches.py` and the methods made of them.

The network of the tests worked out by hand has one number per layer. An input x goes to the lower
block, h = w x, and then to the head with two classes. Weights of the head are (v, -v) at most, so
that with the logits (z, -z) the probability of class 0 is 1 / (1 + exp(-2 z)).
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from conftest import (
    BACKENDS,
    CLASSES,
    HAND,
    SIZES,
    assert_same,
    differ,
    federated,
    methods,
    simulate,
    tiny,
    uneven,
)
from fedgrid.federation.federation import pool
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.models._branches import Branches, Fusion
from fedgrid.runtime.names import UsageError
from fedgrid.study import checks
from fedgrid.study.checks import check_blocks, check_case, ignores_case
from fedgrid.training.build import build_method

METHODS = ("ps", "sp", "sps", "ssp", "autocs", "autosa")
LOWER = "body.lower.weight"


def line(seed: int = 0) -> Classifier:
    """x -> h = 1 x -> two classes with weights 0; a copy has the lower weight 3."""
    model = number(1.0)
    model.draw = lambda: number(3.0)
    return model


def number(weight: float) -> Classifier:
    body = nn.Sequential()
    body.add_module("flat", nn.Flatten())
    body.add_module("lower", nn.Linear(1, 1, bias=False))
    model = Classifier(body, 1, 2).double()
    model.blocks, model.encoder = ("flat", "head"), 1
    nn.init.constant_(body.lower.weight, weight)
    for parameter in model.head.parameters():
        nn.init.zeros_(parameter)
    return model


def one_client(pixel: int = 2):
    """One client with one sample, its pixel as it is, of class 0."""
    image = torch.tensor([[[[pixel]]]], dtype=torch.uint8)
    return federated([(image, torch.zeros(1, dtype=int))], 2, scale=255)


def by_hand(method: Method, backend: str, steps: int = 2, momentum: float = 0.0):
    """The run after one round of `steps` steps with the learning rate 0.1 on `one_client`."""
    fields = HAND | {"local": steps, "clients": 1, "batch": 1, "smallest_batch": 1}
    fields["momentum"] = momentum
    return simulate(method, backend, one_client(), line, **fields).play()


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(found, expected: float) -> None:
    torch.testing.assert_close(found, torch.full_like(found, expected), rtol=1e-12, atol=1e-12)


# --- worked out by hand ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_sps_worked_out_by_hand(backend):
    # h = (1 2 + 3 2) / 2 = 4. With a head of zeros p = 1/2, so the first step moves the head only:
    # its weight of class 0 by 0.1 (1/2) 4 = 0.2, its bias by 0.05. Then z = 0.2 4 + 0.05 = 0.85 and
    # q = 1 - p = 1 / (1 + exp(1.7)). The second step moves them by 0.1 q 4 and 0.1 q. Of h, the
    # derivative of the loss is -2 0.2 q, and each lower weight gets half of it, times x = 2.
    run = by_hand(methods("sps"), backend)
    q = 1 / (1 + math.exp(1.7))
    close(run.server["head.weight"][0], 0.2 + 0.4 * q)
    close(run.server["head.bias"][0], 0.05 + 0.1 * q)
    close(run.server[LOWER], 1 + 0.1 * 0.4 * q)
    close(run.memory[0]["private"][f"private.{LOWER}"], 3 + 0.1 * 0.4 * q)
    close(run.server[f"private.{LOWER}"], 3)  # the server's entry is the initial one


@pytest.mark.parametrize("backend", BACKENDS)
def test_ssp_worked_out_by_hand(backend):
    # h = 2. Both heads start with zeros, so they move alike, and the lower weight gets twice the
    # derivative of one loss. First step: weights 0.1 (1/2) 2 = 0.1, bias 0.05; then z = 0.25 and
    # q = 1 / (1 + exp(0.5)). Of h, the derivative of one loss is -2 0.1 q.
    run = by_hand(methods("ssp"), backend)
    q = 1 / (1 + math.exp(0.5))
    own = run.memory[0]["private"]
    for weight, bias in (
        (run.server["head.weight"], run.server["head.bias"]),
        (own["private.head.weight"], own["private.head.bias"]),
    ):
        close(weight[0], 0.1 + 0.2 * q)
        close(bias[0], 0.05 + 0.1 * q)
    close(run.server[LOWER], 1 + 0.1 * 2 * (0.2 * q) * 2)
    assert f"private.{LOWER}" not in own


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_autocs_worked_out_by_hand(backend, momentum):
    # All weights are 1/2, so both features are (2 + 6) / 2 = 4, and both outputs have the factor
    # 1/2. The first step moves both heads: weights by 0.1 (1/2) (1/2) 4 = 0.1, bias by 0.025.
    # The second step is that of the shared branch alone, h = 2: z = 0.1 2 + 0.025 = 0.225,
    # q = 1 / (1 + exp(0.45)), and moves its head by 0.1 q 2 and 0.1 q, its lower weight by
    # 0.1 (2 0.1 q) 2. Momentum adds a part of the first step to its head. Nothing else moves.
    run = by_hand(methods("autocs"), backend, steps=1, momentum=momentum)
    q, own = 1 / (1 + math.exp(0.45)), run.memory[0]["private"]
    close(run.server["head.weight"][0], 0.1 + 0.2 * q + momentum * 0.1)
    close(run.server["head.bias"][0], 0.025 + 0.1 * q + momentum * 0.025)
    close(run.server[LOWER], 1 + 0.04 * q)
    close(own["private.head.weight"][0], 0.1)
    close(own["private.head.bias"][0], 0.025)
    close(own[f"private.{LOWER}"], 3)
    close(run.server["alpha"], 0.5)
    without = by_hand(methods("autocs", shared_step=False), backend, steps=1)
    close(without.server["head.weight"][0], 0.1)
    close(without.server[LOWER], 1)


def crossed(**options) -> Fusion:
    """h_s = 2 and h_p = 6; the shared head is (1, 0) and the private one (0, 1), without bias."""
    model = Fusion(line(), matrix=True, temperature=2.0, **options).double()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.private.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
        model.alpha.copy_(t([2 * math.log(3), 0.0], [0.0, 0.0]))
        beta = t(2 * math.log(3), 0.0)
        model.beta.copy_(torch.stack([beta, beta.flip(0)]) if options else beta)
    return model


X = torch.full((1, 1, 1, 1), 2.0, dtype=torch.float64)


def test_autocs_mixes_as_equations_7_and_11_say():
    # softmax(2 log 3 / 2, 0) = (3/4, 1/4): the shared classifier gets 3/4 2 + 1/4 6 = 3, the
    # private one 4, and the outputs (3, 0) and (0, 4) are mixed to 3/4 (3, 0) + 1/4 (0, 4).
    model = crossed()
    features, logits = model(X)
    close(features, 3)
    torch.testing.assert_close(logits, torch.tensor([[2.25, 1.0]]).double())
    # With p_1 = 1 / (1 + exp(1.25)), the derivative by alpha_0_0 is -p_1 3/4 (3/4 1/4 / 2) (2 - 6).
    loss = nn.functional.cross_entropy(logits, torch.tensor([0]))
    (by_alpha,) = torch.autograd.grad(loss, [model.alpha])
    p = 1 / (1 + math.exp(1.25))
    close(by_alpha[0, 0], p * 0.75 * 0.09375 * 4)
    close(by_alpha[0, 1], -p * 0.75 * 0.09375 * 4)


def test_the_codes_form_has_two_mixed_outputs():
    # 3/4 (3, 0) + 1/4 (0, 4), and with beta's second row 1/4 (3, 0) + 3/4 (0, 4).
    model = crossed(two_outputs=True)
    both = torch.tensor([[[2.25, 1.0], [0.75, 3.0]]]).double()
    torch.testing.assert_close(model(X)[1], both)
    torch.testing.assert_close(model.eval()(X)[1].exp(), both.softmax(2).mean(1))


def test_gumbel_noise_selects_one_branch_with_the_probabilities_of_the_softmax():
    model = Fusion(line(), False, 1.0, noise=True, hard=True).double()
    with torch.no_grad():
        model.alpha.copy_(torch.tensor([math.log(3), 0.0]))
    found = [model.weights(model.alpha, X) for _ in range(2000)]
    assert {tuple(weights.tolist()) for weights in found} == {(1.0, 0.0), (0.0, 1.0)}
    assert abs(sum(weights[0].item() for weights in found) / 2000 - 0.75) < 0.05  # 5 errors
    (by_alpha,) = torch.autograd.grad(found[0][0], [model.alpha])  # that of the softmax
    assert 0 < by_alpha[0] <= 0.25
    model.eval()  # the code draws noise there, too: for each batch
    first = torch.stack([model.weights(model.alpha, X * n)[0] for n in range(2000)])
    assert {*first.tolist()} == {0, 1}
    assert abs(first.mean() - 0.75) < 0.05


def test_noise_in_evaluation_depends_on_the_batch_alone():
    """No other random number changes, and a second evaluation is the same."""
    model = Fusion(line(), False, 1.0, noise=True, hard=True).double().eval()
    batches = [X * n for n in range(1, 9)]
    torch.manual_seed(5)
    first = [model(x)[1] for x in batches]
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(5))
    assert all(map(torch.equal, first, [model(x)[1] for x in batches]))


@pytest.mark.parametrize(("hard", "classes"), [(True, {0, 1}), (False, {0})])
def test_the_code_predicts_with_one_branch_or_the_other_and_the_text_with_both(hard, classes):
    """The shared classifier says class 0, and louder than the private one says class 1."""
    model = Fusion(line(), False, 1.0, noise=True, hard=hard).double().eval()
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[2.0], [0.0]]))
        model.private.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
    said = [model(X * (1 + n / 100))[1].argmax().item() for n in range(60)]
    assert {*said} == classes
    assert hard or model.weights(model.alpha, X).tolist() == [0.5, 0.5]  # without noise


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_evaluation_of_noisy_clients_does_not_change_their_training(backend):
    protocol = {"client_test": 0.2, "evaluate_clients": "cohort", "rounds": 3}
    data = uneven()
    tests = pool(data.images, data.labels, [np.arange(k, k + 3) for k in range(len(SIZES))])
    runs = []
    for every in (1, 3):
        made = simulate(methods("autohs", form="code"), backend, replace(data, client_tests=tests),
                        **protocol, evaluate_every=every)  # fmt: skip
        made.finish()
        runs.append(replace(made.run, logged={}))
    assert_same(*runs)


@pytest.mark.parametrize("product", [False, True])
def test_two_heads_predict_together(product):
    model = Branches(line(), "ABb", product=product).double().eval()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([math.log(3), 0.0]))  # 3/4, 1/4
        model.private.head.bias.copy_(torch.tensor([0.0, math.log(4)]))  # 1/5, 4/5
    said = model(X)[1].softmax(1)
    expected = [3 / 7, 4 / 7] if product else [19 / 40, 21 / 40]
    torch.testing.assert_close(said, torch.tensor([expected]).double())


# --- what is shared and what is private ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "split", "shared", "private"),
    [
        ("ps", 1, {"5", "head"}, {"0"}),
        ("sp", 2, {"0", "5"}, {"head"}),
        ("sps", 2, {"0", "5", "head"}, {"0", "5"}),
        ("ssp", 0, {"0", "5", "head"}, {"0", "5", "head"}),
        ("ssp", None, {"0", "5", "head"}, {"5", "head"}),
        ("autocs", None, {"0", "5", "head"}, {"0", "5", "head"}),
    ],
)
def test_which_blocks_are_shared_and_which_private(name, split, shared, private):
    keywords = {} if split is None else {"split": split}
    model = methods(name, **keywords).architecture(tiny(0))
    names = [n for n, _ in model.named_parameters() if n not in ("alpha", "beta")]
    layers = {"0", "5", "head"}
    assert {layer_of(n) for n in names if not n.startswith("private.")} & layers == shared
    assert {layer_of(n) for n in names if n.startswith("private.")} & layers == private


def layer_of(name: str) -> str:
    return name.removeprefix("private.").removeprefix("body.").split(".")[0]


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "loop") for name in METHODS), ("sps", "stacked")]
)
def test_no_private_entry_reaches_the_server_or_another_client(name, backend):
    """Clients whose private entries are NaN leave everything finite that is not their own."""
    made = simulate(methods(name), backend, participation=1.0)
    run = made.play()
    first = made.engine.start(7)
    private = [n for n in run.server if n.startswith("private.")]
    assert private
    for entry in private:
        torch.testing.assert_close(run.server[entry], first.server[entry], rtol=0, atol=0)
    owners = [k for k, memory in run.memory.items() if memory["private"]]
    assert len(owners) > 3
    kept = run.memory[2]["private"]
    run.memory[2]["private"] = {n: torch.full_like(w, math.nan) for n, w in kept.items()}
    later = made.engine.round(run)
    others = [k for k in owners if k != 2]
    assert all(w.isfinite().all() for k in others for w in later.memory[k]["private"].values())
    assert all(later.server[entry].isfinite().all() for entry in private)
    assert all(w.isnan().any() for w in later.memory[2]["private"].values())


def test_private_entries_persist_at_their_client_and_start_the_same():
    made = simulate(methods("sp"), participation=1 / 3)
    initial, other = (made.engine.population.memory(made.run, k)["private"] for k in (0, 4))
    torch.testing.assert_close(other, initial, rtol=0, atol=0)
    start = made.engine.population.start.server
    torch.testing.assert_close(initial, {n: start[n] for n in initial}, rtol=0, atol=0)
    before: dict = {}
    for _ in range(6):
        run = made.play()
        took_part = {*made.engine.plan(replace(run, round=run.round - 1)).clients.tolist()}
        for client, memory in run.memory.items():
            if client in before and client not in took_part:
                torch.testing.assert_close(memory["private"], before[client], rtol=0, atol=0)
        before = {k: memory["private"] for k, memory in run.memory.items()}
        for never in {*range(len(SIZES))} - before.keys():
            own = made.engine.population.memory(run, never)["private"]
            torch.testing.assert_close(own, initial, rtol=0, atol=0)
    assert len(before) > 3


def test_a_private_last_block_is_fedper():
    ours = simulate(methods("sp", split=2)).play(3)
    fedper = simulate(methods("fedper")).play(3)
    body = {n: w for n, w in fedper.server.items() if n.startswith("body.")}
    torch.testing.assert_close({n: ours.server[n] for n in body}, body, rtol=1e-12, atol=1e-14)
    for client, memory in fedper.memory.items():
        own = {f"private.{n}": w for n, w in memory["private"].items()}
        torch.testing.assert_close(ours.memory[client]["private"], own, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["ps", "sps"])
def test_nothing_below_the_split_is_fedavg(name):
    assert_same(simulate(methods(name, split=0)).play(3), simulate(Method()).play(3))
    assert not methods(name, split=0).private


# --- the server's model ----------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_server_is_complete_where_all_blocks_are_shared(name):
    engine = simulate(methods(name)).engine
    assert engine.architecture.complete_server == (name not in ("ps", "sp"))


def test_the_servers_model_is_the_plain_model_of_the_shared_entries():
    made = simulate(methods("autocs"))
    run = made.play(2)
    plain = tiny(0).eval()
    x = made.engine.samples.normalise(made.engine.federation.images)
    expected = functional_call(plain, {n: run.server[n] for n in plain.state_dict()}, (x,))
    found = made.engine.architecture.forward_server(run.server, x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    own = made.engine.architecture.forward(run.server, x)
    assert not torch.allclose(own[1], expected[1])


def test_coefficients_are_recorded_at_every_evaluation():
    made = simulate(methods("autocs", form="code"))
    names = [f"{c}_{i}_{j}" for c in ("alpha", "beta") for i in (0, 1) for j in (0, 1)]
    first = made.engine.evaluation.evaluate_server(made.run)
    assert first == dict.fromkeys(names, 0.5)
    made.play(2)
    later = made.engine.evaluation.evaluate_server(made.run)
    assert later["alpha_0_1"] == made.run.server["alpha"][0, 1].item() != 0.5
    pair = simulate(methods("autosa"))
    found = pair.engine.evaluation.evaluate_server(pair.run)
    assert [*found] == ["alpha_0", "alpha_1", "beta_0", "beta_1"]


def test_a_private_copy_has_initial_weights_of_its_own():
    first, again = (simulate(methods("ssp", split=0)).run.server for _ in range(2))
    for name in ("body.0.weight", "body.5.weight", "head.weight"):
        assert not torch.allclose(first[name], first[f"private.{name}"])
        torch.testing.assert_close(first[f"private.{name}"], again[f"private.{name}"])
    torch.testing.assert_close(
        first["body.0.weight"], simulate(Method()).run.server["body.0.weight"]
    )


# --- the placebo -----------------------------------------------------------------------------


def test_a_client_that_forgets_starts_anew_at_every_participation():
    made = simulate(methods("sp", forgets=True), participation=1.0, lr=1e-300)
    seen = []
    for _ in range(3):
        run = made.play()
        seen += [memory["private"]["private.head.weight"] for memory in run.memory.values()]
    assert len({tensor.sum().item() for tensor in seen}) == len(seen) > 9
    spread = torch.cat([tensor.flatten() for tensor in seen]).std()
    assert 0.1 < spread < 0.6  # drawn as a head is, not trained: uniform within 1 / sqrt(4)


def test_a_resumed_run_forgets_alike():
    runs = [simulate(methods("sps", forgets=True)) for _ in range(2)]
    whole = runs[0].play(4)
    runs[1].run = runs[1].engine.start(7)
    runs[1].play(2)
    assert_same(runs[1].play(2), whole)
    assert differ(whole, simulate(methods("sps")).play(4))


def test_a_client_that_resets_starts_with_the_first_private_weights_at_every_participation():
    """One round from the start is a round of the plain way; later ones forget what was learnt."""
    resets, plain = methods("sps") | Method(resets=True), methods("sps")
    made = simulate(resets, participation=1.0)
    first = made.engine.start(7)
    assert_same(made.play(), simulate(plain, participation=1.0).play())
    second = made.engine.round(made.run)
    bare = made.engine.round(replace(made.run, memory={}))
    assert differ(made.run, first)
    assert made.run.memory
    assert_same(second, bare)
    assert differ(second, simulate(plain, participation=1.0).play(2))


@pytest.mark.parametrize("method", [{"resets": {}}, {"ps": {"split": 0}, "resets": {}}])
def test_a_placebo_for_private_entries_needs_some(method):
    run = {"protocol": {"client_test": 0.2}, "method": method}
    with pytest.raises(UsageError, match=r"`.*resets` takes away .* and has none: combine it"):
        build_method(run)
    assert build_method(run | {"method": {"fedper": {}, "resets": {}}}).resets


# --- bad input -------------------------------------------------------------------------------


def test_a_split_outside_the_blocks_is_refused():
    with pytest.raises(UsageError, match=r"split 3 is not one of the model's 3 blocks.*0 to 2"):
        Branches(tiny(0), "aB", 3)
    plain = Classifier(nn.Flatten(), 36, CLASSES)
    with pytest.raises(UsageError, match="this model has no blocks"):
        Branches(plain, "aB")


def test_a_study_refuses_splits_that_its_model_does_not_have():
    for split, message in ((5, "split 5 is not a number of blocks.*from 0 to"), ("x", "split 'x'")):
        with pytest.raises(UsageError, match=f"method `mine`: {message}"):
            check_blocks("mine", {"ps": {"split": split}}, "cnn")
    with pytest.raises(
        UsageError, match=r"`mine` keeps blocks .* private, and the model resnet50 n"
    ):
        check_blocks("mine", {"fedprox": {"mu": 0.1}, "sps": {"split": None}}, "resnet50")
    check_blocks("mine", {"fedprox": {"mu": 0.1}}, "resnet50")


def test_names_that_differ_in_case_are_refused_where_folders_do_not(monkeypatch):
    check_case("method", ["AB", "aB", "fedavg"])  # this file system distinguishes case
    monkeypatch.setattr(checks, "ignores_case", lambda folder: True)
    check_case("method", ["AB", "AaB", "fedavg"])
    with pytest.raises(UsageError, match="the methods AB, aB differ in case only"):
        check_case("method", ["AB", "aB", "fedavg"])


def test_a_file_system_that_ignores_case_is_found_out(tmp_path, monkeypatch):
    assert not ignores_case(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("Here", "hERE"):
        Path(name).mkdir()
    assert ignores_case(Path("Here"))
