"""How Snakemake was started: what it runs, what it forces, and which jobs it groups."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgrid.runtime import forced, groups, timers
from fedgrid.runtime.watch import failures, remaining
from fedgrid.study.protocol import STAGES

OWN_PYTHON = {"CONDA", "APPTAINER"}  # deployments in which jobs have a Python of their own


class Invocation:
    """How Snakemake was started; `workflow` is Snakemake's object of this name.

    Snakemake knows most of its settings only after it has read the Snakefile, so they are looked up
    when they are asked for.
    """

    def __init__(self, workflow: Any, arguments: Sequence[str]):
        self._workflow = workflow
        self._has_told = False
        self.runs_group = workflow.remote_exec and groups.is_inside(arguments)
        self.runs_one_job = workflow.remote_exec and not self.runs_group
        # The rule of each stage; it has another name where another workflow uses these rules.
        self.rules = {stage: workflow.modifier.modify_rulename(stage) for stage in STAGES}

    @property
    def python(self) -> str:
        asked = self._workflow.deployment_settings
        methods = asked.deployment_method if asked else ()
        is_own = OWN_PYTHON & {method.name for method in methods}
        return "python" if is_own else sys.executable

    @property
    def will_run(self) -> bool:
        return self._workflow.executor_plugin is not None and not self._workflow.dryrun

    @property
    def is_silent(self) -> bool:
        """Whether Snakemake is asked to print nothing (`--quiet all`)."""
        return "ALL" in {one.name for one in self._workflow.output_settings.quiet or ()}

    @property
    def targets(self) -> list[str]:
        """The targets of the command, in alphabetical order."""
        return sorted(self._workflow.dag_settings.targets)

    def say(self, sentence: str, level: int = logging.INFO) -> None:
        """Show a sentence where Snakemake shows its own; nothing if it is empty, or in a job."""
        if sentence and self._workflow.is_main_process and not self._workflow.remote_exec:
            logging.getLogger(remaining.LOGGER).log(level, sentence)

    @property
    def has_storage(self) -> bool:
        """Whether results lie in a storage such as S3: here are only copies of what a job needs."""
        settings = self._workflow.storage_settings
        return bool(settings and settings.default_storage_provider)

    def is_here(self, path: str) -> bool:
        """Whether a result lies in this folder; none does that is in a storage."""
        return not self.has_storage and Path(path).exists()

    def place_of(self, path: str) -> str:
        """Return where a result is: its path, or its address in a storage."""
        prefix = self._workflow.storage_settings.default_storage_prefix if self.has_storage else ""
        return f"{prefix.rstrip('/')}/{path}" if prefix else path

    def is_grouped(self, stage: str) -> bool:
        return self._workflow.get_rule(self.rules[stage]).group is not None

    def mend_snakemake(self) -> None:
        """Correct timers, groups, progress and the end of Snakemake (`runtime/`)."""
        timers.merge()
        groups.pass_on()
        if not self._workflow.remote_exec:
            manager = getattr(self._workflow, "logger_manager", None)
            remaining.show(getattr(manager, "plugin_handlers", ()))
            if self._workflow.is_main_process:
                failures.show()

    def prepare(self) -> None:
        """Tell the jobs what is forced, and keep going in a group; every planned job calls this."""
        if self.runs_group and self._workflow.execution_settings is not None:
            # run all other jobs, too, if one fails: Snakemake does not tell this to jobs in a group
            self._workflow.execution_settings.keep_going = True
        main, settings = self._workflow.is_main_process, self._workflow.dag_settings
        if main and settings is not None and not self._has_told:
            forced.tell(settings, self.rules)  # in a job, the command has told it
            self._has_told = True
