"""Both accuracies by the block at which the network is split, for four kinds of ways (figure 8).

A bar is named as in the paper: a letter per block from bottom to top, upper case if it is shared,
lower case if it is private. Its height is the mean over seeds of the score. Its error bar is the
standard deviation of the same evaluations within a run, mean over seeds, as the paper shows it.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import choice, fields, figures, metrics, scores, tables
from fedgrid.analysis.looks import find_colour
from fedgrid.analysis.scores import CELL, RUN
from fedgrid.report.privatization.ways import ACCURACIES
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.study.records import Study

KINDS = {"ps": "PS", "sp": "SP", "sps": "SPS", "ssp": "SSP"}
NONE = ""  # the kind of a method without a split


def draw(
    runs: pd.DataFrame, settings: pd.DataFrame, study: Study, scale: str, best: dict | None = None
) -> pd.DataFrame:
    """Return a row per accuracy, method and setting, in the order of kinds and splits.

    `best` keeps the best runs by each accuracy.
    """
    choose, ways = choice.make_chooser(runs, settings, best), name_ways(settings)
    parts = []
    for name, metric in ACCURACIES.items():
        kept = choose(runs, metric)
        means = average_deviations(scores.select_scored(kept, metric), metric)
        means = choice.add_choice(means.merge(ways, on=["method", "dataset"]), kept)
        parts.append(means.assign(what=name))
    table = pd.concat(parts, ignore_index=True)
    rank = table["kind"].map([NONE, *KINDS].index)
    table = table.assign(rank=rank).sort_values(["rank", "split"], kind="stable")
    return table.drop(columns="rank").assign(scale=scale).round(4)


def average_deviations(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    tail = runs[scores.find_tail(runs) & ~runs["diverged"]]
    within = (100 * tail[metric]).groupby([tail[name] for name in RUN]).std().rename("deviation")
    scored = scores.score_runs(runs, metric).merge(within.reset_index(), how="left", on=RUN)
    table = scores.mean_over_seeds(scored, CELL, metric).drop(columns="of", errors="ignore")
    deviations = scores.mean_over_seeds(scored, CELL, "deviation")["mean"]
    return table.assign(deviation=deviations)


def name_ways(settings: pd.DataFrame) -> pd.DataFrame:
    every = fields.read_fields(settings).reset_index().drop_duplicates(["method", "dataset"])
    rows = []
    for run in every.to_dict("records"):
        kind = next((name for name in KINDS if pd.notna(run.get(f"{name}.split"))), NONE)
        blocks, encoder = count_blocks(run["protocol.model"])
        given = run.get(f"{kind}.split")
        split = 0 if not kind else encoder if given == "none" else int(given)
        way = write_letters(kind, split, blocks)
        rows.append((run["method"], run["dataset"], kind, split, way))
    return pd.DataFrame(rows, columns=["method", "dataset", "kind", "split", "way"])


def count_blocks(model: str) -> tuple[int, int]:
    blocks, encoder = (source.literal(f"models.{model}", name) for name in ("BLOCKS", "ENCODER"))
    if not blocks or encoder is None:
        raise UsageError(
            f"{source.file(f'models.{model}')} has no BLOCKS and ENCODER, by which splits are "
            "named: add both"
        )
    return len(blocks), encoder


def write_letters(kind: str, split: int, blocks: int) -> str:
    """Write a way as the paper does: PS at 1 of 2 blocks is aB, SSP at 1 is ABb."""
    names = [chr(ord("A") + at) for at in range(blocks)]
    low = {"ps": str.lower, "sps": lambda name: name + name.lower()}.get(kind, str)
    high = {"sp": str.lower, "ssp": lambda name: name + name.lower()}.get(kind, str)
    return "".join([*map(low, names[:split]), *map(high, names[split:])])


def plot(table: pd.DataFrame, study: Study) -> Figure:
    columns = [*table.groupby(["dataset", "partition"], sort=False).groups]
    figure, grid = figures.panels(len(ACCURACIES), len(columns), width=4.4, height=2.4)
    for (name, metric), row in zip(ACCURACIES.items(), grid, strict=True):
        for axes, setting in zip(row, columns, strict=True):
            here = (table[["dataset", "partition"]] == [*setting]).all(axis=1)
            plot_bars(axes, table[here & (table["what"] == name)])
            axes.set_title(figures.write_setting(study, *setting), pad=2 * figures.LABEL)
        figures.label_rows(row, f"{name}\naccuracy{metrics.write_unit(metric)}")
    figures.name_lines(figure.axes)
    return figure


def plot_bars(axes: Axes, table: pd.DataFrame) -> None:
    """Draw a group of bars per kind, named above it; a method without a split is a dashed line."""
    table = table.reset_index(drop=True)
    kinds = table["kind"].astype(object).fillna(NONE)
    split = table[kinds != NONE]
    places = [at + [*KINDS].index(kind) for at, kind in enumerate(kinds[split.index])]
    places = pd.Series(places, split.index, dtype=int)
    for kind, part in split.groupby("kind", sort=False):
        colour = find_colour(KINDS[kind])
        at, deviation = places[part.index], part["deviation"]
        axes.bar(at, part["mean"], color=colour, yerr=deviation, label=KINDS[kind])
        axes.text(
            at.mean(), 1, KINDS[kind], transform=axes.get_xaxis_transform(), size=figures.LABEL,
            ha="center", va="bottom", color=figures.darken(colour),
        )  # fmt: skip
    for row in table[kinds == NONE].itertuples():
        colour = find_colour(row.method)
        axes.axhline(row.mean, color=colour, linestyle="--", label=f"{row.way}, shared")
    axes.set_xticks(places, split["way"], rotation=90)
    axes.grid(visible=False, axis="x")


def caption(table: pd.DataFrame) -> str:
    score = tables.describe_score(table).replace("test accuracy", "accuracy")
    untested = tables.describe_untested(table, ACCURACIES["personalisation"])
    lost = " A bar is missing if a run diverged." * bool(table["diverged"].any())
    return (
        f"The {score} of the server's model (aggregation), and the same of clients' own models, "
        f"mean over clients{untested} (personalisation): mean over seeds, with the standard "
        f"deviation of the evaluations in the last {tables.join_values(table, 'tail')} rounds: "
        f"{tables.describe_scope(table)}. Of the dashed line all blocks are shared.{lost}"
    )
