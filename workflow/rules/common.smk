"""What all rules share: the configuration, and the plan that answers for it (fedgrid/plan/)."""

import gc
import os
import sys
from functools import wraps
from importlib.util import find_spec
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError

# Snakemake makes millions of objects, and keeps them: Python's search for garbage among them would
# take a tenth of the time of planning.
gc.set_threshold(100_000, 50, 100)

# The folder of this file; in a module, `workflow.basedir` is the folder of the other workflow.
WORKFLOW = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parent
if (WORKFLOW / "fedgrid").is_dir():  # a clone: fedgrid need not be installed
    sys.path.insert(0, str(WORKFLOW))
elif not find_spec("fedgrid"):
    raise WorkflowError(
        f"the folder {WORKFLOW / 'fedgrid'} does not exist: the rules need the code beside "
        "them, so clone the repository and name the Snakefile of the clone, or install fedgrid"
    )
if {"{", "}"} & set(str(WORKFLOW)):  # Snakemake would read them as wildcards
    raise WorkflowError(
        f"the project is in {WORKFLOW.parent}: no folder of this path may have braces"
    )

from fedgrid.runtime.names import UsageError, printable
from fedgrid.runtime.required import describe_old_packages

# Before what imports these packages.
if workflow.is_main_process and (sentence := describe_old_packages()):
    raise WorkflowError(sentence)

from fedgrid.experiments.costs import check as check_costs
from fedgrid.experiments.fidelity.setting import check_setting as check_fidelity
from fedgrid.plan.asked import code_of, name_inputs
from fedgrid.plan.configuration import ARRAYS, WRITERS, beside, make_plan, variables
from fedgrid.plan.experiments import Experiments
from fedgrid.plan.invocation import Invocation
from fedgrid.plan.opening import describe_made, describe_study
from fedgrid.plan.products import Products
from fedgrid.plan.refusals import refuse_targets
from fedgrid.plan.runs import (
    FILES,
    Runs,
    dataset_code,
    growing,
    partition_code,
    partition_specification,
    published_weights,
)
from fedgrid.plan.tables import Tables
from fedgrid.runtime import forced
from fedgrid.runtime.watch.failures import say_last
from fedgrid.study.paths import CELL, COLLECTED, HELD_OUT, PARTITION, RUN, SUMMED
from fedgrid.study.products import FORMATS
from fedgrid.study.reading import read_config


def in_one_sentence(function):
    """Return a function that raises a mistake of the user as an error of Snakemake.

    Snakemake adds lines of its own to the sentence, which is therefore said again at the end.
    """

    @wraps(function)
    def called(*arguments):
        try:
            return function(*arguments)
        except UsageError as problem:
            sentence = printable(str(problem))
            say_last(f"error: {sentence}")
            raise WorkflowError(sentence) from None

    return called


# A paper's own Snakefile includes these rules, and its folder has the configuration.
beginning = Path(workflow.main_snakefile).resolve().parent
if workflow.modifier.is_main_snakefile() and beginning != WORKFLOW.parent.resolve():
    if (beginning / "config.yaml").exists() and beginning != Path.cwd().resolve():
        raise WorkflowError(
            f"Snakemake was started outside of {beginning}, which has the configuration: start it "
            f"there, or with `--directory {beginning}`"
        )

read = [*workflow.configfiles]  # the files of the configuration
if not workflow.modifier.is_main_snakefile():
    read = []
    paths = workflow.modifier.path_modifier
    if paths.prefix or paths._prefix_replacements:
        raise WorkflowError(
            "fedgrid's commands look for results under results/: remove `prefix` from its module"
        )

# A module and the folder of a paper may leave keys out.
defaults = WORKFLOW.parent / "config.yaml"
if defaults not in [Path(path).absolute() for path in read]:
    config = in_one_sentence(read_config)(defaults) | config

invocation = Invocation(workflow, sys.argv)
invocation.mend_snakemake()
files = {Path(path): load_configfile(path) for path in read}
checks = {"fidelity": check_fidelity, "costs": check_costs}
plan = in_one_sentence(make_plan)(config, files, invocation, checks)
config = plan.config
# Snakemake knows its targets only after it has read this file.
in_one_sentence(refuse_targets)(plan, sys.argv[1:])

os.environ |= variables(plan)
if workflow.is_main_process:
    os.environ[forced.VARIABLE] = ""


# What this command forces (`Invocation.prepare`): the jobs of every executor get it.
envvars:
    forced.VARIABLE,


runs = Runs(plan)
tables = Tables(plan, runs)
experiments = Experiments(plan)
products = Products(plan, tables, experiments)

SHOWN = ("svg", "txt", "html", "csv")  # the formats in the report


def in_report(study, product, path):
    """Return the files of a product at a path; those that readers need are in the report."""
    if path != product:  # of one claim
        yield f"{products.path(study, path)}.{{ext}}"
        return
    category = products.category(study, product)
    shown = {"caption": "../report/product.rst", "category": category}
    for file, labels in products.files(study, product):
        is_shown = labels["format"] in SHOWN
        yield report(file, labels=labels, **shown) if is_shown else file


# What the report says first.
config["opening"] = describe_study(plan)


wildcard_constraints:
    protocol=r"[^/]+",
    dataset=r"[^/]+",
    partition=r"[^/]+",
    method=r"[^/]+",
    seed=r"[0-9]+",
    recipe=r"[a-z]+",
    model=r"[^/-]+",
    clients=r"\d+|writers",
    held=HELD_OUT,
    cell=r"[^/]+",
    study=r"[^/]+",
    scale=r"[^/]+",
    grid=r"[^/]+",
    claim=r"[1-9]\d*",
    ext="|".join(FORMATS),
