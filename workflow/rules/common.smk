"""Where things are, what a wildcard stands for, and the code that a result depends on."""

import json
import os
import shlex
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from snakemake.exceptions import WorkflowError

WORKFLOW = Path(workflow.basedir) / "workflow"
sys.path.insert(0, str(WORKFLOW))  # these rules and ...

from fedgrid import costs, fidelity, grid, schema, source, spec
from fedgrid import report as reports
from fedgrid.names import UsageError, printable

if {"{", "}"} & set(str(WORKFLOW)):  # Snakemake takes them for wildcards
    raise WorkflowError(
        f"the project is in {WORKFLOW.parent}: no folder on the way may have braces"
    )
try:
    schema.check("config.yaml", config, WORKFLOW / "schemas/config.schema.yaml")
    STUDIES = grid.read_studies()
    for name, protocol in config.get("protocols", {}).items():
        where = f"config.yaml: protocols.{name}"
        schema.check(
            where, protocol, WORKFLOW / "schemas/study.schema.yaml", "protocol"
        )
    GRID = grid.Grid(STUDIES, config)
    for about in (a for study in STUDIES.values() for a in study["scales"].values()):
        for experiment in (fidelity, costs):
            if (name := experiment.__name__.rpartition(".")[2]) in about:
                experiment.check(about[name])
except UsageError as problem:
    raise WorkflowError(printable(str(problem))) from None

environment = (  # ... their jobs import fedgrid uninstalled
    f"export PYTHONPATH={shlex.quote(str(WORKFLOW))} FEDGRID_DEVICE={config['device']}"
    f" FEDGRID_BACKEND={config['backend']} FEDGRID_DATA={shlex.quote(config['data_root'])}"
    f" FEDGRID_WARM={os.getpid() if config['warm'] and not workflow.remote_exec else ''}; "
)
shell.prefix(
    environment.replace("{", "{{").replace("}", "}}")
)  # a folder may have braces

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
    kind="|".join(spec.COLLECTED),
    product="|".join({name for study in STUDIES.values() for name in study["products"]}),
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


def run_code(*stages):
    """Changes when, and only when, code that the stages execute for this run changes."""
    return lambda wildcards: source.fingerprint(
        *(m for stage in stages for m in spec.modules(stage, resolved(wildcards)))
    )


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


def leaves(wildcards):
    """What the runs of a grid left of one kind, each file once."""
    paths = (
        spec.leaves(wildcards.kind, run, GRID.protocol(run["protocol"]))
        for run in GRID.runs(*place(wildcards))
    )
    return [f"results/{path}" for path in dict.fromkeys(paths)]


def place(wildcards):
    """Which grid: that of a study at a scale."""
    return wildcards.study, wildcards.scale, wildcards.grid


def sources(study, product):
    """What a product is drawn from, by the names that its file has for it."""
    given = STUDIES[study]["products"][product]["from"]
    return lambda wildcards: {
        name: f"results/studies/{study}/{wildcards.scale}/{path}.csv"
        for name, path in given.items()
    }


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
    used = {key: STUDIES[study].get(key) for key in shown}
    return sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:12]


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
