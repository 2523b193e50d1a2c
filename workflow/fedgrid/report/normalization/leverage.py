"""Whether the normalisation moves the weights far enough for the gains that the paper prints.

Panels of distances: the total variation between the weights before and after the normalisation, by
method, by number of clients and by temperature. Beside each line are its upper bound, and the
distance from equal weights of random ones with the same effective number of clients. Panels of
gains: the measured gains of the normalisation and of its placebo with 95 % intervals, and the
printed gains.

The effective number of weights a is 1 / sum a^2. Random weights are the softmax of independent
normal scores; those of each draw are scaled until the weights have the number that is asked for.
"""

import textwrap
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import fields, figures, looks, tables
from fedgrid.analysis.looks import BLACK, GREY, PALE
from fedgrid.analysis.scores import list_cohort_sizes, score_runs
from fedgrid.report import gains
from fedgrid.study.records import Study

OPTIONS = {"suffix": "ending", "placebo": "ending"}  # what they name (study/options.py)
DISTANCE, GAIN, PLACEBO, PRINTED = "distance", "gain", "placebo gain", "printed gain"
SETTING = ["dataset", "partition", "protocol"]
LINE = ["method", "original", "temperature", "cohort", *SETTING]
MEASURED = "weight_distance"
STYLES = {MEASURED: "-", "distance_bound": (0, (1, 1)), "random": (0, (4, 1.5))}
WORDS = {MEASURED: "measured distance", "distance_bound": "its upper bound"}
WORDS |= {"random": "distance of random weights"}
# The panels of distances: what varies in a panel, what is as in the first line, and the labels.
VARIED = {
    "label": ([*SETTING, "temperature"], "{}"),
    "cohort": (["dataset", "partition", "method"], "{:g} clients"),
    "temperature": ([*SETTING, "original"], "T = {:g}"),
}
TITLES = {"label": "by method", "cohort": "by clients in a round", "temperature": "by temperature"}
OFFSETS = {GAIN: -0.2, PLACEBO: 0.0, PRINTED: 0.2}  # of marks about a method's place
MARKS = {GAIN: ("o", BLACK), PLACEBO: ("s", PALE), PRINTED: ("x", GREY)}
HEIGHT, LEAST = 2.3, 2.2  # inches of a panel
DRAWS = 200  # of random weights
STEPS = 60  # of the bisection, for the scale of the scores
WIDEST = 1e4  # scale at which one weight is 1
ROOM = 1.3  # the height of a panel, in that of its points


# -- numbers --------------------------------------------------------------------------------------


def draw(
    runs: pd.DataFrame, settings: pd.DataFrame, study: Study, scale: str, suffix: str, placebo: str
) -> pd.DataFrame:
    """Return rows of distances, per line and round, and of gains, per method and setting.

    Distances are shares of the weight, means over seeds; gains are points of percent.
    NothingToDrawError if no method has runs with the part and without it.
    """
    # first: without pairs it ends this
    measured = compute_gains(runs, {GAIN: suffix, PLACEBO: placebo})
    printed = gains.list_printed_pairs(study, suffix)
    printed = printed.rename(columns={"method": "original", "printed_gain": "gain"})
    printed = printed[["original", *SETTING, "gain"]].assign(what=PRINTED)
    parts = [measure_distances(runs, settings, suffix), *measured, printed]
    table = pd.concat(parts, ignore_index=True)
    facts = runs.groupby(SETTING, sort=False).agg(rounds=("rounds", "first"))
    table = table.merge(facts.reset_index(), how="left", on=SETTING)
    table["label"] = [figures.label(study, name) for name in table["original"]]
    return table.assign(scale=scale).round(6)


def measure_distances(runs: pd.DataFrame, settings: pd.DataFrame, suffix: str) -> pd.DataFrame:
    """Return a row per normalised method, setting and round: distances, and effective clients."""
    names = runs["method"].str.partition(suffix)
    moved = (names[1] == suffix) & runs["weight_distance"].notna()
    normalised = runs.assign(original=names[0])[moved]
    every = fields.select_runs(fields.read_fields(settings), normalised)
    temperature = fields.select_field(every, "contribution.temperature").astype(float)
    cohort = list_cohort_sizes(normalised)
    normalised = normalised.assign(temperature=temperature.to_numpy(), cohort=cohort)
    table = normalised.groupby([*LINE, "round"], sort=False).agg(
        weight_distance=("weight_distance", "mean"),
        distance_bound=("distance_bound", "mean"),
        effective_clients=("effective_clients", "mean"),
        seeds=("seed", "nunique"),
    ).reset_index()  # fmt: skip
    lines = table.groupby(LINE, sort=False)["effective_clients"].mean().reset_index()
    sizes = zip(lines["cohort"], lines["effective_clients"], strict=True)
    lines["random"] = [random_distance(*size) for size in sizes]
    table = table.merge(lines[[*LINE, "random"]], on=LINE)
    return table.assign(what=DISTANCE)


def effective_number(weights: np.ndarray) -> np.ndarray:
    """Return the effective number of weights along the last axis."""
    return 1 / (weights**2).sum(axis=-1)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def random_weights(clients: int, wanted: float, seed: int = 0) -> np.ndarray:
    """Draw DRAWS random weightings of some clients, each with the wanted effective number."""
    scores = np.random.default_rng(seed).standard_normal((DRAWS, clients))
    low, high = np.zeros((DRAWS, 1)), np.full((DRAWS, 1), WIDEST)
    for _ in range(STEPS):
        middle = (low + high) / 2
        spread = effective_number(softmax(middle * scores))[:, None] > wanted
        low, high = np.where(spread, middle, low), np.where(spread, high, middle)
    return softmax(high * scores)


def random_distance(clients: int, wanted: float, seed: int = 0) -> float:
    """Return the mean total variation between random weights and equal weights.

    The random weights have the `wanted` effective number. The result is 0 if that is at least the
    number of clients, and NaN if it is NaN.
    """
    if np.isnan(wanted):
        return float("nan")
    if wanted >= clients:
        return 0.0
    weights = random_weights(clients, wanted, seed)
    return float(np.abs(weights - 1 / clients).sum(axis=-1).mean() / 2)


def compute_gains(runs: pd.DataFrame, suffixes: dict[str, str]) -> list[pd.DataFrame]:
    scores = score_runs(runs)
    tables_by_kind = []
    for what, suffix in suffixes.items():
        pairs = gains.name_pairs(scores["method"], suffix, needed=what == GAIN)
        table = gains.compute_gains(scores, pairs)
        table = table.rename(columns={"method": "original", gains.PAIRS: "seeds"})
        tables_by_kind.append(table.assign(what=what))
    return tables_by_kind


# -- the figure -----------------------------------------------------------------------------------


def plot(table: pd.DataFrame, study: Study) -> Figure:
    counts = table[table["what"] == GAIN].groupby(SETTING, sort=False).size()
    settings = [*counts[counts == counts.max()].index]  # with measured gains of the most methods
    moved = table[table["what"] == DISTANCE]
    several = [name for name in VARIED if select_view(moved, name)[name].nunique() > 1]
    views = several or ["label"] * bool(len(moved))
    size: dict[str, Any] = {"height": HEIGHT, "least": LEAST}
    figure, (row,) = figures.panels(1, len(views) + len(settings), **size)
    above, below = row[: len(views)], row[len(views) :]
    plot_distances(above, moved, views, study)
    limits = compute_limits(table[["gain", "low", "high"]])
    for axes, (dataset, partition, protocol) in zip(below, settings, strict=True):
        plot_gains(axes, table, dataset, partition, protocol)
        named = textwrap.fill(figures.label(study, protocol, "protocol"), 20)
        title = f"{figures.write_setting(study, dataset, partition)}\n{named}"
        axes.set(title=title, ylim=limits, ylabel="gain in accuracy\n(points of percent)")
    for name in (name for name in STYLES if moved[name].notna().any()):  # for the legend
        below[0].plot([], [], color=BLACK, linestyle=STYLES[name], label=WORDS[name])
    figures.legend(figure, below, columns=3)
    figures.name_lines(above)
    return figure


def compute_limits(values: pd.DataFrame) -> tuple[float, float]:
    """Return the limits of an axis that shows all points with their whole intervals."""
    finite = values.to_numpy(float)[np.isfinite(values.to_numpy(float))]
    low, high = min([0, *finite]), max([0, *finite])
    room = (ROOM - 1) * (high - low) / 2
    return low - room, high + room


def select_view(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Select the rows of a panel; what does not vary is as in the first line of the table."""
    fixed = VARIED[name][0]
    return table[(table[fixed] == table[fixed].iloc[0]).all(axis=1)] if len(table) else table


def plot_distances(row: list[Axes], table: pd.DataFrame, views: list[str], study: Study) -> None:
    methods = dict(zip(table["label"], table["original"], strict=True))
    for axes, name in zip(row, views, strict=True):
        here, form = select_view(table, name), VARIED[name][1]
        here = here if name == "label" else here.sort_values(name, kind="stable")
        of_method = looks.list_looks(methods, study, methods, looks.SOLID)
        look = of_method if name == "label" else figures.lines(here[name])
        for value, style in product(here[name].unique(), STYLES):
            line = here[here[name] == value].groupby("round")[style].mean()  # protocols may differ
            main = style == MEASURED
            drawn = look[value] | {"linestyle": STYLES[style]} | ({} if main else {"marker": ""})
            axes.plot(line.index, line, **drawn, label=form.format(value) if main else None)
        axes.set(yscale="log", title=TITLES[name], ylabel="share of the weight\n(total variation)")
    figures.name_rounds(row)


def plot_gains(
    axes: Axes, table: pd.DataFrame, dataset: str, partition: str, protocol: str
) -> None:
    """Draw the gains of a setting as marks with intervals; a band spans all printed gains.

    A gain of one seed has no interval.
    """
    here = table[(table["dataset"] == dataset) & (table["partition"] == partition)]
    here = here[here["protocol"].isin([protocol, gains.PAPER])]
    labels = here.loc[here["what"] == GAIN, "label"].tolist()
    here = here[here["label"].isin(labels)]  # the paper prints methods that may have no runs
    every = table.loc[table["what"] == PRINTED, "gain"]
    if len(every):
        axes.axhspan(every.min(), every.max(), color="0.9", label="range of all printed gains")
    for what, (mark, colour) in MARKS.items():
        part = here[here["what"] == what]
        if len(part):
            at = part["label"].map(labels.index) + OFFSETS[what]
            ends = np.abs(part[["low", "high"]].sub(part["gain"], axis=0)).T.to_numpy()
            ends = np.where(np.isfinite(ends), ends, 0)
            style: dict[str, Any] = {"fmt": mark, "color": colour, "label": what}
            axes.errorbar(at, part["gain"], ends, linewidth=0.8, **style)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(labels)), labels, rotation=40, ha="right")
    axes.set_xlim(-0.5, len(labels) - 0.5)


def caption(table: pd.DataFrame) -> str:
    moved, theirs = table[table["what"] == DISTANCE], table.loc[table["what"] == PRINTED, "gain"]
    sizes = f"at most {moved['weight_distance'].max():.2g} of the weight moves"
    unknown = moved.loc[moved["random"].isna(), "label"].unique()
    lacks = f" No effective number of clients is recorded for {', '.join(unknown)}."
    beside = f", the printed gains are {theirs.min():.2f} to {theirs.max():.2f} points"
    return (
        "Distances: the share of the aggregation weight that the normalisation moves (solid), its "
        "upper bound (dotted), and the distance from equal weights of random weights with as many "
        "effective clients (dashed); what does not vary is as in the first run. Gains: those over "
        "the original with 95 % intervals over pairs of runs: "
        f"{tables.describe_scope(table)}. Here {sizes}{beside * bool(len(theirs))}."
        f"{lacks * bool(len(unknown))}"
    )
