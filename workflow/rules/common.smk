"""Where things are, what a wildcard stands for, and the code that a result depends on."""

import json
import os
import re
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

# The folder of this very file: `workflow.basedir` is another's where this is a module.
WORKFLOW = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parent
if not (WORKFLOW / "fedgrid").is_dir():
    raise WorkflowError(
        f"there is no folder {WORKFLOW / 'fedgrid'}: the rules need the code beside them, so "
        "clone the repository and name the Snakefile of the clone"
    )
sys.path.insert(0, str(WORKFLOW))  # these rules import fedgrid uninstalled

from fedgrid import costs, fidelity, grid, source, spec
from fedgrid import report as reports
from fedgrid.names import UsageError, printable

if not workflow.modifier.is_main_snakefile():
    paths = workflow.modifier.path_modifier
    if paths.prefix or paths._prefix_replacements:
        raise WorkflowError(
            "fedgrid's commands look for results under results/: leave `prefix` out of its module"
        )
    config = grid.read_config(WORKFLOW.parent / "config.yaml") | config
if {"{", "}"} & set(str(WORKFLOW)):  # Snakemake takes them for wildcards
    raise WorkflowError(
        f"the project is in {WORKFLOW.parent}: no folder on the way may have braces"
    )
try:
    grid.check_config("config.yaml", config)
    STUDIES = grid.read_studies()
    GRID = grid.Grid(STUDIES, config)
    for about in (a for study in STUDIES.values() for a in study["scales"].values()):
        for experiment in (fidelity, costs):
            if (name := experiment.__name__.rpartition(".")[2]) in about:
                experiment.check(about[name])
except UsageError as problem:
    raise WorkflowError(printable(str(problem))) from None


def interpreter():
    """The Python of the jobs: the one that runs Snakemake, unless they get one of their own."""
    asked = workflow.deployment_settings
    methods = asked.deployment_method if asked else ()
    own = {DeploymentMethod.CONDA, DeploymentMethod.APPTAINER} & {*methods}
    return "python" if own else sys.executable


# What the commands of all rules begin with is in variables of the environment, so that a command is
# the same text on every machine: Snakemake makes again what another command made. Snakemake's own
# `shell.prefix` would change the rules of a workflow that has this one as a module, too.
os.environ |= {
    "FEDGRID_CODE": str(WORKFLOW),
    "FEDGRID_PYTHON": interpreter(),
    "FEDGRID_DEVICE": config["device"],
    "FEDGRID_BACKEND": config["backend"],
    "FEDGRID_DATA": config["data_root"],
    "FEDGRID_WARM": str(
        os.getpid() if config["warm"] and not workflow.remote_exec else ""
    ),
}

HERE = "results/studies/{study}/{scale}"
CELL, RUN, PARTITION = spec.CELL, spec.RUN, spec.PARTITION
SHOWN = ("svg", "html", "csv")  # the formats that are in the report
report_module = reports.module


wildcard_constraints:
    protocol=r"[^/]+",
    dataset=r"[^/]+",
    partition=r"[^/]+",
    method=r"[^/]+",
    seed=r"\d+",
    recipe=r"[a-z]+",
    model=r"[^/-]+",
    clients=r"\d+",
    study=r"[^/]+",
    scale=r"[^/]+",
    grid=r"[^/]+",
    ext=r"csv|tex|html|pdf|svg",


def resolved(wildcards):
    """The run of a path's names; a stage that all methods share has none in its path."""
    return resolve(
        tuple(({"method": spec.ANY_METHOD} | dict(wildcards.items())).items())
    )


@cache  # a job asks for its input, its spec and its code, some of them twice
def resolve(names):
    """The run of ((axis, name), ...)."""
    return GRID.resolve(dict(names))


def run_spec(stage):
    """What a job of the stage is told to do, with every name spelled out, as JSON."""
    return lambda wildcards: json.dumps(
        spec.part(stage, resolved(wildcards)), sort_keys=True
    )


def memory(wildcards):
    """Megabytes that a job of the run may take."""
    return spec.memory_mb(resolved(wildcards))


def growing(amount):
    """What a job asks for: as much again with its second and its third attempt."""

    def asked(wildcards, attempt):
        first = amount(wildcards) if callable(amount) else amount
        return first * min(attempt, 3)

    return asked


def run_code(stage):
    """Changes when, and only when, code behind what a stage makes of this run changes."""
    return lambda wildcards: code_behind(stage, resolved(wildcards))


def code_behind(stage, run):
    """The fingerprint of a stage and of all before it.

    The stages before it count, because Snakemake does not make a missing file again for the sake of
    a later one that looks finished: a stage that fails would leave old results of later ones.
    """
    modules = {"data", f"datasets.{run['dataset']}"}
    for one in stages(stage, run):
        modules |= {*spec.modules(one, run)}
    return source.fingerprint(*sorted(modules))


def stages(last, run):
    """The stages up to the last, of those that a run's method asks for."""
    wanted = {"partition", last, *(spec.needs(run) if last == "train" else ())}
    return wanted | ({"pretrain"} if "saliency" in wanted else set())


def inputs(*names):
    """The inputs of a stage by name, under results/; `needs` are those the method asks for."""

    def found(wildcards):
        run = resolved(wildcards)
        paths = spec.inputs(run)
        wanted = [n for n in names if n != "needs"] + (
            spec.needs(run) if "needs" in names else []
        )
        return {n: result(n, paths[n]) for n in wanted if n in paths}

    return found


def result(name, path):
    """Large files count by what makes them: a dataset by its meta.json, weights by their name."""
    files = {"data": f"results/{path}/meta.json", "weights": ancient(f"results/{path}")}
    return files.get(name, f"results/{path}")


def named(wildcards, input):
    """The inputs as NAME=PATH, for the command line; a dataset is given by its folder."""
    return [f"{n}={Path(p).parent if n == 'data' else p}" for n, p in input.items()]


def partition_spec(wildcards):
    """The partition of a path's names; protocols that agree share it."""
    recipe, clients = wildcards.recipe, int(wildcards.clients)
    return json.dumps(
        {
            "name": {axis: wildcards.get(axis, "any") for axis in spec.AXES},
            "protocol": {"recipe": recipe, "clients": clients},
            "dataset": wildcards.dataset,
            "partition": wildcards.partition,
            "method": {},
            "seed": int(wildcards.seed),
        },
        sort_keys=True,
    )


def products(study, folder):
    """Every file of a study's products, at the scale in the configuration."""
    return [
        f"{folder}/{name}.{ext}"
        for name in GRID.products(study, config["scale"])
        for ext in STUDIES[study]["products"][name]["formats"]
    ]


def everything(study):
    """As `products`, when they are asked for: a study need not have the scale."""
    return lambda wildcards: products(
        study, f"results/studies/{study}/{config['scale']}"
    )


def leaves(kind):
    """What the runs of a grid left of one kind, each file once."""

    def found(wildcards):
        paths = (
            spec.leaves(kind, run, GRID.protocol(run["protocol"]))
            for run in GRID.runs(*place(wildcards))
        )
        return [f"results/{path}" for path in dict.fromkeys(paths)]

    return found


def table_content(kind):
    """As `content`, of a table that is collected."""
    return lambda wildcards: source_content(
        wildcards.study, wildcards.scale, f"{kind}/{wildcards.grid}"
    )


def place(wildcards):
    """Which grid: that of a study at a scale."""
    return wildcards.study, wildcards.scale, wildcards.grid


def sources(study, product):
    """What a product is drawn from, by the names that its file has for it."""
    given = STUDIES[study]["products"][product]["from"]

    def found(wildcards):
        refuse_nothing(study, wildcards.scale, product)
        return {
            name: f"results/studies/{study}/{wildcards.scale}/{path}.csv"
            for name, path in given.items()
        }

    return found


def refuse_nothing(study, scale, product):
    """An error for a product that the configuration leaves no runs to draw."""
    try:
        GRID.check_product(study, scale, product)
    except UsageError as problem:
        raise WorkflowError(printable(str(problem))) from None


def refuse_targets(words):
    """As `refuse_nothing`, of all products among the words of the command line."""
    pattern = re.compile(r"results/(?:studies/([^/]+)/([^/]+)/)?([^/.]+)\.\w+")
    for target in filter(None, map(pattern.fullmatch, words)):
        study, scale, product = target.groups()
        study, scale = study or config["study"], scale or config["scale"]
        if product in STUDIES.get(study, {"products": ()})["products"]:
            refuse_nothing(study, scale, product)


refuse_targets(sys.argv[1:])  # Snakemake knows its targets only once this file is read


def content(study, product):
    """Changes with the runs that a product is of, what they stand for, and the code behind them.

    Without it a product would count as made while what it is drawn from failed: Snakemake does not
    make a missing file again for the sake of a later one that looks finished.
    """
    given = STUDIES[study]["products"][product]["from"].values()
    return lambda wildcards: digest(
        [
            source_content(study, wildcards.get("scale", config["scale"]), text)
            for text in given
        ]
    )


@cache  # many products are drawn from one grid
def source_content(study, scale, text):
    """Of one source of a product: kind/grid, or an experiment."""
    kind, _, name = text.partition("/")
    if kind in spec.COLLECTED:
        runs = GRID.runs(study, scale, name)
        return digest([run_content(kind, tuple(run.items())) for run in runs])
    setting = STUDIES[study]["scales"][scale][kind]
    if kind == "fidelity":
        setting = GRID.fidelity(study, scale)
    networks = {
        f"models.{setting[key]}" for key in ("model", "judge") if key in setting
    }
    return digest([setting, source.fingerprint(*EXPERIMENTS[kind], *sorted(networks))])


# The modules of the stages of what comes from no grid.
EXPERIMENTS = {
    "fidelity": ("fidelity.originals", "fidelity.maps", "fidelity.scores"),
    "costs": ("costs",),
}


@cache
def run_content(kind, names):
    """Of one run, as far as a kind of table has it: what it stands for, and the code behind it."""
    run = resolve(names)
    last = spec.COLLECTED[kind].partition("/")[0].replace("runs", "train")
    facts = [run[key] for key in ("name", "protocol", "method")]
    return digest([*facts, code_behind(last, run)])


def digest(facts):
    """A short text that changes with the facts."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def drawn(study, product):
    """The files of a product; those that people look at are in the report."""
    about = STUDIES[study]["products"][product]
    for ext in about["formats"]:
        path = f"results/studies/{study}/{{scale}}/{product}.{ext}"
        labels = {"product": product, "scale": "{scale}", "format": ext}
        shown = {"caption": "../report/product.rst", "category": about["category"]}
        yield report(path, labels=labels, **shown) if ext in SHOWN else path


def facts(study):
    """Changes with what of a study, beside its runs, products are drawn with."""
    shown = ("published", "reference", "claims", "labels")
    return digest({key: STUDIES[study].get(key) for key in shown})


def fidelity_setting(wildcards):
    """What the fidelity study is to compare."""
    return GRID.fidelity(wildcards.study, wildcards.scale)


def costs_setting(wildcards):
    """What is to be encoded to see what it costs."""
    return STUDIES[wildcards.study]["scales"][wildcards.scale]["costs"]


def network(field, weights):
    """The published weights of a network of the fidelity study, if it has any."""

    def found(wildcards):
        about = fidelity_setting(wildcards)
        if about[weights] == "none":
            return {}
        return {
            "weights": ancient(
                f"results/weights/{about[field]}-{about[weights]}.safetensors"
            )
        }

    return found


def every_map(wildcards):
    """The maps of every encoder and seed."""
    encoders = fidelity_setting(wildcards)["encoders"].items()
    return {
        f"{encoder}/{seed}": f"{HERE.format(**wildcards)}/fidelity/{encoder}-seed{seed}.npz"
        for encoder, seeds in encoders
        for seed in range(seeds)
    }
