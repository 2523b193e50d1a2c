"""Show how long a grid will still take: in the panel of Snakemake's plugin `rich`, or in lines.

The Snakefile calls this. A line follows every twentieth of the jobs, for log files, for other
terminals and for SLURM. The estimate is the time so far, divided by the jobs that are done.
"""

import logging
from collections.abc import Iterable
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from fedgrid.runtime.watch.progress import clock

LOGGER = "snakemake.logging"
PARTS = 20  # lines of a whole grid
NOISE = "is eligible for caching"  # a long line for each such rule


def show(handlers: Iterable[logging.Handler]) -> None:
    """Add the time that is left to what Snakemake's handlers show."""
    panels = [handler for handler in handlers if hasattr(handler, "progress")]
    for handler in panels:
        handler.addFilter(lambda record: NOISE not in str(record.msg))
        if handler.progress.console.is_terminal:
            handler.progress.columns = columns()
    if not any(handler.progress.console.is_terminal for handler in panels):
        logging.getLogger(LOGGER).addHandler(Lines())


def columns() -> tuple[Any, ...]:
    """Return the columns of the panel: rule, bar, jobs, time so far, time left."""
    from rich import progress

    class Left(progress.ProgressColumn):
        """The time left of the first task, which is the whole grid."""

        max_refresh = 0.5

        def render(self, task: progress.Task) -> str:
            if task.id or task.finished or not task.completed:
                return ""
            return f"{left(task.elapsed or 0.0, int(task.completed), int(task.total or 0))} left"

    name = progress.TextColumn("[bold blue]{task.description}")
    bar = progress.BarColumn(None, complete_style="green", finished_style="dim green")
    count, elapsed = progress.MofNCompleteColumn(), progress.TimeElapsedColumn()
    return progress.SpinnerColumn(finished_text="[green]✓"), name, bar, count, elapsed, Left()


def left(seconds: float, done: int, total: int) -> str:
    """Return the time that the other jobs take if each takes as long as those that are done."""
    return clock(seconds * (total - done) / done)


class Lines(logging.Handler):
    """Log a line with the time left whenever another part of the jobs is done."""

    def __init__(self) -> None:
        super().__init__()
        self.began: float | None = None
        self.part = 0

    def emit(self, record: Any) -> None:
        event = getattr(record, "event", None)
        if event == LogEvent.RUN_INFO:
            self.began = record.created
        elif event == LogEvent.PROGRESS and self.began and record.done < record.total:
            part = PARTS * record.done // record.total
            if record.done and part > self.part:
                self.part = part
                time = left(record.created - self.began, record.done, record.total)
                said = f"{record.done} of {record.total} jobs done, about {time} left"
                logging.getLogger(LOGGER).info(said)
