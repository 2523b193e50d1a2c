"""Paths, the meaning of wildcards, and the code that a result depends on."""

import json
import os
import re
import sys
from functools import cache
from hashlib import sha256
from math import ceil
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

# The folder of this file; in a module, `workflow.basedir` is the folder of the other workflow.
WORKFLOW = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parent
if not (WORKFLOW / "fedgrid").is_dir():
    raise WorkflowError(
        f"the folder {WORKFLOW / 'fedgrid'} does not exist: the rules need the code beside "
        "them, so clone the repository and name the Snakefile of the clone"
    )
sys.path.insert(0, str(WORKFLOW))  # fedgrid need not be installed

from fedgrid.experiments.costs import check as check_costs
from fedgrid.experiments.fidelity.setting import check_setting as check_fidelity
from fedgrid.runtime import cli, forced, groups, machine, timers
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.watch import remaining, trackers
from fedgrid.runtime.names import UsageError, printable, within
from fedgrid.claim import find_claim
from fedgrid.study.given import read_given
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import (
    STATES_READ,
    code_behind,
    is_state_read,
    memory_mb,
    needed_stages,
    run_of_stage,
    state_gb,
)
from fedgrid.store.identity import is_finished
from fedgrid.store.kept import (
    INDEX,
    facts_of_kind,
    find_kept,
    read_index,
    store_folder,
)
from fedgrid.study.paths import (
    CELL,
    COLLECTED,
    HELD_OUT,
    PARTITION,
    RUN,
    SUMMED,
    collected_fields,
    collected_path,
    collecting_stage,
    held_fields,
    input_paths,
)
from fedgrid.study.products import product_module
from fedgrid.study.protocol import ANY, ANY_METHOD, AXES, STAGES
from fedgrid.study.reading import (
    add_products,
    check_config,
    read_config,
    read_studies,
)

READ = [*workflow.configfiles]  # the files of the configuration
if not workflow.modifier.is_main_snakefile():
    READ = []
    paths = workflow.modifier.path_modifier
    if paths.prefix or paths._prefix_replacements:
        raise WorkflowError(
            "fedgrid's commands look for results under results/: remove `prefix` from its module"
        )
    config = read_config(WORKFLOW.parent / "config.yaml") | config
if {"{", "}"} & set(str(WORKFLOW)):  # Snakemake would read them as wildcards
    raise WorkflowError(
        f"the project is in {WORKFLOW.parent}: no folder of this path may have braces"
    )
timers.merge()
groups.pass_on()
if not workflow.remote_exec:
    manager = getattr(workflow, "logger_manager", None)
    remaining.show(getattr(manager, "plugin_handlers", ()))


def interpreter():
    """Return the Python of the jobs: Snakemake's own, or that of the jobs' environment."""
    asked = workflow.deployment_settings
    methods = asked.deployment_method if asked else ()
    own = {DeploymentMethod.CONDA, DeploymentMethod.APPTAINER} & {*methods}
    return "python" if own else sys.executable


try:
    config = read_given(config, {Path(path): load_configfile(path) for path in READ})
    config = own_data.give(config)
    check_config("config.yaml or --config", config)
    TRACKERS = trackers.chosen(config.get("log"))
    if interpreter() == sys.executable:
        trackers.check_installed(TRACKERS)
    STUDIES = read_studies()
    add_products(STUDIES, config)
    GRID = Grid(STUDIES, config)
    KEPT = {
        (study, scale): read_index(store_folder(study, scale))
        for study, about in STUDIES.items()
        for scale in about["scales"]
        if config.get("kept", True)
    }
    for study, scale in (
        (n, s) for n, about in STUDIES.items() for s in about["scales"]
    ):
        about = STUDIES[study]["scales"][scale]
        for name, check in {"fidelity": check_fidelity, "costs": check_costs}.items():
            if name in about:
                with within(f"{study}.yaml: scales.{scale}.{name}"):
                    check(about[name])
except UsageError as problem:
    raise WorkflowError(printable(str(problem))) from None


# Whether this Snakemake runs in a SLURM job, which has one job of the workflow or a group of jobs.
IN_GROUP = workflow.remote_exec and groups.is_inside(sys.argv)
ALONE = workflow.remote_exec and not IN_GROUP

# What the commands of all rules begin with is in variables of the environment, so that a command is
# the same text on every machine: Snakemake reruns a job whose command has changed. Snakemake's own
# `shell.prefix` would change the rules of a workflow that has this one as a module, too.
os.environ |= {
    "FEDGRID_CODE": str(WORKFLOW),
    "FEDGRID_PYTHON": interpreter(),
    "FEDGRID_DEVICE": config["device"],
    "FEDGRID_BACKEND": config["backend"],
    "FEDGRID_COMPILE": config.get("compile", "auto"),
    "FEDGRID_TRACK": ",".join(TRACKERS),
    "FEDGRID_DATA": config["data_root"],
    "FEDGRID_KEEP_STATE_GB": str(config.get("keep_state_gb", 1)),
    STATES_READ: json.dumps(
        GRID.blocks_of_kind("interpolation", config["study"], config["scale"])
    ),
    "FEDGRID_WARM": str(os.getpid() if config["warm"] and not ALONE else ""),
}

# What this command forces (`tell_forced`); `envvars` gives it to the jobs of every executor.
if workflow.is_main_process:
    os.environ[forced.VARIABLE] = ""


envvars:
    forced.VARIABLE,


# The products of a study, and its experiments; a part of a study, or more than it, has a folder of
# its own, so that it never overwrites the study's.
WHOLE = "results/studies/{study}/{scale}"
HERE = WHOLE + GRID.part()
EXPERIMENT = WHOLE + GRID.part("dataset")
CURRENT = HERE.format(study=config["study"], scale=config["scale"])
SHOWN = ("svg", "html", "csv")  # the formats in the report


# The text of the report begins with the front page, if it has been made.
if Path(f"{CURRENT}/front.html").exists():
    config["front"] = f"{CURRENT}/front.html"


def beside(folder, path):
    """Return a path of results/ in the same place below results/<folder>/, such as its log."""
    return path.replace("results/", f"results/{folder}/", 1)


wildcard_constraints:
    protocol=r"[^/]+",
    dataset=r"[^/]+",
    partition=r"[^/]+",
    method=r"[^/]+",
    seed=r"\d+",
    recipe=r"[a-z]+",
    model=r"[^/-]+",
    clients=r"\d+",
    held=HELD_OUT,
    cell=r"[^/]+",
    study=r"[^/]+",
    scale=r"[^/]+",
    grid=r"[^/]+",
    claim=r"[1-9]\d*",
    ext=r"csv|tex|html|pdf|svg|png",


def resolved(wildcards):
    """Return the run of a path's names.

    The path of a stage that methods share has no method, and a `cell` instead of a protocol.
    """
    tell_forced()
    names = {"method": ANY_METHOD} | dict(wildcards.items())
    if "cell" in names:
        names["protocol"] = GRID.protocol_of_cell(names["cell"])
    keep_going()
    return resolve(tuple(names.items()))


def keep_going():
    """In a group, run all other jobs, too, if one fails.

    Snakemake does not tell this to its jobs, and knows its settings only after it has read this file.
    """
    if IN_GROUP and workflow.execution_settings is not None:
        workflow.execution_settings.keep_going = True


def tell_forced():
    """Tell the jobs what this command forces; in a job, the command has told it.

    Snakemake knows it only after it has read this file.
    """
    if workflow.is_main_process and workflow.dag_settings is not None:
        tell_once()


@cache
def tell_once():
    """Tell the jobs what this command forces."""
    forced.tell(workflow.dag_settings, STAGE_RULES)


# The rule of each stage, which has another name where another workflow uses these rules.
STAGE_RULES = {stage: workflow.modifier.modify_rulename(stage) for stage in STAGES}


def is_grouped(stage):
    """Return whether the jobs of a stage share SLURM jobs (`--groups`)."""
    return workflow.get_rule(STAGE_RULES[stage]).group is not None


def own_gpu(stage, needs=lambda wildcards: True):
    """Return how many GPUs a job asks for: none in a group, where `shared_gpu` asks for one."""

    def asked(wildcards):
        return int(
            config["device"] != "cpu" and not is_grouped(stage) and needs(wildcards)
        )

    return asked


def shared_gpu(stage):
    """Return the resource `gres` of a job in a group, which the jobs of the group have together.

    Snakemake adds up the numbers that the jobs of a group ask for, such as their memory. A resource
    that is a text must be the same for all of them, and the group asks for it once.
    """

    def asked(wildcards):
        return "gpu:1" if config["device"] != "cpu" and is_grouped(stage) else None

    return asked


@cache  # a job needs this for its input, its spec and its code
def resolve(names):
    """Return the run of ((axis, name), ...)."""
    return GRID.resolve(dict(names))


def run_spec(stage):
    """The run of a job, resolved, as JSON: what the stage depends on."""
    return lambda wildcards: json.dumps(
        run_of_stage(stage, resolved(wildcards)), sort_keys=True
    )


def memory(wildcards):
    """Return the megabytes that a job of the run may use."""
    return 2000 if is_linked(wildcards) else memory_mb(resolved(wildcards))


def is_linked(wildcards):
    """Return whether a path's run is trained under another name, and linked from there.

    It is trained anew if other versions of the packages made that run, if its copy is gone, or if
    this command forces it.
    """
    if "method" not in wildcards.keys() or not (first := first_run(wildcards)):
        return False
    if forced.is_forced(
        "train", [path.format(**wildcards) for path in OF_TRAINING.values()]
    ):
        return False
    if not Path(metrics_of(first)).exists():
        return True
    copy = Path(f"results/checkpoints/runs/{first}.safetensors.finished/summary.json")
    try:
        return json.loads(copy.read_text())["versions"] == machine.versions()
    except (OSError, ValueError, KeyError):
        return False


# The files of a run, by the name of the output.
OF_TRAINING = {
    "metrics": f"results/runs/{RUN}/metrics.csv",
    "predictions": f"results/runs/{RUN}/predictions.csv",
    "clients": f"results/runs/{RUN}/clients.csv",
    "summary": f"results/runs/{RUN}/summary.json",
    "model": f"results/runs/{RUN}/model.safetensors",
}


def first_run(wildcards):
    """Return the path of the run of another name that is linked to this name; None if none is."""
    run = resolved(wildcards)
    first = GRID.first_name(run)
    return None if first == run["name"] else RUN.format(**first)


def metrics_of(run):
    """Return the path of a run's metrics; `run` is its folder in results/runs."""
    return f"results/runs/{run}/metrics.csv"


def growing(amount):
    """Return a resource that the second and the third attempt double and triple."""

    def asked(wildcards, attempt):
        first = amount(wildcards) if callable(amount) else amount
        return first * min(attempt, 3)

    return asked


def run_code(stage):
    """Return a hash of all code that can change the stage's result for this run."""
    return lambda wildcards: code_behind(stage, resolved(wildcards))


def inputs(*names):
    """Return a stage's inputs by name, under results/; `needs` stands for those of the method."""

    def found(wildcards):
        run = resolved(wildcards)
        paths = input_paths(run)
        wanted = [n for n in names if n != "needs"]
        wanted += needed_stages(run) if "needs" in names else []
        first = first_run(wildcards) if "needs" in names else None
        linked = {"first": metrics_of(first)} if first else {}
        return {n: result(n, paths[n]) for n in wanted if n in paths} | linked

    return found


def inputs_with_state(*names):
    """Return `inputs`; refuse a run whose last state would be too large to be kept."""

    def found(wildcards):
        run, limit = resolved(wildcards), config.get("keep_state_gb", 1)
        need = state_gb(run)
        if need > limit and not is_state_read(GRID.first_name(run)):
            raise WorkflowError(
                f"the interpolation of {RUN.format(**wildcards)} reads the run's last state, of up "
                f"to {need:.1f} GB, and such a state is not kept: set `keep_state_gb: {ceil(need)}`"
            )
        return inputs(*names)(wildcards)

    return found


def result(name, path):
    """Return the input file for Snakemake: for a dataset its meta.json.

    Published weights never expire. Weights of your own have a path below this folder if possible.
    """
    if Path(path).is_absolute():
        return str(from_here(Path(path)))
    files = {"data": f"results/{path}/meta.json", "weights": ancient(f"results/{path}")}
    return files.get(name, f"results/{path}")


def from_here(path):
    """Return a path relative to this folder, or as it is if it is not below this folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def published_weights(wildcards):
    """Return the published weights that a model's file has under a name."""
    return source.literal(f"models.{wildcards.model}", "WEIGHTS")[wildcards.weights]


def named(wildcards, input):
    """Return the inputs as NAME=PATH, for the command line; a dataset is given by its folder."""
    return [
        f"{n}={Path(p).parent if n == 'data' else p}"
        for n, p in input.items()
        if n != "first"  # it is found by its key
    ]


def partition_spec(wildcards):
    """Return the run of a partition's path as JSON; protocols with equal fields share it."""
    drawn = {"recipe": wildcards.recipe, "clients": int(wildcards.clients)}
    return json.dumps(
        {
            "name": {axis: wildcards.get(axis, ANY) for axis in AXES},
            "protocol": drawn | held_fields(wildcards.held),
            "dataset": wildcards.dataset,
            "partition": wildcards.partition,
            "method": {},
            "seed": int(wildcards.seed),
        },
        sort_keys=True,
    )


def partition_code(wildcards):
    """Return the fingerprint of a partition's code."""
    run = {"dataset": wildcards.dataset, "partition": wildcards.partition}
    return code_behind("partition", run)


def products(study, folder):
    """Return every file of a study's products, at the scale in the configuration."""
    return [
        f"{folder}/{name}.{ext}"
        for name in GRID.products(study, config["scale"])
        for ext in STUDIES[study]["products"][name]["formats"]
    ]


def everything(study):
    """Return `products` as an input function: not every study has the scale."""
    folder = HERE.format(study=study, scale=config["scale"])
    return lambda wildcards: [*products(study, folder), f"{folder}/front.html"]


def front_page(study):
    """Return the path of the front page of a study's report, with the wildcard {scale}."""
    return f"{HERE}/front.html".replace("{study}", study)


def front_parts(study):
    """Return what the front page of a study shows, by the options of its command: name and path.

    Products for which the configuration leaves no runs are left out.
    """
    about, every = STUDIES[study].get("front", {}), STUDIES[study]["products"]
    figures = [name for name in every if "svg" in every[name]["formats"]]
    wanted = {
        "table": (about.get("table", "table1"), "csv"),
        "claims": ("claims", "csv"),
        "figure": (about.get("figure", *figures[:1]), "svg"),
    }

    def found(wildcards):
        there = GRID.products(study, wildcards.scale)
        return {
            part: (name, f"{product_path(study, name)}.{ext}".format(**wildcards))
            for part, (name, ext) in wanted.items()
            if name in there and ext in every[name]["formats"]
        }

    return found


def front_files(study):
    """Return the files that the front page of a study is made of."""
    return lambda wildcards: {
        part: path for part, (_, path) in front_parts(study)(wildcards).items()
    }


def front_options(study):
    """Return the files of the front page as options of its command."""

    def found(wildcards):
        parts = front_parts(study)(wildcards)
        return [
            text
            for part, (name, path) in parts.items()
            for text in (f"--{part}", path if part == "claims" else f"{name}={path}")
        ]

    return found


def leaves(kind):
    """Return the files of one kind of a grid's runs, each file once.

    Instead of the files of kept runs it has the tables that they are kept in. These tables count
    with their content (`source_content`), not with their times.
    """

    def found(wildcards):
        protocols = GRID.protocols_of(GRID.narrowed(*place(wildcards)))
        paths = (
            collected_path(kind, run, protocols[run["protocol"]])
            for run in GRID.runs(*place(wildcards))
            if not kept_entry(kind, *place(wildcards)[:2], tuple(run.items()))
        )
        made = [f"results/{path}" for path in dict.fromkeys(paths)]
        tables = store_tables(kind, wildcards) if kept_ids(kind, wildcards) else []
        return made + [ancient(path) for path in tables]

    return found


@cache  # a run is in several grids, and a table asks for it three times
def kept_entry(kind, study, scale, names):
    """Return the entry of a run that is kept with its study and is not in results/, or None."""
    if not (index := KEPT.get((study, scale))):
        return None
    run = resolve(names)
    entry = find_kept(index, kind, run)
    return None if entry and is_finished(kind, run, Path("results")) else entry


def kept_ids(kind, wildcards):
    """Return the ids of what a collected table takes from the runs that are kept."""
    study, scale, _ = place(wildcards)
    runs = GRID.runs(*place(wildcards))
    entries = [kept_entry(kind, study, scale, tuple(run.items())) for run in runs]
    return sorted({int(entry["id"]) for entry in entries if entry})


def store_tables(kind, wildcards):
    """Return the index and the table of a kind of kept runs, below this folder if possible."""
    folder = from_here(store_folder(wildcards.study, wildcards.scale))
    return [str(folder / INDEX), str(folder / f"{kind}.csv")]


def collected_grid(kind):
    """Return the path of a file with the arguments of the command that are about the grid.

    The file is written when the table is planned, unless nothing is to be run.
    """
    return lambda wildcards: in_file(grid_words(kind, wildcards))


def in_file(words):
    """Return the path of a file with arguments of a command; what only plans does not write it."""
    is_run = workflow.executor_plugin is not None and not workflow.dryrun
    return str(cli.write_arguments(words, Path("results/grids"), is_run))


def on_line(given):
    """Return a word or words for a command line; `@` and a file of them if they are too long."""
    words = [given] if isinstance(given, str) else given
    return given if sum(map(len, words)) <= LONGEST else f"@{in_file(words)}"


LONGEST = 30_000  # characters; the system allows 131,072 for a whole command


def grid_words(kind, wildcards):
    """Return the blocks of a grid, what the command reads of the protocols, and kept runs."""
    blocks = GRID.narrowed(*place(wildcards))
    every = GRID.protocols_of(blocks)
    read = {name: collected_fields(kind, of) for name, of in every.items()}
    words = [json.dumps(blocks), "--protocols", json.dumps(read)]
    ids = [str(one) for one in kept_ids(kind, wildcards)]
    where = f"{wildcards.study}/{wildcards.scale}"
    return [*words, "--kept", where, "--ids", *ids] if ids else words


def table_content(kind):
    """Return `source_content` of a collected table."""
    return lambda wildcards: source_content(
        wildcards.study, wildcards.scale, f"{kind}/{wildcards.grid}"
    )


def place(wildcards):
    """Return study, scale and grid of a path."""
    return wildcards.study, wildcards.scale, wildcards.grid


def sources(study, product):
    """Return the sources of a product, by their names in its file."""

    def found(wildcards):
        refuse_nothing(study, wildcards.scale, product)
        given = GRID.sources(study, wildcards.scale, product)
        return source_paths(study, wildcards.scale, given)

    return found


def sources_of_claim(study, product):
    """Return the sources of a product about one claim, by their names in its file."""

    def found(wildcards):
        scale, number = wildcards.scale, int(wildcards.claim)
        given = GRID.sources_of_claim(study, scale, product, number)
        return source_paths(study, scale, given)

    return found


def claim_content(study, product):
    """Return a hash as `content` does, of a product about one claim."""

    def found(wildcards):
        scale, number = wildcards.get("scale", config["scale"]), int(wildcards.claim)
        given = GRID.sources_of_claim(study, scale, product, number).values()
        return digest([source_content(study, scale, text) for text in given])

    return found


def entry(study, product):
    """Return a product's entry as JSON, for one claim if the path names it."""
    about = STUDIES[study]["products"][product]
    shown = {key: about[key] for key in ("draw",) if key in about}

    def found(wildcards):
        claim = wildcards.get("claim")
        options = about.get("with", {}) | ({"claim": int(claim)} if claim else {})
        options |= whole_grid(study, wildcards.scale, product)
        return on_line(json.dumps(shown | {"with": options}, sort_keys=True))

    return found


def whole_grid(study, scale, product):
    """Return the option `grid` of a product about claims, if the configuration asks for a part.

    The product then counts the comparisons that the part lacks.
    """
    kind, _, grid = GRID.sources(study, scale, product).get("runs", "").partition("/")
    if not (grid and GRID.part() and is_by_claim(study, product)):
        return {}
    return {"grid": GRID.whole(study, scale, grid)}


def is_by_claim(study, product):
    """Return whether a product can be drawn for one claim."""
    return source.literal(product_file(study, product), "BY_CLAIM", False)


def copied_products(study):
    """Return the study's products with their paths, once more for those about one claim."""
    every = [*STUDIES[study]["products"]]
    by_claim = [name for name in every if is_by_claim(study, name)]
    return [*zip(every, every), *((name, f"{name}/{{claim}}") for name in by_claim)]


def source_paths(study, scale, given):
    """Return the files of a product's sources, by name: collected tables, or experiments."""
    return {
        name: f"{source_folder(text)}/{text}.csv".format(study=study, scale=scale)
        for name, text in given.items()
    }


def source_folder(text):
    """Return the folder of a product's source: of collected tables, or of experiments."""
    return HERE if text.partition("/")[0] in COLLECTED else EXPERIMENT


def refuse_nothing(study, scale, product):
    """Raise an error for a product for which the configuration leaves no runs."""
    try:
        GRID.check_product(study, scale, product)
    except UsageError as problem:
        raise WorkflowError(printable(str(problem))) from None


def refuse_targets(words):
    """Apply `refuse_nothing` to all products on the command line, and refuse the study's own.

    If the configuration asks for a part of a study, Snakemake would say that the product of the
    whole study is up to date.
    """
    pattern = re.compile(r"results/(?:studies/([^/]+)/([^/]+)(/.+)?/)?([^/]+)\.\w+")
    for target in filter(None, map(pattern.fullmatch, words)):
        study, scale, part, product = target.groups()
        if Path(part or "").name in COLLECTED:
            continue  # a collected table, which may have the name of a product
        if product in STUDIES.get(study or config["study"], NO_STUDY)["products"]:
            refuse_nothing(study or config["study"], scale or config["scale"], product)
            if study and (part or "") != GRID.part():
                folder = HERE.format(study=study, scale=scale)
                raise WorkflowError(
                    f"with this configuration {product} is in {folder}: ask for "
                    f"{folder}/{Path(target[0]).name}"
                )
        elif not study:
            refuse_of_other(product)


def refuse_of_other(product):
    """Refuse a product that only other studies have than that of the configuration."""
    if others := [
        name for name, about in STUDIES.items() if product in about["products"]
    ]:
        raise WorkflowError(
            f"the study {config['study']} has no {product}: it is a product of "
            f"{' and '.join(others)}; add --config study={others[0]}"
        )


def refuse_claims(words):
    """Refuse a claim on the command line that its study does not have."""
    pattern = re.compile(r"results/(?:studies/([^/]+)/.+/)?[^/]+/([0-9]+)\.\w+")
    for study, number in (
        found.groups() for found in map(pattern.fullmatch, words) if found
    ):
        name = study or config["study"]
        try:
            find_claim(name, STUDIES.get(name, {}), int(number))
        except UsageError as problem:
            raise WorkflowError(printable(str(problem))) from None


NO_STUDY = {"products": ()}
# Snakemake knows its targets only after it has read this file.
refuse_targets(sys.argv[1:])
refuse_claims(sys.argv[1:])


def content(study, product):
    """Return a hash of a product's runs, their settings and their code.

    Without it, a product would look finished although its sources failed: Snakemake does not remake
    a missing file if a later one looks finished.
    """

    def found(wildcards):
        scale = wildcards.get("scale", config["scale"])
        given = GRID.sources(study, scale, product).values()
        return digest([source_content(study, scale, text) for text in given])

    return found


@cache  # many products share a grid
def source_content(study, scale, text):
    """Return a hash of one source of a product: kind/grid, or an experiment."""
    kind, _, name = text.partition("/")
    if kind in COLLECTED:
        runs = [tuple(run.items()) for run in GRID.runs(study, scale, name)]
        return digest([item_content(kind, study, scale, run) for run in runs])
    setting = STUDIES[study]["scales"][scale][kind]
    if kind == "fidelity":
        setting = GRID.fidelity(study, scale)
    networks = {
        f"models.{setting[key]}" for key in ("model", "judge") if key in setting
    }
    return digest([setting, source.fingerprint(*EXPERIMENTS[kind], *sorted(networks))])


# The modules of experiments, which do not belong to a grid.
EXPERIMENTS = {
    "fidelity": tuple(
        f"experiments.fidelity.{part}" for part in ("originals", "maps", "scores")
    ),
    "costs": ("experiments.costs",),
}


def item_content(kind, study, scale, names):
    """Return `run_content`; of a kept run what it was made with, and a hash of what is kept."""
    entry = kept_entry(kind, study, scale, names)
    return facts_of_kind(entry, kind) if entry else run_content(kind, names)


@cache
def run_content(kind, names):
    """Return a hash of one run's settings and code, as far as a kind of table depends on them."""
    run = resolve(names)
    last = collecting_stage(kind)
    facts = [run[key] for key in ("name", "protocol", "method")]
    return digest([*facts, code_behind(last, run)])


def digest(facts):
    """Return a short hash of the facts."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def drawn(study, product):
    """Return the files of a product; those that readers need are in the report."""
    about = STUDIES[study]["products"][product]
    for ext in about["formats"]:
        path = f"{product_path(study, product)}.{ext}"
        labels = {"product": product, "scale": "{scale}", "format": ext}
        shown = {"caption": "../report/product.rst", "category": about["category"]}
        yield report(path, labels=labels, **shown) if ext in SHOWN else path


def product_path(study, product):
    """Return the path of a product without its ending, and with the wildcard {scale}."""
    return f"{HERE}/{product}".replace("{study}", study)


# Files that are no code, and say how figures and the front page look.
LOOKS = ("report/paper.mplstyle", "page/front.html.jinja")


@cache  # every product of a study asks for it
def facts(study):
    """Return a hash of what products are drawn with, besides runs: parts of a study, and looks."""
    shown = ("title", "main", "published", "reference", "curves", "claims", "labels")
    looks = [(WORKFLOW / "fedgrid" / path).read_text("utf-8") for path in LOOKS]
    return digest([{key: STUDIES[study].get(key) for key in shown}, looks])


def product_file(study, product):
    """Return the module that draws a product."""
    return product_module(study, product, STUDIES[study]["products"][product])


def caption(study, product):
    """Return the caption of a product in the report."""
    about = STUDIES[study]["products"][product]
    return about.get("caption") or source.summary(product_file(study, product))


def fidelity_setting(wildcards):
    """Return the setting of the fidelity study."""
    return GRID.fidelity(wildcards.study, wildcards.scale)


def costs_setting(wildcards):
    """Return the setting of the cost measurements."""
    return STUDIES[wildcards.study]["scales"][wildcards.scale]["costs"]


def network(field, weights):
    """Return the published weights of a network of the fidelity study, if it has any."""

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
    """Return the maps of every encoder and seed."""
    encoders = fidelity_setting(wildcards)["encoders"].items()
    return {
        f"{encoder}/{seed}": f"{EXPERIMENT.format(**wildcards)}/fidelity/{encoder}-seed{seed}.npz"
        for encoder, seeds in encoders
        for seed in range(seeds)
    }
