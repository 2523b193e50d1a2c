"""Repeat the sentences of failed jobs at the end of what Snakemake prints, where people look.

A job ends its log with one sentence, `error: ...`. Snakemake shows it in the middle of its own
lines; on a cluster, it is in the log only. The Snakefile calls `show`.
"""

import atexit
import logging
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from fedgrid.runtime.watch.remaining import LOGGER

SENTENCE = re.compile(r"(?:[0-9-]+ [0-9:]+ )?(error: .*)")  # a line of a log, with or without time
MOST = 10  # sentences


class Failures(logging.Handler):
    """Collect the logs of failed jobs, and sentences of the plan; `tell` prints what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, None] = {}
        self.said: dict[str, None] = {}

    def emit(self, record: Any) -> None:
        """Note the logs of a job that has failed; another attempt may write them anew."""
        if getattr(record, "event", None) == LogEvent.JOB_ERROR:
            self.logs |= dict.fromkeys(map(str, record.log or ()))

    def tell(self) -> None:
        found = [sentence for log in self.logs for sentence in find_sentence(Path(log))]
        sentences = [*dict.fromkeys([*self.said, *found])]
        if (more := len(sentences) - MOST) > 0:
            sentences[MOST:] = [f"and {more} other errors"]
        for sentence in sentences:
            print(sentence, file=sys.stderr, flush=True)


FAILURES = Failures()


def show() -> None:
    """Print the sentences when this process ends, once, however often the rules are read."""
    logging.getLogger(LOGGER).addHandler(FAILURES)
    atexit.unregister(FAILURES.tell)
    atexit.register(FAILURES.tell)


def say_last(sentence: str) -> None:
    """Print a sentence of the plan at the end, after Snakemake's own lines."""
    FAILURES.said[sentence] = None


def find_sentence(log: Path) -> list[str]:
    """Return the last error of a log; none if it has no error, or cannot be read."""
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [found[1] for line in lines if (found := SENTENCE.fullmatch(line))][-1:]
    return []
