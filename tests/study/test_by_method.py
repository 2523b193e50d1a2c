"""Fields of a protocol that a method has for itself: `by_method`; and the fields of optimisers."""

import re

import pytest

from conftest import check_one
from fedgrid.method import Method
from fedgrid.notebook.api import load_method
from fedgrid.runtime.names import UsageError
from fedgrid.study import command, sizes
from fedgrid.study.checks import check_cohort, check_conditions, check_local, check_server_data
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import memory_mb, run_content, run_of_stage
from fedgrid.study.protocol import PROTOCOL, known_before
from fedgrid.training.build import build_method, check_method
from made import STUDIES

OWN = {"scaffold": {"optimiser": "sgd", "lr": 0.5}, "fedprox": {"lr": 1}}
ADAM = {"base": "fedsls-quick", "optimiser": "adam", "momentum": 0.0, "lr": 0.001}
NAMES = {"dataset": "digits", "partition": "dir0.1", "seed": 0}


@pytest.fixture(autouse=True)
def _only_mine_is_checked(monkeypatch):
    check_one(monkeypatch, "more")


def resolver(**protocols) -> Grid:
    return Grid(STUDIES, {"protocols": {"mine": ADAM | {"by_method": OWN}} | protocols})


def trained(method: str, protocol: str = "mine", **protocols) -> dict:
    """The protocol by which a run is trained."""
    run = resolver(**protocols).resolve(NAMES | {"protocol": protocol, "method": method})
    return run_of_stage("train", run)["protocol"]


def test_a_method_has_its_own_fields_and_the_others_the_protocols():
    found = {name: trained(name) for name in ("scaffold", "fedprox", "fedavg")}
    assert {name: (of["optimiser"], of["lr"]) for name, of in found.items()} == {
        **{"scaffold": ("sgd", 0.5), "fedprox": ("adam", 1.0), "fedavg": ("adam", 0.001)}
    }
    assert "by_method" not in found["fedavg"]
    by_name = trained("scaffold", "mine-lr0.25")  # what a name asks for wins
    assert (by_name["optimiser"], by_name["lr"]) == ("sgd", 0.25)


def test_one_method_drops_stragglers_and_another_takes_their_work():
    given = {"base": "fedsls-quick", "stragglers": 0.5, "local": 5}
    of = {"slow": given | {"by_method": {"fedavg": {"late": "dropped"}}}}
    assert trained("fedavg", "slow", **of)["late"] == "dropped"
    assert trained("fedprox", "slow", **of)["late"] == "partial"
    with pytest.raises(UsageError, match="`stragglers` changes nothing with `local: 1`"):
        check_conditions("p", PROTOCOL | {"stragglers": 0.5, "local": 1})
    check_conditions("p", PROTOCOL | {"stragglers": 0.5, "local": 1, "late": "dropped"})


def test_a_combination_has_the_fields_of_its_parts_which_must_agree():
    variants = {"scaffold+u": {"scaffold": {}, "uniform": {}}, "both": {part: {} for part in OWN}}
    protocols = {"mine": ADAM | {"by_method": OWN}}
    grid = Grid(STUDIES, {"protocols": protocols, "variants": variants})
    names = NAMES | {"protocol": "mine"}
    run = grid.resolve(names | {"method": "scaffold+u"})
    assert run_of_stage("train", run)["protocol"]["lr"] == 0.5
    with pytest.raises(UsageError, match=r"lr two values, 0.5 and 1.0, for a method of scaffold"):
        grid.resolve(names | {"method": "both"})


def test_what_all_methods_share_does_not_depend_on_a_methods_own_fields():
    plain = resolver(mine=ADAM)
    names = NAMES | {"protocol": "mine", "method": "scaffold"}
    for stage in ("partition", "pretrain", "saliency"):
        with_own, without = (run_of_stage(stage, g.resolve(names)) for g in (resolver(), plain))
        assert with_own == without
    assert resolver().cells("mine") == plain.cells("mine")


def test_a_run_with_its_own_fields_is_trained_once_under_both_names():
    grid, plain = resolver(yours=ADAM | {"by_method": OWN}), resolver(mine=ADAM)
    for method in ("scaffold", "fedavg"):
        names = NAMES | {"protocol": "yours", "method": method}
        assert grid.first_name(grid.resolve(names))["protocol"] == "mine"
    run, alone = (of.resolve(names | {"protocol": "mine"}) for of in (grid, plain))
    assert run_content(run) == run_content(alone)  # fields of other methods leave it alone


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"optimiser": "adam", "momentum": 0.9}, "momentum 0.9 belongs to SGD.*is adam: set"),
        ({"by_method": {"nobody": {}}}, "no method in `by_method` of here is called `nobody`"),
        (
            {"by_method": {"fedavg": {"rounds": 3}}},
            "no field of local training in `by_method` of here is called `rounds`",
        ),
        ({"by_method": {"sgdm": {"optimiser": "adam", "momentum": 0.5}}}, "by_method: sgdm: mom"),
        ({"least_steps": 5}, "here: least_steps and most_steps limit local epochs, and local work"),
        ({"most_steps": 5}, "here: least_steps and most_steps limit local epochs"),
        (
            {"local_unit": "epochs", "least_steps": 6, "most_steps": 5},
            "here: least_steps 6 is more than most_steps 5: lower it, or set `most_steps: 0`",
        ),
        ({"by_method": {"sgdm": {"least_steps": 5}}}, "by_method: sgdm: least_steps and most_st"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(fields, says):
    with pytest.raises(UsageError, match=says):
        check_local("here", PROTOCOL | fields)


def test_limits_of_steps_that_go_together_are_taken():
    epochs = {"local_unit": "epochs", "least_steps": 5}
    for fields in (epochs, epochs | {"most_steps": 5}, epochs | {"most_steps": 0}):
        check_local("here", PROTOCOL | fields)
        check_local("here", PROTOCOL | {"by_method": {"sgdm": fields}})


HOLD = r"the equations of method `{}` do not hold for the optimiser {}: set `optimiser: sgd`"


def grid_of(method: str, own: dict | None = None, **fields) -> Grid:
    """The grids of the studies and of one more, with a run of a method with Adam."""
    mine = ADAM | {"by_method": own or {}} | fields
    block = NAMES | {"protocol": "mine", "method": method}
    variants = {"scaffold+norm": {"scaffold": {}, "contribution": {}}}
    scales = {"s": {"grids": {"g": [block]}}}
    about = {"protocols": {"mine": mine}, "variants": variants, "scales": scales, "products": {}}
    return Grid(STUDIES | {"more": about})


def test_fields_of_two_parts_that_do_not_go_together_are_refused():
    own = {"scaffold": {"least_steps": 6}, "contribution": {"most_steps": 5}}
    with pytest.raises(UsageError, match=r"\+norm`: least_steps 6 is more than most_steps 5"):
        grid_of("scaffold+norm", own, local_unit="epochs")


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
@pytest.mark.parametrize("method", ["scaffold", "sgdm-resettrue", "scaffold+norm"])
def test_a_method_whose_equations_do_not_hold_for_the_optimiser_is_refused(method, optimiser):
    part = method.partition("+")[0].partition("-")[0]
    with pytest.raises(UsageError, match=re.escape(HOLD.format(method, optimiser))):
        grid_of(method, optimiser=optimiser)
    grid_of(method, {part: {"optimiser": "sgd"}}, optimiser=optimiser)  # it has its own
    with pytest.raises(UsageError, match=re.escape(HOLD.format(method, optimiser))):
        grid_of(method, {part: {"optimiser": optimiser}}, optimiser="sgd")
    grid_of("fedavg", optimiser=optimiser)  # its equations hold for every one


def test_a_command_refuses_an_optimiser_as_a_grid_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser = command.run_parser("...")
    run = "fedsls-quick/digits/dir0.1/scaffold/seed0"
    given = ["fedsls-quick-optimiseradam/digits/dir0.1/scaffold/seed0"]
    with pytest.raises(UsageError, match=HOLD.format("scaffold", "adam")):
        command.resolve_run(parser.parse_args(given), "train")
    command.resolve_run(parser.parse_args([run]), "train")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: load_method("scaffold") | Method(), HOLD.format("a", "adam")),
        (lambda: Method(optimisers=("sgd",)), HOLD.format("a", "adam")),
        (
            lambda: load_method("scaffold") | Method(optimisers=("adam",)),
            "`a` has files whose equations hold for no common optimiser: leave one out",
        ),
        (lambda: Method(average_optimiser=True, train_served=True), "takes a second step on each"),
    ],
)
def test_a_method_of_a_notebook_is_refused_as_one_of_files(made, says):
    with pytest.raises(UsageError, match=says):
        check_method("a", made(), PROTOCOL | {"optimiser": "adam"})


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        (PROTOCOL | {"momentum": 0.0}, r"`sgdm` averages the clients' momentum, and.*is 0: set"),
        ({"optimiser_state": "kept"}, r"`sgdm` averages the clients' optimisers, and.*reset`"),
    ],
)
def test_averages_of_optimisers_need_momentum_that_no_client_keeps(protocol, says):
    run = {"method": {"sgdm": {"reset": False}}, "protocol": protocol}
    with pytest.raises(UsageError, match=says):
        build_method(run)
    build_method(run | {"method": {"sgdm": {"reset": True}}})
    build_method(run | {"protocol": PROTOCOL | {"momentum": 0.9}})


def test_an_availability_that_cannot_be_is_refused():
    sticky = PROTOCOL | {"availability": "sticky"}
    check_conditions("here", sticky)
    check_conditions("here", sticky | {"available": 0.95, "available_rounds": 19.1})
    with pytest.raises(UsageError, match="`available_rounds` to 19 or more"):
        check_conditions("here", sticky | {"available": 0.95})
    check_conditions("here", sticky | {"available": 0.95, "availability": "cyclic"})
    with pytest.raises(UsageError, match="set `availability: always`"):
        check_conditions("here", sticky | {"batches": "continued"})
    check_cohort("fedau", {"contribution": {}}, PROTOCOL, "digits")
    with pytest.raises(UsageError, match=r"availability sticky a round.*`availability: always`"):
        check_cohort("fedau", {"contribution": {}}, sticky, "digits")


def test_an_availability_joins_the_settings_of_runs_that_have_one():
    always = known_before(PROTOCOL | {"availability": "always"})
    assert not {"availability", "available", "available_rounds"} & {*always}
    cyclic = known_before(PROTOCOL | {"availability": "cyclic", "available_rounds": 5.0})
    assert (cyclic["availability"], cyclic["available_rounds"]) == ("cyclic", 5.0)


def test_a_method_that_trains_on_the_servers_samples_needs_some():
    with pytest.raises(UsageError, match=r"method `fedavg\+df`.*set `server_data`"):
        check_server_data("fedavg+df", {"fedavg": {}, "feddf": {}}, PROTOCOL)
    check_server_data("feddf", {"feddf": {}}, PROTOCOL | {"server_data": 0.1})
    check_server_data("fedavg", {"fedavg": {}}, PROTOCOL)


def test_a_cohort_of_one_has_nobody_to_be_compared_with():
    alone = PROTOCOL | {"clients": 10, "participation": 0.1}
    with pytest.raises(UsageError, match=r"participation 0.1 of 10 clients samples 1: sample at"):
        check_cohort("fedavg+norm", {"fedavg": {}, "contribution": {}}, alone, "digits")
    check_cohort("fedavg", {"fedavg": {}}, alone, "digits")
    check_cohort("fedavg+norm", {"contribution": {}}, alone | {"participation": 0.2}, "digits")


def test_the_memory_of_a_job_counts_the_optimisers_that_clients_keep(monkeypatch):
    size = {"weights": 45, "training": 3, "evaluation": 0.5}
    monkeypatch.setattr(sizes, "measure_sizes", lambda model, inputs: size)
    grid = resolver(kept=ADAM | {"optimiser_state": "kept", "model": "resnet18"})
    run = grid.resolve(NAMES | {"protocol": "kept", "method": "fedavg"})
    reset = run | {"protocol": run["protocol"] | {"optimiser_state": "reset"}}
    clients, share = run["protocol"]["clients"], run["protocol"]["participation"]
    used_last = min(2 * 45 * clients, 1500)
    more = 2 * 45 * 2 * clients * share + used_last
    assert memory_mb(run) - memory_mb(reset) == pytest.approx(more, abs=1)
