"""What the rules are told, asked in this process: jobs, links, resources, products, refusals."""

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from snakemake.settings.types import DeploymentMethod

from conftest import HERE, TABLE
from fedgrid.plan import configuration
from fedgrid.plan import runs as planned_runs
from fedgrid.plan import tables as planned_tables
from fedgrid.plan.asked import LONGEST, name_inputs, shorten
from fedgrid.plan.configuration import Plan, variables
from fedgrid.plan.invocation import Invocation
from fedgrid.plan.opening import describe_made
from fedgrid.plan.products import Products
from fedgrid.plan.refusals import refuse_targets
from fedgrid.plan.runs import Runs, growing, partition_specification
from fedgrid.runtime import forced
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, registered
from fedgrid.store import kept
from fedgrid.store.identity import hash_content
from fedgrid.store.kept import hash_rows, item_path
from fedgrid.study.jobs import STATES_READ, memory_mb
from fedgrid.study.reading import read_config
from made import STUDIES
from planned import answers, counted, jobs_of, methods_of, plan_of, product_of, snakemake, wildcards

STUDY = "results/studies/fedsls/quick"
NAMES = {"dataset": "digits", "partition": "dir0.1", "method": "fedavg", "seed": 0}
QUICK = {"protocol": "fedsls-quick"} | NAMES
PAPER = {"scale": "paper", "dataset": ["cifar10"], "partition": ["dir0.05"], "seed": [0]}
PART = {"partition": ["dir0.1"], "seed": [0]}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """A plan writes own data into the environment."""
    monkeypatch.setenv(own_data.VARIABLE, "{}")


# -- jobs ---------------------------------------------------------------------------------------


SHARED = ("partition", "pretrain", "saliency", "latents")  # stages that methods share


@pytest.mark.parametrize(
    ("config", "jobs"),
    [
        ({}, dict.fromkeys(SHARED, 9) | {"data": 1, "train": 81}),
        ({"scale": "paper"}, dict.fromkeys(SHARED, 60) | {"data": 4, "weights": 2, "train": 540}),
        (
            PAPER | {"method": ["fedavg", "fedsl-f2", "fedsls"]},
            dict.fromkeys(SHARED, 1) | {"data": 1, "weights": 1, "train": 3},
        ),
        (PART | {"method": ["fedavg"]}, {"data": 1, "partition": 1, "train": 1}),  # no needs
    ],
)
def test_a_table_has_these_jobs(config, jobs):
    assert counted(product_of(plan_of(**config), "table1")) == jobs | {"runs_table": 1}


@pytest.mark.parametrize("seed", ["2", "", "7,8"])
def test_a_figure_of_one_seed_needs_the_partitions_of_one_seed(seed):
    jobs = counted(product_of(plan_of(seed=seed), "figure4"))
    assert jobs == {"data": 1, "partition": 3, "partition_table": 1}


def test_every_stage_waits_for_its_inputs():
    """Of a run of FedSL from published weights."""
    plan = plan_of(**PAPER, method=["fedsl-f2"])
    (run,) = plan.grid.runs("fedsls", "paper", "table1")
    runs, names = Runs(plan), wildcards(**run)
    inputs = runs.inputs("data", "partition", "weights", "needs")(names)
    assert {*inputs} == {"data", "partition", "weights", "latents"}
    assert inputs["data"] == ["results/data/cifar10/meta.json"]
    assert inputs["weights"].flags == {"ancient": True}
    assert {*runs.inputs("data", "partition")(names)} == {"data", "partition"}


def test_an_added_method_is_one_more_row_and_a_sweep_a_row_for_each_value():
    plain = product_of(plan_of(**PART), "table1")
    more = product_of(plan_of(**PART, method=["+scaffold"]), "table1")
    assert methods_of(more) == methods_of(plain) | {"scaffold"}
    assert len(more["train"]) == len(plain["train"]) + 1 == 10
    sweep = {"fedprox": {"mu": [0.001, 0.01, 0.1, 1]}}  # 0.01 is the default: another name
    swept = product_of(plan_of(sweep=sweep, method=["fedprox"], **PART), "table1")
    named = {f"fedprox-mu{mu}" for mu in ("0.001", "0.01", "0.1", "1")}
    assert methods_of(swept) == {"fedprox", *named}


def test_a_collected_table_can_be_asked_for_although_a_product_has_its_name():
    plan = plan_of(**PART, method=["fedavg"])
    target = f"{STUDY}/partition=dir0.1/method=fedavg/seed=0/runs/table1.csv"
    refuse_targets(plan, [target])
    assert counted(jobs_of(plan, [f"{plan.current_folder}/runs/table1.csv"]))["train"] == 1
    assert f"{plan.current_folder}/runs/table1.csv" == target


# -- results in a storage -----------------------------------------------------------------------

STORAGE = SimpleNamespace(default_storage_provider="s3", default_storage_prefix="s3://grids/one/")


def in_storage(**config) -> Plan:
    return plan_of(snakemake(storage_settings=STORAGE), **config)


def test_in_a_storage_a_job_declares_all_that_it_reads():
    runs, names = Runs(in_storage()), wildcards(**QUICK | {"method": "fedsls"})
    data = runs.inputs("data")(names)["data"]
    assert {Path(path).name for path in data} >= {"meta.json", "train_images.npy"}
    assert {"train_writers.npy", "test_writers.npy"} <= {Path(path).name for path in data}
    assert runs.inputs_of_partition(
        wildcards(**names, recipe="classwise", clients=20, held="")
    ) == {"data": data}
    assert runs.inputs("pretrain")(names)["pretrain"].endswith("/seed0.tar")
    place = {"study": "fedsls", "scale": "quick", "grid": "table1"}
    plan = in_storage(**PART, method=["fedavg"])
    files = [Path(path).name for path in answers(plan).tables.inputs("runs")(wildcards(**place))]
    assert files == ["metrics.csv", "summary.json"]


def test_in_a_storage_a_run_of_two_names_is_trained_under_both():
    """What lies in a folder here says nothing about the storage."""
    runs = Runs(in_storage(device="auto"))
    same = wildcards(**QUICK | {"protocol": "fedsls-quick-tail3"})
    assert "first" not in runs.inputs("data", "needs")(same)
    assert not runs.is_linked(same)
    assert runs.own_gpu("train")(same) == 1


def test_in_a_storage_kept_runs_stand_in_whatever_lies_here(monkeypatch):
    monkeypatch.setattr(planned_runs, "is_finished", lambda *_: True)
    for plan, is_read in ((in_storage(), True), (plan_of(), False)):
        runs = Runs(with_kept(plan, "moon"))
        names = tuple((QUICK | {"method": "moon"}).items())
        assert bool(runs.kept_entry("runs", "fedsls", "quick", names)) is is_read


def test_in_a_storage_a_table_reads_the_copies_of_its_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    monkeypatch.setattr(planned_tables, "write_in_file", lambda plan, words: said.append(words))
    plan = in_storage(**PART, method=["fedavg"])
    find = answers(plan).tables.arguments("runs")
    place = wildcards(study="fedsls", scale="quick", grid="table1")
    folder = plan.folder.format(study="fedsls", scale="quick")
    for top in ("", ".snakemake/storage/s3/grids/one/"):
        find(place, [f"{top}{folder}/runs/table1.csv"])
    assert said[1] == [*said[0], "--results", ".snakemake/storage/s3/grids/one/results"]


def test_in_a_storage_an_interpolation_needs_a_place_for_checkpoints():
    config = {"study": "privatization", "method": ["AaBb"], "partition": ["classes5"]}
    names = wildcards(protocol="privatization-quick", **NAMES | {"method": "AaBb"})
    with pytest.raises(UsageError, match="set `checkpoints`"):
        Runs(in_storage(**config)).inputs("metrics")(names)
    plan = in_storage(**config, checkpoints="/volume/")
    assert Runs(plan).inputs("metrics")(names)
    assert variables(plan)["FEDGRID_CHECKPOINTS"] == "/volume/grids/one"
    assert variables(plan_of(checkpoints="/volume"))["FEDGRID_CHECKPOINTS"] == "/volume"


def test_the_address_of_a_table_in_a_storage_is_said():
    assert describe_made(in_storage(), [TABLE]) == f"Open s3://grids/one/{TABLE}"


# -- runs of two names --------------------------------------------------------------------------


def test_a_run_of_two_names_waits_for_the_first():
    """So that the second does not hold a core or a GPU while the first is trained."""
    runs, find = Runs(plan_of(device="auto")), ("data", "partition", "weights", "needs")
    same = wildcards(**QUICK | {"protocol": "fedsls-quick-tail3"})
    first = "results/runs/fedsls-quick/digits/dir0.1/fedavg/seed0/metrics.csv"
    assert runs.inputs(*find)(same)["first"] == first
    assert "first" not in runs.inputs(*find)(wildcards(**QUICK))
    assert name_inputs(same, {"first": first, "data": ["a/meta.json"]}) == ["data=a"]


@pytest.fixture
def tiny(project, monkeypatch):
    """The runs of tiny.yaml, in the folder of a finished project."""
    monkeypatch.chdir(project)
    return Runs(plan_of(**read_config(HERE / "tiny.yaml")))


def linked(runs: Runs, *names: str) -> list[str]:
    """Those names of a protocol for which a run is linked."""
    return [name for name in names if runs.is_linked(wildcards(**NAMES, protocol=name))]


def test_a_job_is_planned_as_a_link_only_if_it_will_be_one(tiny):
    names = ("tiny", "tiny-tail1", "long-tail1")  # `tiny` is finished, `long` is trained before
    assert linked(tiny, *names) == ["tiny-tail1", "long-tail1"]
    run = "results/checkpoints/runs/tiny/digits/dir0.1/fedavg/seed0.safetensors.finished"
    summary = Path(run) / "summary.json"
    summary.write_text(summary.read_text().replace('"torch": "', '"torch": "0.'))
    assert linked(tiny, *names) == ["long-tail1"]
    shutil.rmtree(run)
    assert linked(tiny, *names) == ["long-tail1"]


METRICS = "results/runs/fedsls-quick/digits/dir0.1/fedavg/seed0/metrics.csv"


@pytest.mark.parametrize(
    ("settings", "is_forced"),
    [({"forcerun": {"fedgrid_train"}}, True), ({"forcerun": {"fedgrid_partition"}}, False),
     ({"forceall": True, "targets": {TABLE}}, True),
     ({"forcetargets": True, "targets": {METRICS}}, True),
     ({"forcetargets": True, "targets": {TABLE}}, False), ({"targets": {METRICS}}, False)],
)  # fmt: skip
def test_what_a_command_forces_is_told_to_its_jobs(settings, is_forced, monkeypatch):
    monkeypatch.setenv(forced.VARIABLE, "")
    link = "fedsls-quick-tail3"
    given = {"forceall": False, "forcetargets": False, "forcerun": set(), "targets": set()}
    dag_settings = SimpleNamespace(**given | settings)
    runs = Runs(plan_of(snakemake(dag_settings=dag_settings)))
    runs.resolve(wildcards(**QUICK))
    assert forced.is_forced("train", [METRICS]) is is_forced
    is_every_run = bool({"forcerun", "forceall"} & {*settings}) and is_forced
    assert linked(runs, link) == ([] if is_every_run else [link])  # a forced run is no link


def test_a_job_of_a_cluster_tells_nothing_of_its_own(monkeypatch):
    monkeypatch.setenv(forced.VARIABLE, "told")
    settings = SimpleNamespace(forceall=True, forcerun=set())
    job = snakemake(dag_settings=settings, is_main_process=False)
    Runs(plan_of(job)).resolve(wildcards(**QUICK))
    assert os.environ[forced.VARIABLE] == "told"


# -- settings and resources ---------------------------------------------------------------------


def test_a_partition_has_what_its_path_says():
    names = {"dataset": "digits", "partition": "dir0.1", "seed": "3", "recipe": "classwise"}
    names |= {"clients": "20", "held": "-test0.2"}
    said = json.loads(partition_specification(wildcards(**names)))
    assert said["protocol"]["clients"] == 20
    assert said["protocol"]["client_test"] == 0.2
    assert (said["seed"], said["name"]["method"]) == (3, said["name"]["protocol"])


def test_methods_share_what_does_not_depend_on_them():
    plan = plan_of()
    runs = Runs(plan)
    one, other = (wildcards(**QUICK | {"method": name}) for name in ("fedavg", "moon"))
    for answer in (runs.specification, runs.code):
        assert answer("pretrain")(one) == answer("pretrain")(other)
        assert answer("train")(one) != answer("train")(other)
    cell = plan.grid.cells("fedsls-quick")["saliency"]  # stands for a protocol
    names = {name: NAMES[name] for name in ("dataset", "partition", "seed")}
    said = json.loads(runs.specification("saliency")(wildcards(**names, cell=cell)))
    assert said["protocol"]["model"] == plan.grid.protocol("fedsls-quick")["model"]


def test_a_link_needs_little_memory_and_no_gpu():
    runs = Runs(plan_of(device="cuda"))
    trained = wildcards(**QUICK)
    link = wildcards(**QUICK | {"protocol": "fedsls-quick-tail3"})
    memory, of_all = runs.memory("train"), memory_mb(runs.resolve(trained))
    assert memory(trained) == runs.memory("interpolation")(link) == of_all
    assert memory(link) < memory(trained)
    gpu = runs.own_gpu("train")
    assert (gpu(trained), gpu(link)) == (1, 0)


@pytest.mark.parametrize(
    ("device", "groups", "own", "shared"),
    [("cpu", [], 0, None), ("cpu", ["train"], 0, None), ("cuda", [], 1, None),
     ("auto", ["train"], 0, "gpu:1"), ("auto", ["latents"], 1, None)],
)  # fmt: skip
def test_the_jobs_of_a_group_share_a_gpu(device, groups, own, shared):
    runs = Runs(plan_of(snakemake(groups=groups), device=device))
    assert runs.own_gpu("train")(wildcards(**QUICK)) == own
    assert runs.shared_gpu("train")(wildcards(**QUICK)) == shared


def test_later_attempts_get_more():
    assert [growing(100)(None, attempt) for attempt in (1, 2, 3, 4)] == [100, 200, 300, 300]
    assert growing(lambda names: names)(5, 2) == 10


def test_a_snakemake_in_a_group_runs_all_other_jobs_if_one_fails():
    execution = SimpleNamespace(keep_going=False)
    for words, keeps_going in ([[], False], [["--local-groupid", "1"], True]):
        started = snakemake(words, remote_exec=True, execution_settings=execution)
        Runs(plan_of(started)).resolve(wildcards(**QUICK))
        assert execution.keep_going is keeps_going


def test_an_interpolation_whose_state_is_not_kept_is_refused(monkeypatch):
    monkeypatch.setenv(STATES_READ, "")
    plan, names = plan_of(keep_state_gb=1e-6), ("metrics", "data", "partition")
    with pytest.raises(UsageError, match="keep_state_gb: 1"):
        Runs(plan).inputs(*names)(wildcards(**QUICK))
    block = {axis: [value] for axis, value in QUICK.items()}
    monkeypatch.setenv(STATES_READ, json.dumps([block]))
    assert "metrics" in Runs(plan).inputs(*names)(wildcards(**QUICK))


def test_jobs_are_told_the_machine_and_the_states_that_products_read():
    plan = plan_of(device="cuda", study="privatization", log="tensorboard")
    told = variables(plan)
    assert (told["FEDGRID_DEVICE"], told["FEDGRID_TRACK"]) == ("cuda", "tensorboard")
    assert (told["FEDGRID_PYTHON"], told["FEDGRID_WARM"]) == (sys.executable, str(os.getpid()))
    assert json.loads(told[STATES_READ])
    deployed = SimpleNamespace(deployment_method={DeploymentMethod.CONDA})
    job = snakemake(remote_exec=True, deployment_settings=deployed)
    told = variables(plan_of(job))
    assert (told["FEDGRID_PYTHON"], told["FEDGRID_WARM"]) == ("python", "")


def test_long_arguments_are_in_a_file_that_a_dry_run_does_not_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shorten(plan_of(), ["a=b"]) == ["a=b"]
    long = "x" * (LONGEST + 1)
    path = Path(shorten(plan_of(), long).removeprefix("@"))
    assert not path.exists()
    runs_jobs = snakemake(executor_plugin="local", dryrun=False)
    assert shorten(plan_of(runs_jobs), long) == f"@{path}"
    assert path.read_text() == f"{long}\n"


# -- products -----------------------------------------------------------------------------------


def test_products_of_emptied_grids_are_left_out():
    plan = plan_of(scale="paper", dataset=["cifar100"], seed=[0])
    files = answers(plan).products.all_files("fedsls", "results")
    names = {Path(file).stem for file in files}
    assert not {name for name in names if "ablation" in name or "pilot" in name}
    assert {"figure4", "claims", "resources"} <= names


def test_one_claim_needs_its_own_runs_only():
    """Claim 7 compares static and dynamic weights at three partitions with three seeds."""
    jobs = product_of(plan_of(), "claims", claim=7)
    assert methods_of(jobs) == {"fedsls", "fedsls_dynamic"}
    assert len(jobs["train"]) == 2 * 3 * 3
    assert not {"maps", "scores"} & jobs.keys()
    assert len(product_of(plan_of(seed=[0]), "contrasts", claim=7)["train"]) == 2 * 3
    of_maps = counted(product_of(plan_of(), "claims", claim=11))
    assert "train" not in of_maps
    assert (of_maps["scores"], of_maps["maps"]) == (1, 3 + 3 + 3 + 1)


def test_kept_maps_are_not_made_again_unless_kept_things_are_not_asked_for():
    assert not {"maps", "scores"} & product_of(plan_of(scale="small"), "figure5").keys()
    jobs = counted(product_of(plan_of(scale="small", kept=False), "figure5"))
    assert (jobs["scores"], jobs["maps"]) == (1, 3 + 3 + 3 + 1)
    sources = [
        answers(plan_of(scale="small", kept=is_kept)).products.hash_source(
            "fedsls", "small", "fidelity/scores"
        )
        for is_kept in (True, False)
    ]
    assert sources[0] != sources[1]


def test_a_products_content_is_that_of_its_copy_and_follows_its_runs():
    def content(scale: dict, product: str = "table1", **config) -> str:
        products = answers(plan_of(**config)).products
        return products.content("fedsls", product)(wildcards(**scale))

    drawn = content({"scale": "quick"})
    assert content({}) == drawn
    assert len({drawn, content({}, seed=[0]), content({}, method=["fedavg"])}) == 3
    assert content({"claim": 7}, "claims") != content({"claim": 1}, "claims")
    whole, part = (content({}, "figure5", dataset=of) for of in ("", "digits"))
    assert whole != part  # the setting of an experiment


def test_the_entry_of_a_part_says_what_the_whole_study_has():
    def options(**config) -> dict:
        products = answers(plan_of(**config)).products
        return json.loads(products.entry("fedsls", "claims")(wildcards(scale="quick")))["with"]

    assert "grid" not in options()
    seeds = {seed for block in options(seed=[0])["grid"] for seed in block["seed"]}
    assert seeds == {0, 1, 2}


# -- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train", "runs_table", "results", "fedsls_table1"])
def test_a_study_does_not_take_the_name_of_a_rule(name):
    mine = {"products": {"table1": {}}}
    with pytest.raises(UsageError, match="Snakemake has another rule called") as refused:
        configuration.check_rules({**STUDIES, name: mine})
    assert refused.value.where == f"{name}.yaml"
    configuration.check_rules({**STUDIES, "mine": mine})


def test_all_rules_are_known():
    files = [HERE.parent / "Snakefile", *(HERE.parent / "workflow/rules").glob("*.smk")]
    found = [re.findall(r"^rule (\w+):", file.read_text("utf-8"), re.MULTILINE) for file in files]
    assert {*chain(*found)} == {*configuration.RULES}


# -- kept runs ----------------------------------------------------------------------------------


def with_kept(plan: Plan, *methods: str) -> Plan:
    """The plan, with runs of methods that are kept with the study."""
    index = {}
    for number, run in enumerate(plan.grid.runs("fedsls", "quick", "table1"), 1):
        if run["method"] in methods:
            whole = plan.grid.resolve(run)
            path, content = item_path("runs", whole), hash_content("runs", whole)
            made = dict.fromkeys(("fedgrid", "code", "device", "threads", "torch"), "1")
            kinds = f"runs={hash_rows([{'round': '0'}])}"
            index[path] = {"id": str(number), "path": path, "content": content, "kinds": kinds}
            index[path] |= made | dict.fromkeys(kept.OPTIONAL, "")
    return replace(plan, kept={("fedsls", "quick"): index})


def test_kept_runs_are_read_and_not_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"study": "fedsls", "scale": "quick", "grid": "table1"}
    plan = plan_of(**PART, method=["fedavg", "moon"])
    tables = answers(with_kept(plan, "moon")).tables
    *files, index, table = tables.inputs("runs")(wildcards(**names))
    assert files == ["results/runs/fedsls-quick/digits/dir0.1/fedavg/seed0/metrics.csv"]
    assert (Path(index).name, Path(table).name) == ("index.csv", "runs.csv")
    assert index.flags == table.flags == {"ancient": True, "local": True}
    words = tables.words("runs", *names.values())
    assert words[words.index("--kept") + 1] == "fedsls/quick"
    assert len(words[words.index("--ids") + 1 :]) == 1


def test_kept_runs_with_other_settings_are_told_once_and_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said, place = [], {"study": "fedsls", "scale": "quick", "grid": "table1"}
    plan = with_kept(plan_of(**PART, method=["fedavg", "moon"]), "fedavg", "moon")
    for path, entry in plan.kept["fedsls", "quick"].items():
        entry["content"] += "0" * ("moon" in path)
    monkeypatch.setattr(plan.snakemake, "say", lambda sentence, level: said.append(sentence))
    tables = answers(plan).tables
    for _ in range(2):
        assert tables.inputs("runs")(wildcards(**place))[0].endswith("moon/seed0/metrics.csv")
    (sentence,) = said
    assert "made with other settings" in sentence
    assert "fedsls-quick/digits/dir0.1/moon/seed0" in sentence
    assert "fedavg" not in sentence


def test_a_table_follows_its_kept_runs_and_no_others():
    plan, place = plan_of(**PART, method=["fedavg"]), ("runs", "fedsls", "quick", "table1")
    of_others, plain = answers(with_kept(plan, "moon")).tables, answers(plan).tables
    assert of_others.words(*place) == plain.words(*place)
    assert of_others.hash_grid(*place) == plain.hash_grid(*place)
    plan = with_kept(plan, "fedavg")
    before = answers(plan).tables.hash_grid(*place)
    (entry,) = plan.kept["fedsls", "quick"].values()
    entry["device"] = "another"  # what it was made with
    assert answers(plan).tables.hash_grid(*place) != before


@pytest.mark.parametrize("changed", ["methods/fedavg.py", "engine"])
def test_a_change_of_the_code_since_a_run_was_kept_makes_its_table_stale(changed, monkeypatch):
    plan = with_kept(plan_of(**PART, method=["fedavg"]), "fedavg")
    place = ("runs", "fedsls", "quick", "table1")

    def planned(said: str) -> tuple[str, str]:
        monkeypatch.setattr(kept, "list_changed_code", lambda code, files, run: said)
        tables = answers(plan).tables
        return tables.hash_grid(*place), tables.words(*place)[-1]

    before, now = planned(""), planned(changed)
    assert before[0] != now[0]
    assert now[1] == f"{before[1]}={changed}"


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "target", "said"),
    [
        ({"scale": "paper", "dataset": ["tinyimagenet"]}, "results/figure4.pdf",
         "figure4 of fedsls has no runs at the paper scale with dataset tinyimagenet"),
        ({"scale": "paper", "dataset": ["tinyimagenet"]},
         "results/studies/fedsls/paper/figure4.pdf", "figure4 of fedsls has no runs"),
        ({"seed": [0]}, f"{STUDY}/table1.csv",
         f"with this configuration table1 is in {STUDY}/seed=0: ask for {STUDY}/seed=0/table1.csv"),
        ({}, "results/leverage.csv", "add --config study=normalization"),
        ({}, "results/claims/99.csv", "claims: there is no claim 99"),
        ({}, "results/studies/fedlmd/quick/claims/99.csv", "the study fedlmd has "),
        ({}, "results/tabel1.csv", "no product of the study fedsls is called `tabel1`: did you me"),
        ({}, "table1", "ask for its file, results/table1.csv"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_made_is_refused(config, target, said):
    with pytest.raises(UsageError) as refused:
        refuse_targets(plan_of(**config), ["--cores", "1", target])
    assert said in str(refused.value)


def test_what_can_be_made_and_the_value_of_an_option_are_not_refused():
    plan = plan_of(seed=[0])
    refuse_targets(plan, [TABLE, f"{STUDY}/seed=0/table1.csv", "results/claims/17.csv", "-n"])
    refuse_targets(plan_of(), ["--report", "results/report.html"])
    refuse_targets(plan_of(), ["--cores", "1", "--until", "table1", "--", "all"])


def test_a_product_has_every_format_that_is_asked_for():
    plan = plan_of(method=["fedavg"])
    before = plan.studies["fedsls"]["products"]["figure1"]["formats"]
    refuse_targets(plan, ["results/figure1.png", f"{plan.current_folder}/figure1.tex"])
    assert plan.studies["fedsls"]["products"]["figure1"]["formats"] == [*before, "png", "tex"]
    files = [path for path, _ in Products(plan, None, None).files("fedsls", "figure1")]
    assert {Path(path).suffix for path in files} >= {".png", ".tex", ".svg"}
    with pytest.raises(UsageError, match="table1 is a table, and has no picture: ask for csv"):
        refuse_targets(plan, ["results/table1.pdf"])


# -- what is said -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([], f"{STUDY}/claims.html"),
        (["all"], f"{STUDY}/claims.html"),
        (["fedlmd"], "results/studies/fedlmd/quick/claims.html"),
        (["results/table1.csv"], "results/table1.csv"),
        (["results/table1.csv", "results/table1.html"], "results/table1.html"),
        (["results/table1.tex", "results/figure3.svg"], "results/figure3.svg, results/table1.tex"),
        (["results/lost.csv"], ""),
        (["train"], ""),
    ],
)
def test_a_finished_command_says_which_files_to_open(targets, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = {f"{STUDY}/claims.html", "results/studies/fedlmd/quick/claims.html", *targets}
    for path in made - {"results/lost.csv", "all", "fedlmd", "train"}:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    assert describe_made(plan_of(), targets) == (said and f"Open {said}")


def said_of_tries(monkeypatch, times: int = 1, **config) -> list[str]:
    """The sentences when the runs of the claims of `baselines` are asked for."""
    said: list[str] = []
    monkeypatch.setattr(Invocation, "say", lambda self, sentence, level: said.append(sentence))
    find = answers(plan_of(study="baselines", **config)).products.sources("baselines", "claims")
    for _ in range(times):
        find(wildcards(scale="quick"))
    return said


def test_methods_with_other_numbers_of_tries_are_told_once(monkeypatch):
    (sentence,) = said_of_tries(monkeypatch, times=2, method=["fedavg", "fedprox-mu0.1"])
    assert "the best of 1 for fedprox and the best of 2 for fedavg" in sentence
    assert said_of_tries(monkeypatch, method=["fedavg", "fedprox"]) == []
    assert said_of_tries(monkeypatch) == []


@pytest.mark.parametrize(
    ("settings", "shown"),
    [({}, ["hello"]), ({"remote_exec": True}, []), ({"is_main_process": False}, [])],
)
def test_only_the_command_says_something_and_no_job(settings, shown, caplog):
    with caplog.at_level("INFO", logger="snakemake.logging"):
        snakemake(**settings).say("hello")
        snakemake(**settings).say("")
    assert [record.getMessage() for record in caplog.records] == shown


def test_an_input_function_refuses_a_product_without_runs():
    products = answers(plan_of(scale="paper", dataset=["tinyimagenet"])).products
    with pytest.raises(UsageError, match="has no runs at the paper scale"):
        products.sources("fedsls", "figure4")(wildcards(scale="paper"))


# -- what counts --------------------------------------------------------------------------------


def test_no_result_depends_on_the_code_of_planning():
    roots = [*(f"stages.{name}" for name in registered("stages")), "store.tables"]
    for root in (*roots, "report._formats"):
        assert not [name for name in source.counted(root) if name.startswith("plan")]


# -- data -----------------------------------------------------------------------------------------

GIVEN = [name for name in registered("datasets") if source.literal(f"datasets.{name}", "GIVEN")]


def test_data_of_ones_own_are_missed_before_a_job_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan, runs_jobs = plan_of(), snakemake(executor_plugin="local", dryrun=False)
    own_data.give({"datasets": {"mine": {"npz": "mine.npz"}}})
    place, said = wildcards(dataset="mine"), list[str]()
    with pytest.raises(UsageError, match=r"there is no file mine\.npz"):
        Runs(replace(plan, snakemake=runs_jobs)).check_data(place)
    monkeypatch.setattr(planned_runs, "say_last", said.append)
    assert Runs(plan).check_data(place) == []  # a dry run
    assert said == ["warning: datasets.mine: there is no file mine.npz"]


@pytest.mark.parametrize("name", GIVEN)
def test_files_that_nothing_downloads_are_missed_before_a_job_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    last = []
    monkeypatch.setattr(planned_runs, "say_last", last.append)
    place, runs_jobs = wildcards(dataset=name), snakemake(executor_plugin="local", dryrun=False)
    with pytest.raises(UsageError, match=rf"not in {tmp_path}/.*: put there"):
        Runs(plan_of(runs_jobs, data_root=str(tmp_path))).check_data(place)
    assert Runs(plan_of(data_root=str(tmp_path))).check_data(place) == []
    assert [word.partition(" ")[0] for word in last] == ["warning:"]
    (pattern, *_) = source.literal(f"datasets.{name}", "GIVEN")
    meta, file = tmp_path / f"results/data/{name}/meta.json", tmp_path / pattern.replace("*", "one")
    for one in (meta, file):  # decoded data need no files
        one.parent.mkdir(parents=True)
        one.touch()
        assert Runs(plan_of(runs_jobs, data_root=str(tmp_path))).check_data(place) == []
        one.unlink()


def test_the_plan_says_who_the_clients_are_and_refuses_merged_writers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said, started = [], snakemake()
    monkeypatch.setattr(started, "say", said.append)
    names = {"dataset": "femnist", "partition": "writers", "recipe": "classwise", "seed": 0}

    def ask(clients: int | str, held: str = "", **other) -> str:
        place = wildcards(**names | {"clients": clients, "held": held} | other)
        assert Runs(plan_of(started)).inputs_of_partition(place)["data"][0].endswith("meta.json")
        return said.pop() if said else ""

    assert "3597" in ask(3550)  # writers of the published files, which are not decoded
    assert "a client for each writer" in ask("writers")
    assert "20 clients share 40 writers" in ask(20, "-merged", dataset="penmanship")
    assert not ask(20, dataset="digits", partition="iid")
    folder = tmp_path / "results/data/femnist"
    folder.mkdir(parents=True)
    np.save(folder / "train_writers.npy", np.repeat(np.arange(3597), 2))
    assert "3597 clients, one for each writer" in ask("writers")
    assert "3597 clients, one for each writer" in ask(3597)
    with pytest.raises(UsageError, match="3597 writers, and 3550 clients would share them"):
        ask(3550)
    assert "3550 clients share 3597 writers" in ask(3550, "-merged")
