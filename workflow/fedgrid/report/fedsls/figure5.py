"""Similarity of latent variables to their images: SSIM, cosine similarity, Euclidean distance.

Boxes show the quartiles over all images and encoder seeds, whiskers reach 1.5 times the box's
height, circles are outliers; a line is the median, a triangle the mean, a dot the median of one
seed. Left of the vertical line are the paper's maps: saliency at the input, and an encoder that
shrinks f times. Right of it are maps for comparison: saliency at the first convolution, and plain
down-sampling.
"""

from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.measures import find_box
from fedgrid.study.records import Study

SCORES = {"ssim": "SSIM", "cosine": "cosine similarity", "euclidean": "Euclidean distance"}
PAPER = ("saliency-input", "autoencoder-f2", "autoencoder-f4", "autoencoder-f8")
ALL = "all"  # all seeds together


def draw(scores: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return the numbers of a box per map, score and seed, and for all seeds together."""
    scores = scores.assign(map=scores["encoder"] + "-" + scores["layer"])
    order = [name for name in PAPER if name in set(scores["map"])]
    order += [name for name in scores["map"].unique() if name not in PAPER]
    rows = []
    for name in order:
        scored = scores[scores["map"] == name]
        images = len(scored[["dataset", "image"]].drop_duplicates())
        facts = {"map": name, "seeds": scored["seed"].nunique(), "images": images}
        parts = [(ALL, scored), *((str(seed), part) for seed, part in scored.groupby("seed"))]
        for score, (seed, part) in product(SCORES, parts):
            about = {"score": score, "seed": seed, "explained": part["explained"].mean()}
            rows.append(facts | about | compute_box(part[score]))
    return pd.DataFrame(rows).assign(scale=scale)


def compute_box(values: pd.Series) -> dict:
    """Return Tukey's box; outliers are rounded, without duplicates, as a list in a text."""
    low, median, high, inside, outliers = find_box(values)
    numbers = {
        "mean": values.mean(), "median": median, "q1": low, "q3": high, "box": high - low,
        "whisker_low": inside.min(), "whisker_high": inside.max(),
    }  # fmt: skip
    text = " ".join(map(str, sorted({*outliers.round(3).tolist()})))
    return {k: round(float(v), 4) for k, v in numbers.items()} | {"outliers": text}


def plot(table: pd.DataFrame, study: Study) -> Figure:
    figure, (row,) = figures.panels(1, len(SCORES), 2.6, 2.6)
    maps = table["map"].unique()
    names = [figures.label(study, name) for name in maps]
    for (score, label), axes in zip(SCORES.items(), row, strict=True):
        plot_boxes(axes, table[table["score"] == score])
        axes.set_ylabel(label)
        axes.set_xticks(range(len(maps)), names, rotation=60, ha="right", rotation_mode="anchor")
        axes.axvline(sum(name in PAPER for name in maps) - 0.5, color="0.5", lw=0.6)
    return figure


def plot_boxes(axes: Axes, table: pd.DataFrame) -> None:
    together = table[table["seed"] == ALL].fillna({"outliers": ""})
    numbers = [
        {
            "med": r.median, "mean": r.mean, "q1": r.q1, "q3": r.q3, "whislo": r.whisker_low,
            "whishi": r.whisker_high, "fliers": [float(v) for v in str(r.outliers).split()],
        }
        for r in together.itertuples()
    ]  # fmt: skip
    places = range(len(numbers))
    axes.bxp(
        numbers, places, widths=0.55, showmeans=True, patch_artist=True,
        boxprops={"facecolor": "0.92"}, medianprops={"color": "black"},
        meanprops={"marker": "^", "markersize": 4, "markerfacecolor": "C0", "markeredgewidth": 0},
        flierprops={"marker": "o", "markersize": 2, "markeredgewidth": 0.4, "alpha": 0.5},
    )  # fmt: skip
    alone = table[table["seed"] != ALL]
    at = [list(together["map"]).index(name) + 0.38 for name in alone["map"]]
    axes.scatter(at, alone["median"], s=6, color="C1", zorder=3, linewidths=0)


def caption(table: pd.DataFrame) -> str:
    seeds = table.groupby("map", sort=False)["seeds"].first()
    counted = f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else seeds.max()
    return (
        f"Similarity of maps to their images over {tables.join_values(table, 'images')} images and "
        f"{counted} encoder seeds (median of each: orange dots), "
        f"{tables.join_values(table, 'scale')} scale. SSIM with a Gaussian window of 11 pixels; "
        "cosine of the judging model's outputs; Euclidean distance of maps in [0, 1]."
        f"{tables.describe_explained(table[table['seed'] != ALL].set_index('map')['explained'])}"
    )
