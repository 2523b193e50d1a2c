"""Send every evaluation of a run to its trackers.

A tracker that fails before the first round ends the command. Later it is given up with one warning,
because the training is worth more than a curve.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from fedgrid.runtime import cli, resolved
from fedgrid.runtime.names import UsageError, shown_error
from fedgrid.runtime.watch.trackers import ALWAYS, Asked, Run, settings


class Rows:
    """The evaluations of a run for its trackers; a context manager that closes them."""

    def __init__(
        self, asked: Asked, out: Path, run: resolved.Run, key: str, history: list[dict[str, Any]]
    ):
        self.history, self.sent = history, len(history)
        self.open: dict[str, Any] = {}
        about = Run(asked.name, key, out, asked.logs, settings(run))
        for tracker in (ALWAYS, *asked.names):
            self.start(tracker, about)

    def start(self, name: str, about: Run) -> None:
        rows = [plain(row) for row in self.history]
        try:
            module = import_module(f"fedgrid.runtime.watch.trackers.{name}")
            self.open[name] = module.tracker(about, rows)
        except Exception as problem:
            if not rows and name != ALWAYS:
                said = f"log: {name} did not start ({shown_error(problem)})"
                raise UsageError(f"{said}: correct that, or remove {name} from `log`") from problem
            give_up(name, problem)

    def __enter__(self) -> "Rows":
        return self

    def __exit__(self, *problem: Any) -> None:
        for name in [*self.open]:
            self.attempt(name, self.open[name].close)

    def send(self) -> None:
        for row in self.history[self.sent :]:
            for name in [*self.open]:
                self.attempt(name, self.open[name].write, plain(row))
        self.sent = len(self.history)

    def attempt(self, name: str, act: Callable[..., Any], *arguments: Any) -> None:
        """Let a tracker act; give it up if that fails."""
        try:
            act(*arguments)
        except Exception as problem:
            self.open.pop(name)
            give_up(name, problem)


def give_up(name: str, problem: Exception) -> None:
    what = "metrics.running.csv" if name == ALWAYS else name
    said = shown_error(problem)
    cli.warn(f"{what} failed and gets no more evaluations ({said}); the run goes on")


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a row, without lists such as the predictions and missing values."""
    return {name: of for name, of in row.items() if not isinstance(of, list | dict | None)}
