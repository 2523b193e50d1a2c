"""Several jobs in one SLURM job: what Snakemake's plugin for SLURM does not do for its groups.

`snakemake --groups train=runs --group-components runs=8` asks for a group, whose jobs run side by
side. The plugin starts three Snakemakes, each by the one before: the user's, one that starts a step
of the SLURM job, and one that runs the jobs in this step. The first does not tell the second of
groups, so the second starts a step for each job, one after the other. `pass_on` corrects this.
"""

import sys
from collections.abc import Sequence

PLUGIN = "snakemake_executor_plugin_slurm"


def pass_on() -> None:
    """Let the SLURM plugin, if Snakemake has imported it, tell the Snakemake in a job of groups."""
    if plugin := sys.modules.get(PLUGIN):
        plugin.common_settings.pass_group_args = True


def is_inside(arguments: Sequence[str]) -> bool:
    """Return whether the arguments of a Snakemake say that it runs the jobs of one group."""
    return "--local-groupid" in arguments
