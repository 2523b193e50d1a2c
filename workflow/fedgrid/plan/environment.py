"""The variables of the environment with which the commands of all rules begin.

A command is thus the same text on every machine: Snakemake reruns a job whose command has changed.
Snakemake's own `shell.prefix` would change the rules of a workflow that has this one as a module,
too.
"""

import json
import os

from fedgrid.plan.configuration import Plan
from fedgrid.runtime.names import PACKAGE
from fedgrid.runtime.watch import trackers
from fedgrid.study.jobs import STATES_READ


def variables(plan: Plan) -> dict[str, str]:
    config = plan.config
    is_warm = config["warm"] and not plan.snakemake.runs_one_job
    return {
        "FEDGRID_CODE": str(PACKAGE.parent),
        "FEDGRID_PYTHON": plan.snakemake.python,
        "FEDGRID_DEVICE": config["device"],
        "FEDGRID_BACKEND": config["backend"],
        "FEDGRID_COMPILE": config.get("compile", "auto"),
        "FEDGRID_TRACK": ",".join(trackers.chosen(config.get("log"))),
        "FEDGRID_DATA": config["data_root"],
        "FEDGRID_KEEP_STATE_GB": str(config.get("keep_state_gb", 1)),
        STATES_READ: json.dumps(plan.grid.blocks_of_kind("interpolation")),
        "FEDGRID_WARM": str(os.getpid() if is_warm else ""),
    }
