"""Every federated method: `fedgrid.methods`, and how they combine."""

import ast
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from conftest import (
    SIZES,
    artifacts,
    assert_same,
    brief,
    by_hand,
    differ,
    everything,
    make_step,
    methods,
    simulate,
)
from fedgrid.encoders import guided
from fedgrid.engine.state import RunState
from fedgrid.method import Cohort, Method, Start
from fedgrid.runtime.code import source
from fedgrid.runtime.names import PACKAGE, UsageError, registered
from fedgrid.study.checks import check_keywords
from fedgrid.study.protocol import STAGES

NAMES = registered("methods")
# Hyper-parameters that leave FedAvg over, for methods that change what a client does.
NEUTRAL = {
    name: given for name in NAMES if (given := source.literal(f"methods.{name}", "NEUTRAL", None))
}
ON_CLIENTS = ("architecture", "loss", "penalty", "correct", "frozen", "private")
ON_SERVER = ("weigh", "reweigh", "scale", "aggregate", "server", "share", "measure")
# The methods that change something about FedAvg; the others only look on, or are placebos for
# private entries, of which FedAvg has none.
CHANGING = [n for n in NAMES if replace(methods(n), observe=None, resets=False) != Method()]
# Of them, those whose server has FedAvg's model (`test_personal.py`).
BESIDE = ["apfl", "ccvr", "ccvr_predicted", "ccvr_random", "ditto", "finetuned", "knnper"]
OTHER = ["projected"]  # which changes nothing but the model's shape
OWN = ["feddyn"]  # whose server has a state that no hyper-parameter takes away


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- every method ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_without_its_term_a_method_is_fedavg(name):
    made = methods(name, **NEUTRAL.get(name, {}))
    if made.correct or made.private or made.frozen or made.begin or made.choose or name in OWN:
        return  # its term is a state of its own, who takes part, or what it does not train
    if any(getattr(made, field) for field in ON_CLIENTS):
        assert name in NEUTRAL, f"NEUTRAL needs the hyper-parameters that make {name} FedAvg"
    bare = replace(made, **dict.fromkeys(ON_SERVER), average_optimiser=False)
    same = simulate(bare, needed=artifacts(name)).play(2)
    torch.testing.assert_close(same.server, fedavg(2).server, rtol=1e-12, atol=1e-14)


@cache
def fedavg(rounds: int, **local) -> RunState:
    return simulate(Method(), **local).play(rounds)


@pytest.mark.parametrize("name", [n for n in CHANGING if n not in (*BESIDE, *OTHER)])
def test_with_its_term_a_method_is_not_fedavg(name):
    keywords = {"moon": {"projection": 0}, "server_rate": {"lr": 1.5}}.get(name, {})
    local = {"local_unit": "epochs"}  # FedNova is FedAvg where all clients take as many steps
    made = simulate(brief(name, **keywords), needed=artifacts(name), **local)
    assert any(differ(made.play(), fedavg(number, **local)) for number in (1, 2, 3))


@pytest.mark.parametrize("name", NAMES)
def test_adding_fedavg_changes_nothing(name):
    made = methods(name)
    assert made | methods("fedavg") == made


@pytest.mark.parametrize("name", NAMES)
def test_a_methods_file_says_what_it_is(name):
    tree = ast.parse((PACKAGE / "methods" / f"{name}.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert ast.get_docstring(tree)
    assert ast.get_docstring(functions["method"])
    assert set(source.literal(f"methods.{name}", "NEEDS", ())) <= set(STAGES)
    arguments = functions["method"].args
    assert len(arguments.defaults) == len(arguments.args), "every hyper-parameter has a default"


@pytest.mark.parametrize("name", NAMES)
def test_no_hyper_parameter_takes_a_number_or_text_that_means_nothing(name):
    """What a method's file does not refuse itself, its RANGES do."""
    impossible = {int: -1, float: -1.0, str: "nothing"}
    for key, default in source.keywords(f"methods.{name}", "method").items():
        if type(default) in impossible and (name, key) != ("power", "exponent"):
            with pytest.raises(UsageError, match=key.rstrip("12")):
                checked(name, **{key: impossible[type(default)]})


def checked(name: str, **given) -> Method:
    """The method of a file, if nothing is wrong with its hyper-parameters."""
    check_keywords("the test", name, given)
    return methods(name, **given)


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((n, "loop") for n in NAMES if methods(n).share and n != "feddf"), ("scaffold", "stacked")],
)
def test_nothing_of_private_entries_is_shared(name, backend):
    made = methods(name)
    made = made if made.private else made | Method(private=("head.",))
    run = simulate(made, backend, needed=artifacts(name), momentum=0.9).play()
    assert not [key for key in everything(run) if key.startswith("shared") and "head." in key]


@pytest.mark.parametrize("name", ["scaffold", "fedcurv", "sgdm", "fednova"])
def test_whoever_keeps_all_entries_is_left_alone_by_methods(name):
    alone = Method(private=("body.", "head."))
    keywords = {"ccvr": True} if name == "fednova" else {}
    made = (alone, alone | methods(name, **keywords))
    first, second = (simulate(of, weight_decay=0.0, momentum=0.0).play(3) for of in made)
    for client, memory in first.memory.items():
        torch.testing.assert_close(second.memory[client]["private"], memory["private"])


# The files whose equations hold for some optimisers of local training only.
OPTIMISERS = dict.fromkeys(
    ("apfl", "fednova", "fedpac", "fedrep", "mofedsam", "pfedme", "qfedavg", "scaffold", "sgdm"),
    ("sgd",),
)
EVERY = ("sgd", "adam", "adamw")


@pytest.mark.parametrize("name", NAMES)
def test_a_method_says_for_which_optimisers_its_equations_hold(name):
    allowed = OPTIMISERS.get(name, EVERY)
    assert methods(name).optimisers == allowed
    assert source.literal(f"methods.{name}", "OPTIMISERS", EVERY) == allowed


def reads_the_optimiser(name: str) -> bool:
    """Whether a file reads the learning rate, the momentum, or the state of optimisers."""
    tree = ast.parse((PACKAGE / "methods" / f"{name}.py").read_text())
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(read & {"lr", "momentum"}) or methods(name).average_optimiser


def test_whatever_reads_the_optimiser_says_for_which_it_is_right():
    reading = {name for name in NAMES if reads_the_optimiser(name)}
    # `finetuned` takes steps of its own after the run, `fedexp` reads how far the rate has fallen.
    assert reading <= OPTIMISERS.keys() | {"finetuned", "fedexp"}


def test_a_combination_holds_for_what_all_of_its_parts_hold_for():
    adam, none = Method(optimisers=("adam",)), Method()
    assert (methods("scaffold") | none).optimisers == ("sgd",)
    assert (none | adam).optimisers == ("adam",)
    assert (methods("scaffold") | adam).optimisers == ()


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("feddecorr", {"scale": "big"}, "scale of feddecorr is 'big': set it to code or paper"),
        ("moon", {"before": "never"}, "before of moon is 'never': set it to initial or "),
        ("fedsl", {"f": 3}, r"f is 3: set it to one of \(2, 4, 8\)"),
        ("fedsl", {"encoder": "vae"}, "encoder of fedsl is 'vae': set it to client or pooled"),
        ("fedsls", {"reading": "C"}, "reading is one of A, B, not C"),
        ("fedsls", {"target": "loss"}, "target is one of label, max, sum, not loss"),
        ("fedsls_dynamic", {"layers": "first"}, "layers is one of main, all, not first"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(name, keywords, message):
    with pytest.raises(UsageError, match=message):
        methods(name, **keywords)


# --- FedAvg ----------------------------------------------------------------------------------


def test_fedavg_worked_out_by_hand():
    # The deltas of class 0 are -0.1 and 0.1 (weight), -0.05 and 0.05 (bias); FedAvg's weights 1/4
    # and 3/4: the weight's update is -0.025 + 0.075 = 0.05 and the bias's 0.025.
    server = by_hand(methods("fedavg")).server
    torch.testing.assert_close(server["head.weight"], t([-0.05], [0.05]))
    torch.testing.assert_close(server["head.bias"], t(-0.025, 0.025))


# --- FedProx ---------------------------------------------------------------------------------


def test_fedprox_is_half_mu_times_the_squared_distance():
    # (1 - 0)^2 + (2 - 4)^2 + (3 - 0)^2 = 14, times 0.5 / 2
    params, server = {"a": t(1, 2), "b": t([3])}, {"a": t(0, 4), "b": t([0])}
    penalty = methods("fedprox", mu=0.5).penalty
    assert penalty(make_step(params=params, server=server)) == 3.5


def test_fedprox_pulls_back_to_the_server():
    # Two steps of client A alone, from weight 0 and bias 0 of class 0. The first step is FedAvg's,
    # for the distance is 0: weight 0.1, bias 0.05. Then z_0 - z_1 = 2 (2 0.1 + 0.05) = 0.5, the
    # gradient is (p - 1) x plus mu (w - 0), for the bias (p - 1) plus mu (b - 0).
    p = 1 / (1 + math.exp(-0.5))
    weight = 0.1 - 0.1 * ((p - 1) * 2 + 3 * 0.1)
    bias = 0.05 - 0.1 * ((p - 1) + 3 * 0.05)
    only_a = Method(weigh=lambda cohort: t(1, 0))
    server = by_hand(methods("fedprox", mu=3.0) | only_a, local=2).server
    torch.testing.assert_close(server["head.weight"][0, 0], t(weight)[0])
    torch.testing.assert_close(server["head.bias"][0], t(bias)[0])


# --- MOON ------------------------------------------------------------------------------------


def contrast(z, server, previous, pushes=1.0, valid=None, number=0, **keywords) -> torch.Tensor:
    step = make_step(
        round=torch.tensor(number),
        server={"z": server},
        memory={"previous": {"z": previous}, "pushes": torch.tensor(pushes)},
        features=z,
        valid=torch.ones(len(z)).double() if valid is None else valid,
        forward=lambda state, x: (state["z"], None),
    )
    return methods("moon", **keywords).penalty(step)


Z, NEAR, FAR = t([1, 0], [3, 4]), t([2, 0], [4, 3]), t([0, 5], [-3, -4])


def test_moons_contrast_written_out():
    # Sample 1: cosines 1 and 0; sample 2: 24/25 and -1. With tau = 1/2:
    # -log(e^2 / (e^2 + e^0)) = log(1 + e^-2), -log(e^1.92 / (e^1.92 + e^-2)) = log(1 + e^-3.92).
    first, second = math.log1p(math.exp(-2)), math.log1p(math.exp(-3.92))
    found = contrast(Z, NEAR, FAR, mu=3.0, tau=0.5)
    torch.testing.assert_close(found, t(3 * (first + second) / 2)[0])


def test_moons_contrast_leaves_padding_out():
    found = contrast(Z, NEAR, FAR, mu=1.0, tau=0.5, valid=t(0, 1))
    torch.testing.assert_close(found, t(math.log1p(math.exp(-3.92)))[0])


def test_moon_pushes_from_random_models_from_the_second_round_on():
    assert contrast(Z, NEAR, FAR, before="later") == 0
    found, usual = (contrast(Z, NEAR, FAR, number=1, before=b) for b in ("later", "random"))
    assert found == usual > 0
    start = simulate(methods("moon")).engine.population.start
    found, usual = (methods("moon", before=b).memory(start, 1) for b in ("later", "random"))
    assert found["pushes"] == usual["pushes"] == 1
    assert torch.equal(found["previous"]["head.weight"], usual["previous"]["head.weight"])


def test_moon_does_not_push_where_there_is_nothing_to_push_from():
    assert contrast(Z, NEAR, FAR, pushes=0.0) == 0


def test_moon_remembers_the_local_model():
    simulation = simulate(methods("moon"), participation=1.0)
    simulation.engine.method = simulation.engine.method | Method(
        aggregate=lambda cohort, weights: {n: d[3] for n, d in cohort.deltas.items()}
    )
    run = simulation.play()
    for name in simulation.engine.architecture.parameters:
        torch.testing.assert_close(run.memory[3]["previous"][name], run.server[name])


@pytest.mark.parametrize("before", ["initial", "none"])
def test_moons_first_round_is_fedavgs(before):
    # From the initial model both cosines are equal, so that their difference has no gradient.
    first = simulate(methods("moon", projection=0, before=before)).play()
    fedavg = simulate(Method()).play()
    torch.testing.assert_close(first.server, fedavg.server, rtol=1e-12, atol=1e-13)


def test_moons_random_models_are_the_clients_own():
    engine = simulate(methods("moon", before="random")).engine
    memory = engine.method.memory
    start = replace(engine.population.start, server={})
    previous = [memory(start, k)["previous"]["head.weight"] for k in (0, 1, 0)]
    assert torch.equal(previous[0], previous[2])
    assert not torch.equal(previous[0], previous[1])


def test_the_control_of_moon_is_moon_without_its_loss():
    control = simulate(methods("projected")).play()
    moon = simulate(methods("moon", mu=0.0)).play()
    torch.testing.assert_close(control.server, moon.server, rtol=1e-12, atol=1e-13)


def test_moons_projection_is_two_layers_under_the_classifier():
    model = simulate(methods("moon", projection=5)).engine.architecture.build(0)
    features, logits = model(torch.zeros(2, 1, 6, 6).double())
    shapes = {name: tuple(w.shape) for name, w in model.named_parameters()}
    assert (features.shape, logits.shape) == ((2, 5), (2, 3))
    assert shapes["body.1.0.weight"] == (4, 4)
    assert shapes["body.1.2.weight"] == (5, 4)
    assert shapes["head.weight"] == (3, 5)


# --- FedDecorr -------------------------------------------------------------------------------

FEATURES = t([1, 2, 0], [3, 1, 1], [2, 5, 1], [0, 1, 4])


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def decorrelated(features=FEATURES, **fields) -> torch.Tensor:
    valid = fields.pop("valid", torch.ones(len(features)).double())
    return methods("feddecorr", **fields).penalty(make_step(features=features, valid=valid))


def test_feddecorr_in_the_codes_scale():
    # M_ij = sum_n z_ni z_nj = (n - 1) rho_ij; the mean of its squares over i != j, over n.
    n, dims = FEATURES.shape
    squares = [
        ((n - 1) * correlation(FEATURES[:, i], FEATURES[:, j])) ** 2
        for i in range(dims)
        for j in range(dims)
        if i != j
    ]
    expected = 0.1 * sum(squares) / len(squares) / n
    torch.testing.assert_close(decorrelated(beta=0.1), t(expected)[0], rtol=1e-7, atol=0)


def test_feddecorr_in_the_papers_scale():
    # The squared Frobenius norm of the correlation matrix, its diagonal too, over D^2.
    dims = FEATURES.shape[1]
    squares = [
        correlation(FEATURES[:, i], FEATURES[:, j]) ** 2 for i in range(dims) for j in range(dims)
    ]
    expected = 0.1 * sum(squares) / dims**2
    found = decorrelated(beta=0.1, scale="paper")
    torch.testing.assert_close(found, t(expected)[0], rtol=1e-7, atol=0)


@pytest.mark.parametrize("scale", ["code", "paper"])
def test_feddecorr_leaves_padding_out(scale):
    padded, valid = torch.cat([FEATURES, t([9, -9, 9])]), t(1, 1, 1, 1, 0)
    found = decorrelated(padded, valid=valid, scale=scale)
    torch.testing.assert_close(found, decorrelated(scale=scale))


def test_feddecorr_of_one_sample_is_zero():
    assert decorrelated(FEATURES[:1]) == 0


# --- FedAU -----------------------------------------------------------------------------------

# Four clients, cutoff 3. `wait` counts rounds since the last participation, or since a cut; an
# interval of wait + 1 ends when the client takes part, or when it reaches 3.
#
#   round  takes part   ends in this round          intervals so far (clients 0, 1, 2, 3)
#     0    0, 1         0: 1, 1: 1                  [1]        [1]      []      []
#     1    0            0: 1                        [1,1]      [1]      []      []
#     2    2            2: 3, 3: 3 (cut)            [1,1]      [1]      [3]     [3]
#     3    1, 2         1: 3, 2: 1                  [1,1]      [1,3]    [3,1]   [3]
#     4    0, 3         0: 3, 3: 2                  [1,1,3]    [1,3]    [3,1]   [3,2]
#     5    0, 1, 2, 3   0: 1, 1: 2, 2: 2, 3: 1
#
# A round's weights are the means of the intervals recorded before it (1 if there are none), over
# the population of 4:
#
#     0    1, 1    1    1    2    1    3    1, 3 (mean of [1], of [3])    4    1, 3
#     5    5/3, 2, 2, 5/2
TAKING_PART = [[0, 1], [0], [2], [1, 2], [0, 3], [0, 1, 2, 3]]
EXPECTED = [[1, 1], [1], [1], [1, 3], [1, 3], [5 / 3, 2, 2, 5 / 2]]


def test_fedaus_estimator_worked_out_by_hand():
    fedau, found = methods("fedau", cutoff=3), []
    shared = fedau.shared(Start({"w": t(0)}, 4, t(0), t(0), 1, 4, None))
    for clients in TAKING_PART:
        cohort = make_cohort(clients=torch.tensor(clients), population=4, shared=shared)
        found.append((fedau.weigh(cohort) * 4).tolist())
        shared = fedau.share(cohort, {})
    for weights, expected in zip(found, EXPECTED, strict=True):
        assert weights == pytest.approx(expected)


def make_cohort(**fields) -> Cohort:
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | fields)


def test_fedaus_interval_counts_from_the_next_participation_on():
    # Both clients take part in both rounds: every interval is 1 and every weight 1/2.
    run = by_hand(methods("fedau"), rounds=2)
    assert run.shared["fedau_n"].tolist() == [2, 2]
    assert run.shared["fedau_sum"].tolist() == [2, 2]
    assert run.logged["effective_clients"].tolist() == [2, 2]  # two of two clients, in two rounds


def test_fedau_ignores_sample_counts():
    # Deltas of -0.1 and 0.1, each times 1/2.
    assert by_hand(methods("fedau")).server["head.weight"].abs().max() < 1e-15


# --- FedSLS and FedSL ------------------------------------------------------------------------

# Contributions (targets, readings, roots, clients, layers): zero but for one reading at a time.
# Layer 3 is beside the main path.
MAIN = torch.tensor([True, True, False, True])
LAYERS = t([8, 4, 100, 4], [0, 8, 10, 16], [5, 5, 5, 5])


def saliency_weights(clients, where=(0, 0, 0), **keywords) -> list[float]:
    contributions = torch.zeros(3, 2, 2, 3, 4).double()
    contributions[where] = LAYERS
    needed = {"saliency": {"contributions": contributions, "main": MAIN}}
    cohort = make_cohort(clients=torch.tensor(clients), artifacts=needed)
    return methods("fedsls", **keywords).weigh(cohort).tolist()


def test_fedsls_weights_worked_out_by_hand():
    # tau = 1/2, main path: client 0: 8 + 4/2 + 4/4 = 11; client 1: 0 + 8/2 + 16/4 = 8.
    assert saliency_weights([0, 1]) == pytest.approx([11 / 19, 8 / 19])


def test_fedsls_counts_every_layer_alike_with_tau_1():
    assert saliency_weights([0, 1], tau=1.0) == pytest.approx([16 / 40, 24 / 40])


def test_fedsls_counts_the_side_paths_too_if_asked():
    # Client 0: 8 + 4/2 + 100/4 + 4/8 = 35.5; client 1: 0 + 8/2 + 10/4 + 16/8 = 8.5.
    assert saliency_weights([0, 1], layers="all") == pytest.approx([35.5 / 44, 8.5 / 44])


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"target": "max"}, (1, 0, 0)),
        ({"target": "sum"}, (2, 0, 0)),
        ({"reading": "B"}, (0, 1, 0)),
        ({"extra_root": True}, (0, 0, 1)),
        ({"target": "sum", "reading": "B", "extra_root": True}, (2, 1, 1)),
    ],
)
def test_fedsls_takes_the_reading_that_was_asked_for(keywords, where):
    assert saliency_weights([0, 1], where, **keywords) == pytest.approx([11 / 19, 8 / 19])


def test_fedsls_weights_follow_the_cohorts_order():
    assert saliency_weights([1, 0]) == pytest.approx([8 / 19, 11 / 19])
    assert sum(saliency_weights([0, 1, 2])) == pytest.approx(1)


def test_fedsls_is_aggregated_with_its_weights():
    # Deltas of -0.1 and 0.1 with the weights 11/19 and 8/19.
    contributions = torch.zeros(3, 2, 2, 2, 4).double()
    contributions[0, 0, 0] = LAYERS[:2]
    needed = {"saliency": {"contributions": contributions, "main": MAIN}}
    server = by_hand(methods("fedsls"), needed=needed).server
    torch.testing.assert_close(server["head.weight"][0], t(0.1 * 3 / 19))


@pytest.mark.parametrize(("f", "factor"), [(2, 0), (4, 1), (8, 2)])
@pytest.mark.parametrize(("name", "row"), [("client", 0), ("pooled", 1), ("area", 2)])
def test_fedsl_takes_the_encoder_and_the_factor_that_were_asked_for(f, factor, name, row):
    norms = torch.zeros(3, 3, 3).double()
    norms[row, factor] = t(6, 1, 2)
    cohort = make_cohort(clients=torch.tensor([0, 2]), artifacts={"latents": {"norms": norms}})
    assert methods("fedsl", f=f, encoder=name).weigh(cohort).tolist() == [0.75, 0.25]


def test_dynamic_fedsls_encodes_the_model_that_the_server_sent():
    # In the first round that is the initial model: as if it had been encoded beforehand.
    simulation = simulate(methods("fedsls_dynamic"))
    engine, server = simulation.engine, simulation.run.server
    found = [
        engine.samples.total(
            k, lambda x, y: guided.contributions(engine.architecture.empty, server, x, y)
        )
        for k in range(len(SIZES))
    ]
    stacked = torch.stack([guided.stack(one) for one in found], dim=-2)
    needed = {"saliency": {"contributions": stacked, "main": torch.tensor([True])}}
    static = simulate(methods("fedsls"), needed=needed).play()
    torch.testing.assert_close(simulation.play().server, static.server)


# --- combinations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ("fedau", "fedsls", "weigh"),
        ("fedsl", "fedsls_dynamic", "weigh"),
        ("moon", "moon", "architecture"),
    ],
)
def test_what_two_methods_define_is_a_conflict(one, other, field):
    with pytest.raises(ValueError, match=f"two of the combined methods define `{field}`"):
        methods(one) | methods(other)


@pytest.mark.parametrize("field", ["loss", "correct", "aggregate", "server", "weigh"])
def test_these_have_room_for_one(field):
    method = Method(**{field: lambda *arguments: None})
    with pytest.raises(ValueError, match=f"define `{field}`"):
        method | method


@pytest.mark.parametrize("field", ["remember", "memory", "share", "shared", "measure"])
def test_what_methods_keep_is_joined_and_must_not_clash(field):
    one, other = (Method(**{field: lambda *_, key=key: {key: 1}}) for key in "ab")
    arguments = (None,) * (2 if field in ("memory", "share") else 1)
    assert getattr(one | other, field)(*arguments) == {"a": 1, "b": 1}
    with pytest.raises(ValueError, match="two of the combined methods keep `a`"):
        getattr(one | one, field)(*arguments)


def test_what_methods_send_is_joined_client_by_client():
    one, other = (Method(send=lambda _, key=key: [{key: 1}, {key: 2}]) for key in "ab")
    assert (one | other).send(None) == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    with pytest.raises(ValueError, match="two of the combined methods keep `a`"):
        (one | one).send(None)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_penalties_add(backend):
    # Gradients of 1 and 2 with respect to both weights, on top of FedAvg's -0.05 and 0.05.
    one, other = (
        Method(penalty=lambda step, g=g: g * step.params["head.weight"].sum()) for g in (1, 2)
    )
    server = by_hand(one | other, backend).server
    torch.testing.assert_close(server["head.weight"], t([-0.35], [-0.25]))


def test_prefixes_join():
    joined = Method(frozen=("a",), private=("b",)) | Method(frozen=("c",), private=("d",))
    assert (joined.frozen, joined.private) == (("a", "c"), ("b", "d"))


def test_combining_methods_is_doing_both():
    needed = artifacts("fedsls")
    both = simulate(methods("fedsls") | methods("fedprox", mu=0.5), needed=needed).play(2)
    swapped = simulate(methods("fedprox", mu=0.5) | methods("fedsls"), needed=needed).play(2)
    assert_same(both, swapped)
    assert differ(both, simulate(methods("fedsls"), needed=needed).play(2))
    assert differ(both, simulate(methods("fedprox", mu=0.5)).play(2))


def test_three_methods_at_once_are_the_same_in_both_backends():
    joined = methods("moon") | methods("feddecorr") | methods("fedau", cutoff=2)
    runs = [simulate(joined, backend).play(3) for backend in ("loop", "stacked")]
    assert {"previous", "pushes"} == set(runs[0].memory[1])
    assert len(everything(runs[0])) == len(everything(runs[1]))
    assert_same(*runs, rtol=1e-9, atol=1e-10)
