"""One contract for every method: its file, its plain loop, both backends, and a resumed run.

A run of a method is made once in each backend and read by several tests. Equations that are worked
out by hand are in `test_equations.py`, and what methods do besides is in the files beside it.
"""

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
import torch

from against import CLOSE, SIZES, compare, loop, run
from conftest import (
    BACKENDS,
    FEWER,
    QUIET,
    artifacts,
    assert_same,
    differ,
    everything,
    given_noise,
    methods,
    simulate,
    slow_but,
)
from fedgrid.checking.method import count_kept
from fedgrid.checking.plain import play_both
from fedgrid.engine.backends import _recorded, _steps
from fedgrid.engine.state import RunState
from fedgrid.method import Method, by_samples
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, registered
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.checks import check_keywords
from fedgrid.study.protocol import STAGES
from fedgrid.training import checkpoint
from oracles import losses, personal, servers
from oracles.base import Plain, Uniform

NAMES = registered("methods")
every_method = pytest.mark.parametrize("name", NAMES)
# Hyper-parameters that leave FedAvg over, for methods that change what a client does.
NEUTRAL = {
    name: given for name in NAMES if (given := source.literal(f"methods.{name}", "NEUTRAL", None))
}
ON_CLIENTS = ("architecture", "loss", "penalty", "correct", "frozen", "private")
ON_SERVER = ("weigh", "reweigh", "scale", "aggregate", "server", "share", "measure")
# The methods that change something about FedAvg; the others only look on, or are placebos for
# private entries, of which FedAvg has none.
CHANGING = [n for n in NAMES if replace(methods(n), observe=None, resets=False) != Method()]
# Of them, those whose server has FedAvg's model.
BESIDE = ["apfl", "ccvr", "ccvr_predicted", "ccvr_random", "ditto", "finetuned", "knnper"]
BESIDE += ["projected"]  # which changes nothing but the model's shape
OWN = ["feddyn"]  # whose server has a state that no hyper-parameter takes away
# Methods of each kind whose updates are added up as clients end: what they weigh, keep or change.
SUMMED = ["fedavg", "fedau", "fedbabu", "fednova", "fedpac", "fedrep", "feddyn", "sgdm"]
# Methods whose steps read different things: these are recorded, for a second each, and the others
# exhaustively. `test_compiled.py` records whole steps of more.
RECORDED = ["fedavg", "fedrep", "moon", "scaffold"]
CODE = {  # options of the authors' code, whose steps read the rate or leave something to the next
    "pfedme": {"delta": 0.005, "lam": 4.0, "form": "code"},
    "apfl": {"adaptive": True, "mix": "outputs", "form": "code"},
    "fedpac": {"head_lr": 0.02},
    "feddyn": {"limit": 0.3},
    "moon": {"before": "later"},
    "autocs": {"form": "code"},
    "autosa": {"form": "code"},
}
STEPS, EPOCHS = {"local_unit": "steps"}, {"local_unit": "epochs", "local": 2}
KEPT = TemporaryDirectory()


def made(name: str, **keywords) -> Method:
    """The method of a file, with few steps of its own, and with hyper-parameters that matter."""
    given = FEWER | {"server_rate": {"lr": 1.5}}
    return methods(name, **given.get(name, {}) | keywords)


def play(method: Method, name: str, backend: str, local: dict = EPOCHS) -> RunState:
    """The run after three rounds in which clients train for different numbers of steps."""
    return simulate(method, backend, needed=artifacts(name), **local).play(3)


@cache
def played(name: str, backend: str) -> RunState:
    """As `play`, without records; to be read, not changed. The loop leaves a checkpoint."""
    with patch.object(_steps, "Recorded", _recorded.unrecorded):
        found = simulate(made(name), backend, needed=artifacts(name), **EPOCHS)
        if backend == "loop":
            path = Path(KEPT.name) / name
            found.run, history = checkpoint.new(found.run, path)
            checkpoint.save(path, "key", found.play(2), history)
            return found.play(1)
        return found.play(3)


@cache
def fedavg(rounds: int, **local) -> RunState:
    return simulate(Method(), **local).play(rounds)


# --- its file --------------------------------------------------------------------------------


@every_method
def test_a_methods_file_says_what_it_is(name):
    tree = ast.parse((PACKAGE / "methods" / f"{name}.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert ast.get_docstring(tree)
    assert ast.get_docstring(functions["method"])
    assert set(source.literal(f"methods.{name}", "NEEDS", ())) <= set(STAGES)
    arguments = functions["method"].args
    assert len(arguments.defaults) == len(arguments.args), "every hyper-parameter has a default"
    plain = methods(name)
    assert plain | methods("fedavg") == plain


@every_method
def test_no_hyper_parameter_takes_a_number_or_text_that_means_nothing(name):
    """What a method's file does not refuse itself, its RANGES do."""
    impossible = {int: -1, float: -1.0, str: "nothing"}
    for key, default in source.keywords(f"methods.{name}", "method").items():
        if type(default) in impossible and (name, key) != ("power", "exponent"):
            given = {key: impossible[type(default)]}
            with pytest.raises(UsageError, match=key.rstrip("12")):  # noqa: PT012
                check_keywords("the test", name, given)
                methods(name, **given)


OUTSIDE = {  # numbers at the end of a range, or beyond it, that are refused, too
    **{"apfl": {"alpha": 1.5}, "autosa": {"temperature": 0.0}, "ccvr": {"samples": 0, "batch": 0}},
    **{"contribution": {"temperature": 0.0}, "dp_fedavg": {"norm": 0.0}, "elastic": {"mu": 1.0}},
    **{"fedacg": {"momentum": 1.0}, "fedadam": {"tau": 0.0}, "fedyogi": {"beta2": 1.0}},
    **{"fedala": {"share": 0.0}, "fedamp": {"sigma": 0.0}, "feddf": {"batch": 0}},
    **{"feddyn": {"alpha": 0.0}, "fedgkd": {"models": 0}, "fedmlb": {"tau": 0.0}},
    **{"fedpac": {"head_share": 2.0}, "fedphp": {"lam": 2.0}, "fedsl": {"f": 3}},
    **{"geometric_median": {"nu": 0.0}, "knnper": {"lam": 1.5, "k": 0}, "mofedsam": {"beta": 0.0}},
    **{"krum": {"share": 0.5}, "multi_krum": {"share": 0.5}, "trimmed_mean": {"share": 0.5}},
    **{"perfedavg": {"distance": 0.0}, "pfedme": {"delta": 0.0, "inner": 0}},
    **{"power_of_choice": {"d": 0}, "power_of_choice_random": {"d": 0}},
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_range_ends_where_its_equation_does(name):
    for key, value in OUTSIDE[name].items():
        with pytest.raises(UsageError, match=f"{key}.* is {value}"):
            methods(name, **{key: value})


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("feddecorr", {"scale": "big"}, "scale of feddecorr is 'big': set it to code or paper"),
        ("fedsl", {"f": 3}, r"f is 3: set it to one of \(2, 4, 8\)"),
        ("fedsls", {"reading": "C"}, "reading is one of A, B, not C"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(name, keywords, message):
    with pytest.raises(UsageError, match=message):
        methods(name, **keywords)


# The files whose equations hold for some optimisers of local training only.
OPTIMISERS = dict.fromkeys(
    ("apfl", "fednova", "fedpac", "fedrep", "mofedsam", "pfedme", "qfedavg", "scaffold", "sgdm"),
    ("sgd",),
)


@every_method
def test_a_method_says_for_which_optimisers_its_equations_hold(name):
    allowed = OPTIMISERS.get(name, ("sgd", "adam", "adamw"))
    assert methods(name).optimisers == allowed
    assert source.literal(f"methods.{name}", "OPTIMISERS", ("sgd", "adam", "adamw")) == allowed
    tree = ast.parse((PACKAGE / "methods" / f"{name}.py").read_text())
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    # `finetuned` takes steps of its own after the run, `fedexp` reads how far the rate has fallen.
    if read & {"lr", "momentum"} or methods(name).average_optimiser:
        assert name in OPTIMISERS.keys() | {"finetuned", "fedexp"}


# --- its term --------------------------------------------------------------------------------


@every_method
def test_without_its_term_a_method_is_fedavg(name):
    neutral = methods(name, **NEUTRAL.get(name, {}))
    parts = (getattr(neutral, n) for n in ("correct", "private", "frozen", "begin", "choose"))
    if any(parts) or name in OWN:
        return  # its term is a state of its own, who takes part, or what it does not train
    if any(getattr(neutral, field) for field in ON_CLIENTS):
        assert name in NEUTRAL, f"NEUTRAL needs the hyper-parameters that make {name} FedAvg"
    bare = replace(neutral, **dict.fromkeys(ON_SERVER), average_optimiser=False)
    same = simulate(bare, needed=artifacts(name)).play(2)
    torch.testing.assert_close(same.server, fedavg(2).server, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [n for n in CHANGING if n not in BESIDE])
def test_with_its_term_a_method_is_not_fedavg(name):
    """MOON's network has a projection, as that of its control has."""
    other = played("projected", "loop") if name == "moon" else fedavg(3, **EPOCHS)
    assert differ(played(name, "loop"), other)


@pytest.mark.parametrize("name", [n for n in BESIDE if n != "projected"])
def test_what_only_changes_clients_or_the_last_model_leaves_fedavgs_server(name):
    found, usual = played(name, "loop").server, fedavg(3, **EPOCHS).server
    torch.testing.assert_close({n: found[n] for n in usual}, usual, rtol=0, atol=0)


PLACED = [
    *((n, "loop") for n in NAMES if methods(n).share and n != "feddf"),
    ("scaffold", "stacked"),
]


@pytest.mark.parametrize(("name", "backend"), PLACED)
def test_nothing_of_private_entries_is_shared(name, backend):
    given = methods(name)
    given = given if given.private else given | Method(private=("head.",))
    run = simulate(given, backend, needed=artifacts(name), momentum=0.9).play()
    assert not [key for key in everything(run) if key.startswith("shared") and "head." in key]


# --- its plain loop --------------------------------------------------------------------------

GIVEN = {"lr": 0.05, "beta1": 0.8, "tau": 0.01}
TUNED = {"samples": 5, "epochs": 3, "batch": 4, "lr": 0.1}
THIRD, ALL = {"participation": 1 / 3}, {"participation": 1.0}
LONG = {"lr": 0.3, "momentum": 0.0}  # so that the clients disagree
PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "lr": 0.3}
HALVES = {"batch": 5, "smallest_batch": 5}
NEAR = {"lam": 4.0, "delta": 0.1, "inner": 3}
ALA = {"share": 0.5, "eta": 3.0, "first": 4}

ROUNDS = {"fedau": 6, "moon": 4, "fedcurv": 4, "fedgkd": 4, "apfl": 2, "pfedme": 2, "perfedavg": 2}
ORACLES = [  # the plain loop, the method's name and hyper-parameters, and fields of the protocol
    (Plain, "fedavg", {}, {}),
    (losses.FedProx, "fedprox", {"mu": 0.5}, {}),
    (losses.FedAvgKD, "fedavg_kd", {"beta": 0.7, "tau": 2.0}, {}),
    (losses.FedNTD, "fedntd", {"beta": 0.7, "tau": 2.0}, {}),
    (losses.FedNTDWithoutTeacher, "fedntd_tf", {"beta": 0.7, "tau": 2.0}, {}),
    (losses.FedLMD, "fedlmd", {"beta": 0.7, "tau": 2.0}, {}),
    (losses.FedLMDWithoutTeacher, "fedlmd_tf", {"beta": 0.7, "tau": 2.0}, {}),
    (losses.FedLMDWithoutTeacher, "fedlmd_tf", {"beta": 0.7, "tau": 2.0, "exact": True}, {}),
    (losses.Smoothed, "fedavg_ls", {"mu": 0.2}, {}),
    (losses.FedLC, "fedlc", {"tau": 0.5}, {}),
    (losses.FedLC, "fedlc", {"tau": 0.5, "others": True}, {}),
    (losses.FedRS, "fedrs", {"alpha": 0.3}, {}),
    (losses.FedRS, "fedrs", {"alpha": 0.3, "by": "count"}, {}),
    (losses.FedRS, "fedrs", {"alpha": 0.3, "by": "fading"}, {}),
    (losses.FedDecorr, "feddecorr", {"beta": 0.3}, {}),
    (losses.Moon, "moon", {"mu": 2.0, "projection": 0}, {}),
    (losses.FedMLB, "fedmlb", {"lam1": 0.5, "lam2": 0.8, "tau": 2.0}, {}),
    (losses.FedMLB, "fedmlb", {"lam1": 0.5, "lam2": 0.0}, {}),
    (losses.FedGKD, "fedgkd", {"beta": 0.7, "tau": 2.0, "models": 2}, {}),
    (losses.FedCurv, "fedcurv", {"penalty": 0.2, "size": 0}, {}),
    (losses.FedDyn, "feddyn", {"alpha": 0.1}, {}),
    (losses.FedDyn, "feddyn", {"alpha": 0.1, "by": "samples", "limit": 0.3}, {}),
    (losses.FedSAM, "fedsam", {"rho": 0.1}, {}),
    (losses.MoFedSAM, "mofedsam", {"beta": 0.3}, {}),
    (losses.MoFedSAM, "mofedsam", {"beta": 0.3}, {"momentum": 0.0}),
    (losses.FedACG, "fedacg", {"beta": 0.05}, {}),
    (losses.Scaffold, "scaffold", {}, {}),
    (losses.SGDM, "sgdm", {}, {}),
    (servers.FedAvgM, "fedavgm", {}, {}),
    (servers.FedAvgM, "fedavgm", {"damped": True}, {}),
    (servers.ServerRate, "server_rate", {"lr": 1.5}, {}),
    (servers.FedAdam, "fedadam", GIVEN | {"beta2": 0.95}, {}),
    (servers.FedAdam, "fedadam", GIVEN | {"beta2": 0.95, "form": "code"}, {}),
    (servers.FedYogi, "fedyogi", GIVEN | {"beta2": 0.95}, {}),
    (servers.FedYogi, "fedyogi", GIVEN | {"beta2": 0.95, "form": "code"}, {}),
    (servers.FedAdagrad, "fedadagrad", GIVEN, {}),
    (servers.FedNova, "fednova", {}, {}),
    (servers.FedAU, "fedau", {"cutoff": 2}, {}),
    (servers.FedDisco, "feddisco", {}, {}),
    (servers.FedDisco, "feddisco", {"measure": "l2"}, {}),
    (servers.Elastic, "elastic", {"mu": 0.9}, {}),
    (servers.Elastic, "elastic", {"mu": 0.9, "of": "loss", "by": "tensor"}, {}),
    (servers.QFedAvg, "qfedavg", {"q": 2.0}, {}),
    (servers.PowerOfChoice, "power_of_choice", {"d": 5}, THIRD),
    (servers.ChoiceByLot, "power_of_choice_random", {"d": 5}, THIRD),
    (servers.ChoiceByLot, "size_sampling", {}, THIRD),
    (servers.FedExP, "fedexp", {}, LONG),
    (servers.FedExP, "fedexp", {"epsilon": 0.01, "form": "code"}, LONG | {"lr_decay": 0.6}),
    (servers.FedExP, "fedexp", {"average": False}, LONG),
    *((servers.Median, "median", {}, {"participation": part}) for part in (0.5, 1.0)),
    *((servers.TrimmedMean, "trimmed_mean", {"share": 0.3}, part) for part in ({}, ALL)),
    (servers.Krum, "krum", {}, ALL),
    (servers.OfTheFirst, "krum", {}, THIRD),
    (servers.MultiKrum, "multi_krum", {}, ALL),
    (servers.MultiKrumOfThree, "multi_krum", {"m": 3}, ALL),
    (servers.GeometricMedian, "geometric_median", {}, {}),
    (servers.GeometricMedian, "geometric_median", {"iterations": 50, "tolerance": 1e-7}, {}),
    (servers.DPFedAvg, "dp_fedavg", {"norm": 0.05, "noise_multiplier": 0.5}, {}),
    (servers.FedDF, "feddf", {"steps": 7, "lr": 0.02, "batch": 4}, {}),
    (servers.FedDF, "feddf", {"steps": 7, "lr": 0.02, "batch": 4, "average": "losses"}, {}),
    (servers.CCVR, "ccvr", TUNED, {}),
    (servers.CCVRPredicted, "ccvr_predicted", TUNED, {}),
    (servers.CCVRRandom, "ccvr_random", TUNED, {}),
    (Uniform, "uniform", {}, {}),
    (personal.FedBN, "fedbn", {}, {}),
    (personal.LGFedAvg, "lgfedavg", {}, {}),
    (personal.FedPer, "fedper", {}, {}),
    (personal.Local, "local", {}, {}),
    (personal.FedBABU, "fedbabu", {}, {}),
    (personal.FedRep, "fedrep", {}, {}),
    (personal.FedRep, "fedrep", {"rest": False}, {}),
    (personal.FineTuned, "finetuned", {"epochs": 2}, {}),
    (personal.FineTuned, "finetuned", {"epochs": 2, "part": "head"}, {}),
    (personal.Ditto, "ditto", {"lam": 0.7}, {}),
    (personal.Ditto, "ditto", {"lam": 0.7}, {"optimiser": "adam", "momentum": 0.0}),
    (personal.FedRoD, "fedrod", {}, {}),
    (personal.APFL, "apfl", {"alpha": 0.3}, {}),
    (personal.APFL, "apfl", {"alpha": 0.3, "mix": "outputs"}, {}),
    (personal.APFL, "apfl", {"alpha": 0.3, "adaptive": True}, {"lr": 0.5, "momentum": 0.0}),
    (personal.InTurn, "apfl", {"alpha": 0.3, "form": "code", "adaptive": True}, PLAIN),
    (personal.InTurn, "apfl", {"alpha": 0.3, "form": "code", "mix": "outputs"}, PLAIN),
    (
        *(personal.InTurn, "apfl"),
        *({"alpha": 0.3, "form": "code", "mix": "outputs", "adaptive": True}, PLAIN),
    ),
    (personal.FedPHP, "fedphp", {"lam": 0.3, "tau": 3.0}, {}),
    (personal.FedAMP, "fedamp", {"lam": 0.7, "alpha": 0.3, "sigma": 2.0}, {}),
    (personal.PFedMe, "pfedme", NEAR | {"beta": 1.5}, {}),
    (personal.PFedMe, "pfedme", NEAR | {"mu": 0.5}, {}),
    (personal.PFedMe, "pfedme", NEAR | {"beta": 1.5, "mu": 0.5, "form": "code"}, {}),
    (personal.PerFedAvg, "perfedavg", {"alpha": 0.2}, HALVES),
    (personal.PerFedAvg, "perfedavg", {"alpha": 0.2, "hessian": True, "distance": 0.01}, HALVES),
    (personal.FedALA, "fedala", ALA, {}),
    (personal.FedALA, "fedala", ALA | {"part": "all"}, {}),
    (personal.FedALA, "fedala", ALA | {"part": "all", "settled": 2e-3}, {}),
    (personal.FedProto, "fedproto", {"lam": 0.8}, {}),
    (personal.FedProto, "fedproto", {"lam": 0.8, "average": "samples"}, {}),
    (personal.FedPAC, "fedpac", {"lam": 0.8}, {}),
    (personal.FedPAC, "fedpac", {"lam": 0.8, "head_lr": 0.02}, {}),
]


@pytest.mark.parametrize(
    ("kind", "name", "keywords", "fields"), ORACLES, ids=lambda of: getattr(of, "__name__", str(of))
)
def test_a_method_is_its_plain_loop(kind, name, keywords, fields):
    rounds = ROUNDS.get(name, 3)
    found = run(methods(name, **keywords), rounds, **fields)
    compare(found, loop(kind, name, keywords, rounds, **fields))


def test_fine_tuning_begins_with_what_a_client_keeps():
    method = methods("fedper") | methods("finetuned", epochs=2)
    compare(run(method), loop(personal.FedPerTuned, "finetuned", {"epochs": 2}))


# A bias before BatchNorm has no gradient but rounding, which Adam's usual epsilon makes visible.
ADAM = {"optimiser": "adam", "momentum": 0.0, "epsilon": 1e-3}
STATES = [{"optimiser_state": "kept"}, ADAM, ADAM | {"optimiser_state": "kept"}]
STATES += [ADAM | {"optimiser": "adamw", "optimiser_state": "kept"}]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fields", STATES, ids=str)
def test_optimisers_reset_or_kept_are_those_of_a_plain_loop(fields, backend):
    """In the stack, the client with fewest steps waits for the others in every round."""
    found, plain = play_both(Plain, Method(), 4, backend, participation=1.0, **fields)
    torch.testing.assert_close(found.server, dict(plain.model.state_dict()), **CLOSE)


NORMALISED = {Plain: "fedavg", losses.Scaffold: "scaffold", losses.SGDM: "sgdm"}
NORMALISED |= {servers.FedNova: "fednova", personal.FedBABU: "fedbabu"}


@pytest.mark.parametrize("kind", NORMALISED)
def test_client_contribution_normalisation_of_other_methods(kind):
    """In the stack, which gives the clients' latents together."""
    both = type("Both", (servers.Normalised, kind), {})
    method = methods(NORMALISED[kind]) | methods("contribution", temperature=0.3)
    found, plain = play_both(both, method, 4, "stacked", participation=1.0)
    torch.testing.assert_close(found.server, dict(plain.model.state_dict()), **CLOSE)
    assert float(found.logged["weight_distance"][-1]) == pytest.approx(plain.distance)
    assert plain.distance > 1e-3


# --- both backends, and a resumed run --------------------------------------------------------


@pytest.mark.parametrize("name", QUIET)
def test_stacked_equals_loop(name):
    assert_same(played(name, "loop"), played(name, "stacked"), rtol=1e-9, atol=1e-10)


@every_method
def test_a_run_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(name):
    whole = played(name, "loop")
    resumed = simulate(made(name), needed=artifacts(name), **EPOCHS)
    resumed.run, _ = checkpoint.load(Path(KEPT.name) / name, "key", "cpu")
    assert resumed.run.round == 2
    if not resumed.engine.method.choose:  # then all methods have the same cohorts and batches
        found, usual = resumed.engine.plan(resumed.run), work_of_fedavg()
        for field in ("clients", "index", "draws"):
            np.testing.assert_array_equal(getattr(found, field), getattr(usual, field))
    assert_same(resumed.play(), whole)


@cache
def work_of_fedavg():
    usual = simulate(Method(), **EPOCHS)
    return usual.engine.plan(replace(usual.run, round=2))


@pytest.mark.parametrize("name", [name for name in QUIET if name != "knnper"])
def test_a_file_says_how_many_models_a_client_keeps(name):
    """kNN-Per keeps features of samples, which are larger than this network."""
    run = played(name, "loop")
    kept = max((count_kept(run.server, memory) for memory in run.memory.values()), default=0)
    assert kept < source.literal(f"methods.{name}", "MODELS_KEPT", 0) + 0.5


@pytest.mark.parametrize("name", ["fedavg", "fedcurv", "fednova", "moon", "scaffold"])
def test_stacked_equals_loop_where_all_take_as_many_steps(name):
    """Of the methods that read or keep something of the steps, and of FedAvg."""
    runs = [play(methods(name), name, backend, STEPS) for backend in BACKENDS]
    assert_same(*runs, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", slow_but(RECORDED, QUIET, pytest.mark.exhaustive))
def test_a_recorded_step_is_the_step(name):
    assert_same(play(made(name), name, "stacked"), played(name, "stacked"))


@pytest.mark.parametrize("name", CODE)
def test_stacked_equals_loop_in_the_form_of_the_authors_code(name):
    runs = [play(made(name, **CODE[name]), name, backend) for backend in BACKENDS]
    assert_same(*runs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("form", ["text", "code"])
def test_both_backends_agree_on_a_noisy_network_with_the_same_noise(form, monkeypatch):
    monkeypatch.setattr(torch, "rand_like", given_noise)
    runs = [play(methods("autohs", form=form), "autohs", backend) for backend in BACKENDS]
    assert_same(*runs, rtol=1e-9, atol=1e-10)


def waiting(method: Method) -> Method:
    """The same method, with weights that are known only when its clients have trained."""
    weigh = method.weigh or by_samples
    late = {"weigh": lambda cohort: weigh(cohort) + 0 * len(cohort.deltas)}
    return replace(method, **late, weigh_after_training=True)


LATE = [
    *(pytest.param(n, "loop", marks=[] if n in SUMMED else pytest.mark.exhaustive) for n in NAMES),
    *(("fedavg", "stacked"), ("fedau", "stacked")),
]


@pytest.mark.parametrize(("name", "backend"), LATE)
def test_weights_known_before_or_after_the_training_give_the_same(name, backend):
    other = play(waiting(made(name)), name, backend)
    assert_same(played(name, backend), other, rtol=1e-9, atol=1e-12)


# --- combinations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ("fedau", "fedsls", "weigh"),
        ("moon", "moon", "architecture"),
        ("fedlc", "fedrs", "loss"),
        ("scaffold", "fedsam", "correct"),
        ("median", "trimmed_mean", "aggregate"),
        ("fedadam", "fedavgm", "server"),
    ],
)
def test_what_two_methods_define_is_a_conflict(one, other, field):
    with pytest.raises(ValueError, match=f"two of the combined methods define `{field}`"):
        methods(one) | methods(other)


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


def test_names_and_optimisers_join():
    joined = Method(frozen=("a",), private=("b",)) | Method(frozen=("c",), private=("d",))
    assert (joined.frozen, joined.private) == (("a", "c"), ("b", "d"))
    adam = Method(optimisers=("adam",))
    assert (methods("scaffold") | Method()).optimisers == ("sgd",)
    assert (Method() | adam).optimisers == ("adam",)
    assert (methods("scaffold") | adam).optimisers == ()


def test_combining_methods_is_doing_both():
    needed = artifacts("fedsls")
    parts = methods("fedsls"), methods("fedprox", mu=0.5)
    both = simulate(parts[0] | parts[1], needed=needed).play(2)
    assert_same(both, simulate(parts[1] | parts[0], needed=needed).play(2))
    assert all(differ(both, simulate(part, needed=needed).play(2)) for part in parts)


def test_three_methods_at_once_are_the_same_in_both_backends():
    joined = methods("moon") | methods("feddecorr") | methods("fedau", cutoff=2)
    runs = [simulate(joined, backend).play(3) for backend in BACKENDS]
    assert {"previous", "pushes"} == set(runs[0].memory[1])
    assert_same(*runs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["scaffold", "fedcurv", "sgdm", "fednova"])
def test_whoever_keeps_all_entries_is_left_alone_by_methods(name):
    alone = Method(private=("body.", "head."))
    keywords = {"ccvr": True} if name == "fednova" else {}
    pair = (alone, alone | methods(name, **keywords))
    first, second = (simulate(of, weight_decay=0.0, momentum=0.0).play(3) for of in pair)
    for client, memory in first.memory.items():
        torch.testing.assert_close(second.memory[client]["private"], memory["private"])


@pytest.mark.parametrize("name", ["ditto", "apfl", "fedrod", "fedper"])
def test_fine_tuning_joins_methods_with_private_entries(name):
    tuned, plain = run(methods(name) | methods("finetuned")), run(methods(name))
    torch.testing.assert_close(tuned.run.server, plain.run.server, rtol=0, atol=0)
    assert len(plain.run.memory) == len(SIZES)
