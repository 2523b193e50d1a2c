"""FedSLS with weights computed once, against weights computed in every round.

Seconds are those of the rounds. Static weights also need one pretraining and one encoding before
the first round; this encoding covers all readings and targets of the equations.
"""

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.analysis.scores import SETTING
from fedgrid.report import ablation
from fedgrid.study.records import Study

CELL = [*SETTING, "seed"]


def draw(
    runs: pd.DataFrame, seconds: pd.DataFrame, encoding: pd.DataFrame, study: Study, scale: str
) -> pd.DataFrame:
    """Return a row per variant and setting: accuracy, difference, mean seconds over seeds."""
    table = ablation.draw(runs, study, scale, "fedsls")
    once = encoding.assign(once=encoding["pretrain_seconds"] + encoding["seconds"])
    spent = seconds.merge(once[[*CELL, "once"]], on=CELL)
    spent["once"] = spent["once"].where(spent["method"] == "fedsls", 0)
    # a resumed run knows only the seconds of its last part
    timed = spent["rounds_done"] - spent["resumed_at"]
    spent["training"] = spent["seconds"] * spent["rounds_done"] / timed.where(timed > 0)
    spent["total"] = spent["training"] + spent["once"]
    names = {name: f"{name}_seconds" for name in ("training", "once", "total")}
    means = spent.groupby(ablation.KEYS)[list(names)].mean().rename(columns=names)
    return table.merge(means.round(2).reset_index(), how="left", on=ablation.KEYS)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    known = table.assign(diverged=0, seeds=1)
    form = "{training_seconds:.1f} + {once_seconds:.1f}"
    seconds = {"seconds, rounds + before": tables.lay_out(known, form, "")}
    return pd.concat([ablation.wide(table), pd.concat(seconds, axis=1)], axis=1)


def caption(table: pd.DataFrame) -> str:
    return f"{ablation.caption(table)} Seconds per run: of its rounds, and once before the first."
