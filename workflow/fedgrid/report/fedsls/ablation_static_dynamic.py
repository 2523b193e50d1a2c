"""FedSLS with weights computed once against weights computed anew in every round.

Seconds are of the rounds; static weights also cost one pretraining and one encoding before the
first round, which here records all readings and targets of the equations at once.
"""

import pandas as pd

from fedgrid import ablations, tables

CELL = [*tables.SETTING, "seed"]


def draw(
    runs: pd.DataFrame, seconds: pd.DataFrame, encoding: pd.DataFrame, study: dict, scale: str
) -> pd.DataFrame:
    """A row per variant and setting: accuracy and difference, and means over seeds of seconds."""
    table = ablations.compared(runs, "fedsls", scale)
    once = encoding.assign(once=encoding["pretrain_seconds"] + encoding["seconds"])
    spent = seconds.merge(once[[*CELL, "once"]], on=CELL)
    spent["once"] = spent["once"].where(spent["method"] == "fedsls", 0)
    # a run that went on from a checkpoint knows the seconds of its last part only
    timed = spent["rounds_done"] - spent["resumed_at"]
    spent["training"] = spent["seconds"] * spent["rounds_done"] / timed.where(timed > 0)
    spent["total"] = spent["training"] + spent["once"]
    names = {name: f"{name}_seconds" for name in ("training", "once", "total")}
    means = spent.groupby(ablations.KEYS)[list(names)].mean().rename(columns=names)
    return table.merge(means.round(2).reset_index(), how="left", on=ablations.KEYS)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracies as in the other ablations, and seconds per run."""
    known = table.assign(diverged=0)
    form = "{training_seconds:.1f} + {once_seconds:.1f}"
    seconds = {"seconds, rounds + before": tables.wide(known, form, "")}
    return pd.concat([ablations.wide(table), pd.concat(seconds, axis=1)], axis=1)


def caption(table: pd.DataFrame) -> str:
    """What the numbers are."""
    return f"{ablations.caption(table)} Seconds per run: of its rounds, and once before the first."
