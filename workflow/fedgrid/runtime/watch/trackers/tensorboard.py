"""TensorBoard: event files in logs/tensorboard/<run>/.

`tensorboard --logdir results/logs/tensorboard` compares all runs.
"""

from typing import Any

from fedgrid.runtime.watch.trackers import Run, numbers

PACKAGE = "tensorboard"
FLUSH_SECONDS = 10


def tracker(run: Run, rows: list[dict[str, Any]]) -> "Events":
    """Return the event file of a run; rounds that it trains again replace the earlier ones."""
    return Events(run, rows[-1]["round"] + 1 if rows else 0)


class Events:
    def __init__(self, run: Run, first: int):
        from torch.utils.tensorboard import SummaryWriter

        folder = run.logs / "tensorboard" / run.name
        self.writer = SummaryWriter(str(folder), purge_step=first, flush_secs=FLUSH_SECONDS)
        if not first:  # a table of Markdown
            head = ["| setting | value |", "|---|---|"]
            lines = [f"| {name} | {value} |" for name, value in run.settings.items()]
            self.writer.add_text("settings", "\n".join([*head, *lines]), 0)

    def write(self, row: dict[str, Any]) -> None:
        for name, value in numbers(row).items():
            self.writer.add_scalar(name, value, row["round"])

    def close(self) -> None:
        self.writer.close()
