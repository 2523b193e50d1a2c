"""What a run costs: operations of a client, seconds, memory and the size of the model.

Operations are counted in a real local step of the method (`engine/operations.py`), with all passes
that it makes, if the protocol has `metrics: [operations]`. They are multiplied by the samples that
a client goes through in a round. What a client computes before and after its local steps is added,
and what it computed before the first round, such as FedSLS's pretraining and encoding, has a column
of its own. What the server and evaluations compute costs seconds, and is not in the operations. A
run of one round has them all, so a study may count in short runs. Seconds and memory are those of
the machine that trained the run, with evaluations. Runs that trained beside others on the same
machine took longer than alone.
"""

import pandas as pd

from fedgrid.analysis import figures, tables
from fedgrid.analysis.measures import COUNTED
from fedgrid.analysis.scores import CELL, list_cohort_sizes, strict_mean
from fedgrid.report._texts import count, write_numbers
from fedgrid.runtime.names import UsageError
from fedgrid.study.records import Study

GIGA, TERA = 1e9, 1e12
NEEDED = ("parameters", "samples_per_round")  # of a summary; earlier ones lack them
MEANS = ("client_gflop", "before_gflop", "total_tflop", "seconds_per_round", "training_seconds")
PEAKS = ("peak_memory_mb", "peak_gpu_memory_mb")
MACHINE = ("device", "threads")


def draw(seconds: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per method and setting: means over seeds, and the highest peaks of memory."""
    if missing := [name for name in NEEDED if name not in seconds]:
        raise UsageError(
            f"the summaries of these runs lack {' and '.join(missing)}, as those of earlier "
            "versions do: train them again"
        )
    groups = compute_costs(seconds).groupby(CELL, sort=False)
    table = groups[[*MEANS]].agg(strict_mean)
    table = table.join(groups[["parameters", "samples_per_round", "rounds_done", *PEAKS]].max())
    table = table.join(groups[[*MACHINE]].agg(lambda of: " or ".join(dict.fromkeys(map(str, of)))))
    table = table.assign(seeds=groups["seed"].nunique()).reset_index()
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return table.assign(scale=scale).round(9)


def compute_costs(seconds: pd.DataFrame) -> pd.DataFrame:
    """Add the costs of every run; a resumed run knows only the seconds of its last part."""
    timed = seconds["rounds_done"] - seconds["resumed_at"]
    each = seconds["seconds"] / timed.where(timed > 0)
    steps, around, before = (
        seconds.get(name, pd.Series(float("nan"), seconds.index)) for name in COUNTED
    )
    client = steps * seconds["samples_per_round"] + around
    clients = seconds["rounds_done"] * list_cohort_sizes(seconds)
    return seconds.assign(
        client_gflop=client / GIGA,
        before_gflop=before / GIGA,
        total_tflop=(client * clients + before * seconds["clients"]) / TERA,
        seconds_per_round=each,
        training_seconds=each * seconds["rounds_done"],
    )


def wide(table: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "GFLOP, a client and round": table["client_gflop"],
        "GFLOP, a client, once": table["before_gflop"].where(table["before_gflop"] > 0),
        "TFLOP in all": table["total_tflop"],
        "s, a round": table["seconds_per_round"],
        "s in all": table["training_seconds"],
        "MiB": table["peak_memory_mb"],
        "MiB of the GPU": table["peak_gpu_memory_mb"].where(table["peak_gpu_memory_mb"] > 0),
    }
    numbers = {"parameters": write_numbers(table["parameters"], "{:,.0f}")}
    numbers |= {
        name: write_numbers(of, "{:.4g}") for name, of in columns.items() if of.notna().any()
    }
    shown = tables.name_rows(table, tables.has_several(table)).assign(**numbers)
    return shown.set_index("method")


def caption(table: pd.DataFrame) -> str:
    machines = tables.join_values(table, "device")
    counted = "counted in one step of the method"
    if table["client_gflop"].isna().all():
        counted = "which only runs with `metrics: [operations]` in their protocol count"
    others = " Seconds of different machines cannot be compared." * (" or " in machines)
    return (
        "Operations of a client in a round, and once before the first one (a multiplication and "
        f"its addition are two; nothing of the server), {counted}; seconds "
        "with evaluations and the peak memory of the process, measured on "
        f"{machines}, {count(table, 'threads', 'thread')}: {count(table, 'seeds', 'seed')}, "
        f"rounds: {tables.join_values(table, 'rounds_done')}, "
        f"{tables.join_values(table, 'scale')} scale.{others}"
    )
