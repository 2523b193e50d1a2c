"""Names of variants, sweeps, names that are added or too long, and names of the same work."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, registered
from fedgrid.study import checks, resolving
from fedgrid.study.command import run_of_names
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import run_content
from fedgrid.study.protocol import STAGES
from fedgrid.study.selection import part_folder, read_axis
from fedgrid.study.variants import read_value, split_name, write_value
from made import STUDIES

PLAIN = Grid(STUDIES)
QUICK = {"study": "fedsls", "scale": "quick"}
NAMES = {"protocol": "fedsls-quick", "dataset": "digits", "partition": "dir0.1", "seed": 0}


def configured(**config) -> Grid:
    """The grids under a configuration of FedSLS's quick scale."""
    return Grid(STUDIES, QUICK | config)


def resolved(**names) -> dict:
    return PLAIN.resolve(NAMES | {"method": "fedavg"} | names)


def table1(**config) -> dict:
    """The one block of table 1 under a configuration."""
    (block,) = configured(**config).narrow_blocks("fedsls", "quick", "table1")
    return block


# --- the rule of a name --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fedprox-mu0.1", {"fedprox": {"mu": 0.1}}),
        ("fedprox-mu1", {"fedprox": {"mu": 1.0}}),
        ("fedprox-mu1e-05", {"fedprox": {"mu": 0.00001}}),
        ("fedsl-f4", {"fedsl": {"f": 4}}),
        ("fedsls-readingB-tau0.25", {"fedsls": {"tau": 0.25, "reading": "B"}}),
        ("fedlmd-exacttrue", {"fedlmd": {"exact": True}}),
        ("fedlmd+prox-beta2-mu0.5", {"fedlmd": {"beta": 2.0}, "fedprox": {"mu": 0.5}}),
        ("fedprox-mu1-mu2", {"fedprox": {"mu": 2.0}}),  # of the variant fedprox-mu1
        ("moon-mu1-mu2", None),
        ("fedprox-nu1", None),
        ("fedprox-mu", None),
        ("fedsl-f4.5", None),
        ("nobody-mu1", None),
    ],
)
def test_a_methods_name_says_its_values(name, parts):
    if parts is None:
        assert not PLAIN.knows("method", name)
        with pytest.raises(UsageError, match="no method is called"):
            PLAIN.method(name, "digits")
        return
    found = PLAIN.method(name, "digits")
    assert found.keys() == parts.keys()
    for part, values in parts.items():
        assert {key: found[part][key] for key in values} == values
        defaults = PLAIN.method(part, "digits")[part]
        others = found[part].keys() - values.keys() - {"beta", "mu"}
        assert all(found[part][key] == defaults[key] for key in others)


def test_a_protocols_name_says_its_values():
    plain = PLAIN.protocol("fedsls-quick")
    found = PLAIN.protocol("fedsls-quick-lr0.1-local_unitepochs-clients40")
    assert found == plain | {"lr": 0.1, "local_unit": "epochs", "clients": 40}
    assert PLAIN.protocol("fedsls-quick-epochs")["local_unit"] == "epochs"  # a name of a study


def test_a_value_out_of_its_range_is_refused():
    with pytest.raises(UsageError, match=r"participation.*2"):
        PLAIN.protocol("fedsls-quick-participation2")


def test_a_hyper_parameter_that_came_later_leaves_earlier_settings_as_they_are():
    assert PLAIN.method("fedrep", "digits") == {"fedrep": {"head_share": 0.5}}
    assert PLAIN.method("pfedme-mu0", "digits") == PLAIN.method("pfedme", "digits")
    assert PLAIN.method("pfedme-mu0.5", "digits")["pfedme"]["mu"] == 0.5
    assert PLAIN.hyper_parameters("fedrep") == {"head_share": 0.5, "rest": True}


def test_the_error_says_which_hyper_parameters_there_are():
    with pytest.raises(UsageError, match=r"of fedprox with its value.*are mu0\.01"):
        PLAIN.method("fedprox-my0.1", "digits")


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans()))
def test_a_value_is_read_as_it_was_written(value):
    whole = isinstance(value, int) and abs(value) >= 10**18
    if not whole:
        assert read_value(write_value(value), value) == value


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=2), st.integers(0, 99))
def test_several_values_are_read_apart(floats, number):
    fields = {"m": 0.5, "mu": 0.5, "mu2": 1}
    name = "-".join(
        ["base", f"m{write_value(floats[0])}", f"mu{write_value(floats[1])}", f"mu2{number}"]
    )
    base, values = split_name(name, ["base"], lambda base: fields)
    assert base == "base"
    assert values == {"m": floats[0], "mu": floats[1], "mu2": number}


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("fedsls-quick-lr0.10", "fedsls-quick-lr0.1"),
        ("fedsls-quick-lr1e-1", "fedsls-quick-lr0.1"),
        ("fedsls-quick-lr.1", "fedsls-quick-lr0.1"),
        ("fedsls-quick-lr+0.1", "fedsls-quick-lr0.1"),
        ("fedsls-quick-lr0.1000000000000000055", "fedsls-quick-lr0.1"),
        ("fedsls-quick-lr0.00001-local02", "fedsls-quick-lr1e-05-local2"),
        ("fedprox-mu0.10", "fedprox-mu0.1"),
        ("fedprox-mu1.0", "fedprox-mu1"),
        ("fedprox-mu-0", "fedprox-mu0"),
        ("fedsl-f04", "fedsl-f4"),
    ],
)
def test_a_name_has_one_spelling(name, spelled):
    axis = "protocol" if name.startswith("fedsls-quick") else "method"
    with pytest.raises(UsageError, match=f"write {re.escape(spelled)}$"):
        PLAIN.knows(axis, name)
    assert PLAIN.knows(axis, spelled)


@pytest.mark.parametrize(
    "config",
    [
        {"partition": "dir0.1,dir0.1"},
        {"seed": "0,1,0"},
        {"seed": [1, 1]},
        {"method": ["fedavg", "fedavg"]},
        {"method": "fedsls-readingB-tau0.25,fedsls-tau0.25-readingB"},
        {"method": "fedlmd-beta2-tau0.5,fedlmd-tau0.5-beta2"},  # fedlmd-beta2 is a variant
        {"protocol": "fedsls-quick-lr0.1-local2,fedsls-quick-local2-lr0.1"},
        {"method": "fedprox", "sweep": {"fedprox": {"mu": ["0.1", "0.10"]}}},
        {"sweep": {"protocol": {"lr": [0.1, "1e-1"]}}},
    ],
)
def test_a_thing_is_named_once(config):
    with pytest.raises(UsageError, match="name it once"):
        configured(**config)


@pytest.mark.parametrize("seed", ["01", "0,00", ["007"]])
def test_a_seed_has_one_spelling(seed):
    with pytest.raises(UsageError, match=r"write seed\d$"):
        configured(seed=seed)


# --- sweeps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "values", "variants"),
    [
        (["fedavg", "fedprox"], {"mu": [0.01, 1]}, ["fedavg", "fedprox-mu0.01", "fedprox-mu1"]),
        ("fedprox", {"mu": ["0.1", "1"]}, ["fedprox-mu0.1", "fedprox-mu1"]),  # a command line's
        (
            "fedsls",
            {"tau": [0.5, 1], "reading": ["A", "B"]},
            [f"fedsls-tau{tau}-reading{reading}" for tau in ("0.5", "1") for reading in "AB"],
        ),
    ],
)
def test_a_sweep_replaces_a_name_by_its_variants(method, values, variants):
    name = method if isinstance(method, str) else method[-1]
    block = table1(sweep={name: values}, method=method)
    assert (block["method"], block["protocol"]) == (variants, ["fedsls-quick"])


@pytest.mark.parametrize("name", ["protocol", "fedsls-quick"])
def test_a_protocols_fields_are_swept(name):
    block = table1(sweep={name: {"lr": [0.1, 0.3]}})
    assert block["protocol"] == ["fedsls-quick-lr0.1", "fedsls-quick-lr0.3"]
    assert "fedsls" in block["method"]


def test_a_name_of_a_method_and_a_protocol_gives_each_its_own_fields():
    sweep = {"fedsls": {"tau": [0.5, 1], "lr": [0.1]}}
    block = {"protocol": "fedsls", "dataset": "cifar10", "method": "fedsls"}
    found = Grid(STUDIES | study(block=block, sweep=sweep)).narrow_blocks("mine", "quick", "main")
    assert found[0]["method"] == ["fedsls-tau0.5", "fedsls-tau1"]
    assert found[0]["protocol"] == ["fedsls-lr0.1"]


def study(**more) -> dict:
    """A study of FedProx and FedAvg with a sweep somewhere."""
    block = {**NAMES, "method": ["fedavg", "fedprox"]} | more.pop("block", {})
    return {
        "mine": {"title": "m", "products": {}, "scales": {"quick": {"grids": {"main": [block]}}}}
        | more
    }


@pytest.mark.parametrize("where", ["study", "block"])
def test_a_study_has_sweeps_for_all_grids_or_for_a_block(where):
    sweep = {"sweep": {"fedprox": {"mu": [0.1, 1]}}}
    found = Grid(STUDIES | study(**(sweep if where == "study" else {"block": sweep})))
    (block,) = found.narrow_blocks("mine", "quick", "main")
    assert block["method"] == ["fedavg", "fedprox-mu0.1", "fedprox-mu1"]
    narrowed = Grid(found.studies, {"method": ["fedprox-mu1"]})
    assert narrowed.narrow_blocks("mine", "quick", "main")[0]["method"] == ["fedprox-mu1"]


def narrowed(swept: dict, **config) -> dict:
    """The one block of a study with this sweep under a configuration."""
    asked = {"study": "mine", "scale": "quick"} | config
    (block,) = Grid(STUDIES | study(sweep=swept), asked).narrow_blocks("mine", "quick", "main")
    return block


MUS = {"fedprox": {"mu": [0.1, 1]}}
RATES = {"protocol": {"lr": [0.1, 0.2]}}


@pytest.mark.parametrize(
    ("axis", "asked", "chosen"),
    [
        ("method", "fedprox", ["fedprox-mu0.1", "fedprox-mu1"]),
        ("method", "fedprox-mu1", ["fedprox-mu1"]),
        ("method", "fedprox-mu0.5", ["fedprox-mu0.5"]),
        ("method", "fedavg", ["fedavg"]),
        ("method", "fedprox,moon", ["fedprox-mu0.1", "fedprox-mu1", "moon"]),
        ("method", "fedavg,+fedprox", ["fedavg", "fedprox"]),
        ("protocol", "fedsls-quick", ["fedsls-quick-lr0.1", "fedsls-quick-lr0.2"]),
        ("protocol", "fedsls-quick-lr0.2", ["fedsls-quick-lr0.2"]),
        ("protocol", "fedsls-quick-epochs", ["fedsls-quick-epochs"]),
    ],
)
def test_a_name_that_a_study_sweeps_stands_for_its_variants(axis, asked, chosen):
    swept = MUS if axis == "method" else RATES
    assert narrowed(swept, **{axis: asked})[axis] == chosen


def test_a_name_is_its_variants_where_it_is_swept_and_itself_elsewhere():
    swept = NAMES | {"method": ["fedprox"], "sweep": MUS}
    grids = {"plain": [NAMES | {"method": "fedprox"}]}
    grids |= {"tuned": [swept, NAMES | {"method": ["fedavg"]}]}  # one block keeps nothing
    grid = Grid(STUDIES | study(scales={"quick": {"grids": grids}}), {"method": "fedprox"})
    found = {of: [b["method"] for b in grid.narrow_blocks("mine", "quick", of)] for of in grids}
    assert found == {"plain": [["fedprox"]], "tuned": [["fedprox-mu0.1", "fedprox-mu1"]]}


def test_the_sweep_of_a_configuration_is_in_place_of_the_studys():
    block = narrowed(MUS, method="fedprox", sweep={"fedprox": {"mu": [5, 7]}})
    assert block["method"] == ["fedprox-mu5", "fedprox-mu7"]
    block = narrowed(RATES, protocol="fedsls-quick", sweep={"protocol": {"lr": [5]}})
    assert block["protocol"] == ["fedsls-quick-lr5"]


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        ({"fedprox": {"nu": [1]}}, "hyper-parameter or field of fedprox in `sweep`.*`nu`"),
        ({"fedprax": {"mu": [1]}}, "did you mean fedprox"),
        ({"fedprox": {"mu": ["much"]}}, "sweep: fedprox: mu is 'much', not a number"),
        ({"fedprox": {"mu": [True]}}, "sweep: fedprox: mu is True, not a number"),
        ({"fedsl": {"f": [2.5]}}, "sweep: fedsl: f is 2.5, not a whole number"),
        (
            {"fedlmd": {"tau": [1]}},
            "`sweep` names the method fedlmd, which no grid of this scale has",
        ),
        ({"fedlmd-quick": {"lr": [1]}}, "`sweep` names the protocol fedlmd-quick, which no grid"),
        ({"protocol": {"lr": [0.1, -1]}}, "lr: -1"),
        ({"protocol": {"augment": ["flip"]}}, "augment is 'flip', not a list"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(sweep, says):
    with pytest.raises(UsageError, match=says):
        configured(sweep=sweep, method=["fedprox", "fedsl"])


# --- names that are added, and the folder of a part -------------------------------------------


def test_a_plus_adds_a_row():
    block, plain = table1(method="+scaffold"), table1()
    assert block["method"] == [*plain["method"], "scaffold"]
    assert table1(method=["+scaffold", "+fedprox"])["method"] == block["method"]
    assert table1(method="fedavg,+fedsls-b")["method"] == ["fedavg", "fedsls-b"]
    assert table1(seed=["+3"])["seed"] == [0, 1, 2, 3]


def test_a_plus_before_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="no method is called `scafold`"):
        configured(method="+scafold")


@pytest.mark.parametrize(
    ("config", "folder"),
    [
        ({}, ""),
        ({"method": "fedavg,pull", "seed": [0]}, "/method=fedavg,pull/seed=0"),
        ({"method": "+pull"}, "/method=+pull"),
        ({"seed": [0], "partition": None}, "/seed=0"),
        ({"sweep": {}}, ""),
    ],
)
def test_a_part_has_a_folder_of_its_own(config, folder):
    assert part_folder(config) == folder


def test_different_parts_have_different_folders():
    sweeps = [{"fedprox": {"mu": values}} for values in ([0.1], [0.2], [0.1, 0.2])]
    methods = [[f"method{i}" for i in range(50)], [f"method{i}" for i in range(51)]]
    folders = [part_folder({"sweep": sweep}) for sweep in sweeps]
    folders += [part_folder({"method": names}) for names in methods]
    assert len({*folders}) == 5
    assert max(len(name) for folder in folders for name in folder.split("/")) < 120


def test_the_folder_of_a_part_can_be_made_whatever_its_names_are(tmp_path):
    folder = part_folder({"method": ["漢" * 90], "partition": ["語" * 80]})
    (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    assert folder != part_folder({"method": ["漢" * 91], "partition": ["語" * 80]})


def test_a_run_of_a_long_name_is_refused_in_a_notebook_and_in_a_grid():
    long = "m" * 260
    own = {"variants": {long: {"fedprox": {}}}}
    with pytest.raises(UsageError, match="File name too long"):
        run_of_names(NAMES | {"method": long}, Grid(STUDIES, own))
    with pytest.raises(UsageError, match="File name too long"):
        configured(**own, method=[long])


def test_bytes_count_and_not_characters(tmp_path):
    for kind, most in (("method", checks.LONGEST_NAME), ("dataset", checks.LONGEST_PART)):
        name = "é" * (most // 2)
        checks.check_length(kind, name)
        (tmp_path / name).mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="bytes"):
            checks.check_length(kind, f"{name}éé")


# --- names of the same work ----------------------------------------------------------------------


def first(**names) -> tuple[str, str]:
    run = resolved(**names)
    found = PLAIN.first_name(run)
    assert run_content(PLAIN.resolve(found)) == run_content(run)
    return found["protocol"], found["method"]


def test_the_same_work_has_one_name_under_which_it_is_trained():
    assert first() == ("fedsls-quick", "fedavg")
    assert first(method="fedprox-mu0.01") == ("fedsls-quick", "fedprox")
    assert first(method="fedprox-mu0.02") == ("fedsls-quick", "fedprox-mu0.02")
    assert first(method="fedsls-readingB") == ("fedsls-quick", "fedsls-b")
    assert first(method="fedsl") == ("fedsls-quick", "fedsl-f2")  # no grid has plain fedsl
    assert first(protocol="fedsls-quick-local10") == ("fedsls-quick-steps", "fedavg")
    assert first(protocol="fedsls-quick-tail3-metricbest") == ("fedsls-quick", "fedavg")


def test_what_a_stage_before_the_training_reads_makes_another_work():
    protocol = "fedsls-quick-pretrain_epochs2"
    assert first(protocol=protocol) == ("fedsls-quick", "fedavg")  # FedAvg needs no pretraining
    assert first(protocol=protocol, method="fedsls") == (protocol, "fedsls")


def test_values_of_a_dataset_are_part_of_the_work():
    """FedProx is tuned to mu = 0.001 on CIFAR-100."""
    assert first(dataset="cifar100", method="fedprox-mu0.001") == ("fedsls-quick", "fedprox")
    assert first(dataset="cifar100", method="fedprox-mu0.01")[1] == "fedprox-mu0.01"


def test_a_folder_of_what_methods_share_says_its_protocol():
    """A job on another machine has the folder's name only, which does not say the protocol's."""
    quick = "fedsls-quick"
    for name in (quick, f"{quick}-lr0.1", f"{quick}-lr0.1-batch16", f"{quick}-tail3-rounds7"):
        for stage, cell in PLAIN.cells(name).items():
            found = PLAIN.protocol(PLAIN.protocol_of_cell(cell))
            asked = PLAIN.protocol(name)
            assert {f: found[f] for f in STAGES[stage]} == {f: asked[f] for f in STAGES[stage]}
    assert PLAIN.cells(f"{quick}-lr0.1-rounds7") == PLAIN.cells(f"{quick}-lr0.1")
    fields = PLAIN.protocols[quick]
    named = Grid(STUDIES, {"protocols": {"mine": fields | {"lr": 0.7}, "yours": fields}})
    assert named.cells("yours") == named.cells(quick)
    renamed = Grid(STUDIES, {"protocols": {"hers": fields | {"lr": 0.7}}})
    assert renamed.cells("hers-batch16") == named.cells("mine-batch16")


# -- large grids -----------------------------------------------------------------------------------


def asked_of_grid(count: int, monkeypatch) -> dict[str, int]:
    """How often planning a sweep of so many values looks into the folders, and checks a block."""
    found = {"registered": 0, "_check_block": 0}

    def counts(name: str, function):
        def call(*arguments):
            found[name] += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        for module in (resolving, own_data, checks):
            patch.setattr(module, "registered", counts("registered", registered))
        patch.setattr(Grid, "_check_block", counts("_check_block", Grid._check_block))
        sweep = {"fedprox": {"mu": [value / 1000 for value in range(1, count + 1)]}}
        everything = configured(method="fedprox", sweep=sweep)
        runs = [everything.resolve(run) for run in everything.runs("fedsls", "quick", "table1")]
        for run in runs:
            everything.first_name(run)
        everything.products("fedsls", "quick")
        everything.narrow_blocks("fedsls", "quick", "table1")
    return found


def test_more_runs_are_planned_without_more_looks_into_folders(monkeypatch):
    """Each run looked through the folder of methods about fifty times."""
    few, many = (asked_of_grid(count, monkeypatch) for count in (2, 30))
    assert few == many


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("dir0,5", ["dir0.5"]),
        ("dir0,05, dir0.1,shards2,classes5", ["dir0.05", "dir0.1", "shards2", "classes5"]),
        ("[dir0,5,iid]", ["dir0.5", "iid"]),
    ],
)
def test_decimals_behind_a_comma_belong_to_their_partition(text, names):
    assert read_axis({"partition": text}, "partition")[0] == names
    assert read_axis({"seed": "0,5"}, "seed")[0] == [0, 5]


def tuned_study(methods: bool) -> Grid:
    """A study whose claim is about FedProx, of which two values are tried."""
    block = {"protocol": "p", "dataset": "digits", "partition": "dir0.1", "seed": [0]}
    block |= {"method": ["fedavg", "fedprox", "moon"], "sweep": {"fedprox": {"mu": [0.1, 1.0]}}}
    best = {"over": "lr", "methods": methods}
    product = {"from": {"runs": "runs/main", "settings": "settings/main"}, "with": {"best": best}}
    claim = {"says": "better", "section": "1", "method": "fedprox", "over": "fedavg", "least": 0}
    study = {
        "title": "mine",
        "protocols": {"p": {"base": "fedsls-quick"}},
        "scales": {"quick": {"grids": {"main": [block]}}},
        "products": {"claims": product | {"formats": ["csv"], "category": "Claims"}},
        "claims": [claim],
    }
    return Grid(STUDIES | {"mine": study}, {"study": "mine", "scale": "quick"})


def test_a_claim_about_a_tuned_method_needs_the_runs_of_all_its_variants():
    everything = tuned_study(methods=True)
    names = ["fedavg", "fedprox-mu0.1", "fedprox-mu1", "moon"]
    assert [run["method"] for run in everything.runs("mine", "quick", "main")] == names
    assert [run["method"] for run in everything.runs("mine", "quick", "main@1")] == names[:3]
    (judged,) = everything.judged_blocks("mine", "quick", "main")
    assert judged["method"] == ["fedavg", "fedprox", "moon"]
    (whole,) = everything.whole_blocks("mine", "quick", "main")
    assert whole["method"] == names


def test_a_claim_about_a_swept_method_is_refused_if_no_value_is_chosen():
    with pytest.raises(UsageError, match="fedprox"):
        tuned_study(methods=False)
