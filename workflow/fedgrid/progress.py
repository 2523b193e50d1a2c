"""How a long run shows itself: a bar for a person, timestamped lines for a log file."""

import logging
import time

from tqdm import tqdm

from fedgrid import cli

CHANGES_RESULTS = False
EVERY = 10  # seconds between two lines

log = logging.getLogger(__name__)


class Rounds:
    """Counts rounds, from `done` to `total`; close it with `with`."""

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
        """Rounds per second since the start."""
        return (self.done - self.first) / max(time.monotonic() - self.began, 1e-9)

    def step(self, latest: dict[str, float]) -> None:
        """One more round; the latest evaluation is shown with it."""
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
                *(self.done, self.total, facts, self.rate(), left),
            )
