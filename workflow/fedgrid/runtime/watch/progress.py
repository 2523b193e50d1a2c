"""The progress of a long run: a bar on a terminal, or lines with the time in a log file."""

import logging
import time
from typing import Any

from tqdm import tqdm

from fedgrid.runtime import cli

EVERY = 10  # seconds between two log lines, or SHARE of the time so far if that is more: the log of
SHARE = 0.01  # a failed job is printed, and must not have thousands of lines

log = logging.getLogger(__name__)


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


class Rounds:
    """Count rounds from `done` to `total`; a context manager."""

    def __init__(self, done: int, total: int):
        self.bar = tqdm(
            initial=done, total=total, unit="round", disable=not cli.to_terminal(), smoothing=0.1,
            dynamic_ncols=True,
        )  # fmt: skip
        self.first, self.done, self.total = done, done, total
        self.began = self.said = time.monotonic()

    def __enter__(self) -> "Rounds":
        return self

    def __exit__(self, *problem: Any) -> None:
        self.bar.close()

    def step(self, latest: dict[str, float]) -> None:
        self.done += 1
        self.bar.update()
        names = {"accuracy": "accuracy", "own_weighted": "own accuracy", "train_loss": "loss"}
        there = {word: latest.get(name) for name, word in names.items()}
        shown = {word: f"{value:.4g}" for word, value in there.items() if value is not None}
        self.bar.set_postfix(shown, refresh=False)
        now = time.monotonic()
        passed, is_last = now - self.began, self.done == self.total
        if self.bar.disable and (is_last or now - self.said >= max(EVERY, SHARE * passed)):
            self.said, facts = now, "  ".join(f"{word} {value}" for word, value in shown.items())
            left = clock(passed / (self.done - self.first) * (self.total - self.done))
            log.info("round %d/%d  %s  %s left", self.done, self.total, facts, left)
