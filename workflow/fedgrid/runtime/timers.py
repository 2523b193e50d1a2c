"""Let Snakemake's scheduler wait for one timer, not for one more after every job.

Snakemake limits how many jobs start in a time (`--max-jobs-per-timespan`, 100 a second if not
given). While jobs wait, its scheduler looks for jobs that can start whenever a job ends, and starts
a timer after every look. The end of a timer is a reason to look, too. So each job that ends begins
a chain of timers that lasts until no job waits: after 400 jobs the scheduler looks 400 times a
second, and every timer is a thread. `merge` replaces the method that starts a timer: it starts none
if one is waiting that ends early enough. The Snakefile calls it.
"""

import inspect
import threading
import time
from contextlib import suppress
from textwrap import dedent
from typing import Any

# The method as it is in Snakemake 9.27.1; a method with another text stays as it is.
EXPECTED = """\
def _schedule_reevalutation(self, delay: int) -> None:
    threading.Timer(
        delay,
        lambda: self._open_jobs.release(),
    ).start()
"""
_lock = threading.Lock()  # for the attribute `timer` of a scheduler


def merge() -> bool:
    """Replace the method of Snakemake if it is as expected; return whether it is replaced now."""
    from snakemake.scheduling.job_scheduler import JobScheduler

    found: Any = JobScheduler.__dict__.get("_schedule_reevalutation")
    if found is look_later:
        return True
    with suppress(OSError, TypeError):  # there is no source, or no such method
        if dedent(inspect.getsource(found)) == EXPECTED:
            JobScheduler._schedule_reevalutation = look_later
            return True
    return False


def look_later(scheduler: Any, delay: float) -> None:
    """Make a scheduler look for jobs in `delay` seconds, or earlier if its timer ends earlier."""
    due = time.monotonic() + delay
    with _lock:
        waiting = getattr(scheduler, "timer", None)
        if waiting and waiting.due <= due:
            return
        if waiting:
            waiting.cancel()
        timer: Any = threading.Timer(delay, look, [scheduler])
        scheduler.timer = timer
        timer.due, timer.daemon = due, True  # Snakemake's end does not wait for the timer
        timer.start()


def look(scheduler: Any) -> None:
    """Let a scheduler look for jobs now; its next wish for a look starts a new timer."""
    with _lock:
        if scheduler.timer is threading.current_thread():
            scheduler.timer = None
    scheduler._open_jobs.release()
