"""Plans that are made in this process, and the jobs that a target needs when nothing is there.

`jobs_of` follows the inputs that `fedgrid.plan` names, as Snakemake does.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

from snakemake.iocontainers import Wildcards

from conftest import note_sizes
from fedgrid.plan import configuration
from fedgrid.plan.asked import code_of
from fedgrid.plan.configuration import Plan, make_plan
from fedgrid.plan.experiments import Experiments
from fedgrid.plan.invocation import Invocation
from fedgrid.plan.products import Products
from fedgrid.plan.runs import Runs, dataset_code, partition_code, partition_specification
from fedgrid.plan.tables import Tables, place_of_table
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.paths import CELL, COLLECTED, HELD_OUT, PARTITION, RUN
from fedgrid.study.reading import merge_configs, read_config
from made import STUDIES

READ = {**STUDIES}
CONFIG = read_config(PACKAGE.parents[1] / "config.yaml") | {"device": "cpu"}


def snakemake(arguments: Iterable[str] = (), groups: Iterable[str] = (), **settings) -> Invocation:
    """A Snakemake that plans and runs nothing, unless its settings say otherwise."""
    given = {"remote_exec": False, "is_main_process": True, "dryrun": True, "dag_settings": None}
    given |= {"storage_settings": None}
    given |= {"executor_plugin": None, "execution_settings": None, "deployment_settings": None}
    modifier = SimpleNamespace(modify_rulename=lambda stage: f"fedgrid_{stage}")
    grouped = {f"fedgrid_{stage}" for stage in groups}
    workflow = SimpleNamespace(
        **given | settings,
        modifier=modifier,
        get_rule=lambda name: SimpleNamespace(group="one" if name in grouped else None),
    )
    return Invocation(workflow, ["snakemake", *arguments])


def plan_of(started: Invocation | None = None, **config) -> Plan:
    """The plan of config.yaml with other values for some of its keys."""
    plan = configured(json.dumps(config, sort_keys=True))
    return replace(plan, snakemake=started or snakemake())


@cache
def configured(config: str) -> Plan:
    """The plan of a configuration, which several tests may ask."""
    note_sizes(json.loads(config).get("scale", CONFIG["scale"]))
    with patch.object(configuration, "read_studies", copies):
        return make_plan(merge_configs(CONFIG, json.loads(config)), {}, snakemake(), {})


def copies() -> dict[str, dict]:
    """The studies, which took their time to be read, and to which products may be added."""
    return {name: about | {"products": {**about["products"]}} for name, about in READ.items()}


def wildcards(**names) -> Wildcards:
    """The wildcards of a path, which are texts."""
    return Wildcards(fromdict={name: str(value) for name, value in names.items()})


class Asked(NamedTuple):
    """All that answers for a plan."""

    runs: Runs
    tables: Tables
    experiments: Experiments
    products: Products


def answers(plan: Plan) -> Asked:
    """What the rules of a plan ask."""
    runs, experiments = Runs(plan), Experiments(plan)
    tables = Tables(plan, runs)
    return Asked(runs, tables, experiments, Products(plan, tables, experiments))


def product_of(plan: Plan, name: str, claim: int = 0) -> dict[str, set[str]]:
    """The jobs of a product of the configuration's study and scale, or of one claim of it."""
    place = {"scale": plan.config["scale"]} | ({"claim": claim} if claim else {})
    products, study = answers(plan).products, plan.config["study"]
    return jobs_of(plan, products.sources(study, name)(wildcards(**place)).values())


def jobs_of(plan: Plan, targets: Iterable[str]) -> dict[str, set[str]]:
    """The jobs that files need when nothing is there: by rule, the path of each."""
    found: dict[str, set[str]] = {}
    for rule, job, _ in walked(plan, targets):
        found.setdefault(rule, set()).add(job)
    return found


def walked(plan: Plan, targets: Iterable[str]) -> Iterator[tuple[str, str, Wildcards]]:
    """Yield each job that files need once: its rule, its path, its names."""
    rules, waiting, seen = rules_of(plan), [*targets], set()
    while waiting:
        rule, job, names = matching(rules, waiting.pop())
        if job not in seen:
            seen.add(job)
            waiting += listed(rules[rule][1], names)
            yield rule, job, names


def told_to(plan: Plan, name: str) -> dict[str, tuple[str, str]]:
    """By job of a product: its rule, and the settings and the code that Snakemake compares."""
    told, (_, _, _, products) = params_by_rule(plan), answers(plan)
    study, place = plan.config["study"], wildcards(scale=plan.config["scale"])
    targets = products.sources(study, name)(place).values()
    found = {
        job: (rule, repr([ask(names) for ask in told[rule]]))
        for rule, job, names in walked(plan, targets)
    }
    asks = (products.content, products.entry, products.code)
    drawn = [ask(study, name)(place) for ask in asks]
    drawn += [products.facts(study), products.about(study, name, name)["about"](place)]
    copied = products.content(study, name)(place)
    return (
        found
        | {f"{study}_{name}": (f"{study}_{name}", repr(drawn))}
        | {f"results_{name}": (f"results_{name}", copied)}
    )


def params_by_rule(plan: Plan) -> dict[str, list[Callable[[Wildcards], object]]]:
    """What the rules of stages have under `params` that can change a result."""
    runs, tables, _, _ = answers(plan)
    stages = ("pretrain", "saliency", "latents", "train")
    return {
        **{stage: [runs.specification(stage), runs.code(stage)] for stage in stages},
        "data": [dataset_code],
        "partition": [partition_specification, partition_code],
        "runs_table": [
            lambda names: tables.words("runs", *place_of_table(names)),
            *(tables.content("runs"), code_of("store.tables")),
        ],
    }


def counted(jobs: dict[str, set[str]]) -> dict[str, int]:
    """The numbers of jobs, by rule."""
    return {rule: len(of) for rule, of in jobs.items()}


def methods_of(jobs: dict[str, set[str]]) -> set[str]:
    """The methods that are trained."""
    return {path.split("/")[-3] for path in jobs["train"]}


Find = Callable[[Wildcards], dict[str, str] | list[str]]


def rules_of(plan: Plan) -> dict[str, tuple[str, Find]]:
    """The pattern of the paths of each rule, and the function that finds its inputs."""
    runs, tables, experiments, _ = answers(plan)
    table = f"{plan.folder}/{{kind}}/{{grid}}.csv"
    of_experiments = f"{plan.experiments_folder}/fidelity"
    return {
        **{f"{kind}_table": (table.replace("{kind}", kind), tables.inputs(kind))
           for kind in COLLECTED},
        "scores": (f"{of_experiments}/{{file}}.csv", experiments.maps),
        "costs": (f"{plan.experiments_folder}/costs.csv", lambda w: []),
        "maps": (f"{of_experiments}/{{encoder}}-seed{{seed}}.npz", experiments.weights("model")),
        "train": (f"results/runs/{RUN}/{{file}}",
                  runs.inputs("data", "partition", "weights", "needs")),
        "interpolation": (f"results/interpolation/{RUN}.csv", runs.inputs(
                              "metrics", "data", "partition", "weights", "needs")),
        "saliency": (f"results/saliency/{CELL}.{{ext}}",
                     runs.inputs("data", "partition", "pretrain")),
        "latents": (f"results/latents/{CELL}.npz", runs.inputs("data", "partition")),
        "pretrain": (f"results/pretrain/{CELL}", runs.inputs("data", "partition", "weights")),
        "partition": (f"results/partition/{PARTITION}.npz",
                      runs.inputs_of_partition),
        "data": ("results/data/{dataset}/meta.json", lambda w: []),
        "weights": ("results/weights/{name}", lambda w: []),
        "kept": ("", lambda w: []),
    }  # fmt: skip


def matching(rules: dict[str, tuple[str, Find]], path: str) -> tuple[str, str, Wildcards]:
    """The rule of a path, the job's name without its file, and its names.

    Tables of kept runs are there, as if a rule without inputs had made them.
    """
    if "studies/reference/" in path:
        return "kept", path, wildcards()
    for rule, (pattern, _) in rules.items():
        if match := re.fullmatch(expression(pattern), path):
            names = match.groupdict()
            return rule, pattern.format(**names | {"file": "", "ext": ""}), wildcards(**names)
    raise AssertionError(f"no rule makes {path}")


@cache
def expression(pattern: str) -> str:
    """The regular expression of the paths of a pattern."""
    return re.sub(r"\\{(\w+)\\}", constrained, re.escape(pattern))


def constrained(name: re.Match) -> str:
    """What may stand for a wildcard."""
    special = {
        "held": HELD_OUT.replace("(", "(?:").replace("(?:?:", "(?:"),
        "clients": r"\d+|writers",
    }
    return f"(?P<{name[1]}>{special.get(name[1], '[^/]+')})"


def listed(find: Find, names: Wildcards) -> list[str]:
    """The paths of a job's inputs."""
    inputs = find(names)
    every = inputs.values() if isinstance(inputs, dict) else inputs
    return [path for one in every for path in ([one] if isinstance(one, str) else one)]
