"""The progress of a long run: a bar on a terminal, or lines with the time in a log file."""

import logging
import time

from tqdm import tqdm

from fedgrid.runtime import cli

EVERY = 10  # seconds between two log lines

log = logging.getLogger(__name__)


class Rounds:
    """Count rounds from `done` to `total`; a context manager."""

    def __init__(self, done: int, total: int):
        self.bar = tqdm(
            initial=done, total=total, unit="round", disable=not cli.to_terminal(), smoothing=0.1
        )
        self.first, self.done, self.total = done, done, total
        self.began = self.said = time.monotonic()

    def __enter__(self) -> "Rounds":
        return self

    def __exit__(self, *problem) -> None:
        self.bar.close()

    def rate(self) -> float:
        """Return the rounds per second since the start."""
        return (self.done - self.first) / max(time.monotonic() - self.began, 1e-9)

    def step(self, latest: dict[str, float]) -> None:
        """Count one more round, and show the latest evaluation."""
        self.done += 1
        self.bar.update()
        shown = {k: f"{latest[k]:.4f}" for k in ("accuracy", "train_loss") if k in latest}
        self.bar.set_postfix(shown, refresh=False)
        now = time.monotonic()
        if self.bar.disable and (now - self.said >= EVERY or self.done == self.total):
            self.said, left = now, (self.total - self.done) / max(self.rate(), 1e-9)
            facts = "  ".join(f"{name} {value}" for name, value in shown.items())
            log.info(
                "round %d/%d  %s  %.3g rounds/s, %.0f s left",
                self.done,
                self.total,
                facts,
                self.rate(),
                left,
            )
