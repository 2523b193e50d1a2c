"""Original images, saliency maps and conventional latent variables side by side, with their SSIM.

All are grey maps as they were saved: the channel mean, scaled to one size and contrast.
"""

from base64 import b64decode
from io import BytesIO

import matplotlib.image
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.study.records import Study

SIDE, SMALLEST = 0.85, 0.61  # inches, side of a map


def draw(examples: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per image and map: scores, and the map as a PNG in a data URI."""
    return examples.assign(map=examples["encoder"] + "-" + examples["layer"], scale=scale)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    images = list(dict.fromkeys(zip(table["dataset"], table["image"], strict=True)))
    maps = table["map"].unique()
    figure, grid = figures.panels(len(images), len(maps), SIDE, SIDE * 1.15, least=SMALLEST)
    rows = {(r.dataset, r.image, r.map): r for r in table.itertuples()}
    for (dataset, image), row in zip(images, grid, strict=True):
        for name, axes in zip(maps, row, strict=True):
            plot_map(axes, rows[dataset, image, name])
        row[0].set_ylabel(figures.label(study, dataset))
    for name, axes in zip(maps, grid[0], strict=True):
        heading = figures.label(study, name).replace(", ", "\n").replace(" f", "\nf")
        axes.set_title(heading, fontsize=7)
    return figure


def plot_map(axes: Axes, row) -> None:
    pixels = matplotlib.image.imread(BytesIO(b64decode(row.png.partition(",")[2])), format="png")
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if pd.notna(row.ssim):
        axes.set_xlabel(f"{row.ssim:.2f}", fontsize=6, labelpad=1)


def caption(table: pd.DataFrame) -> str:
    return (
        "The first images drawn of each dataset and their maps by the encoders' first seed (1 "
        f"seed); below each map its SSIM to the original; {tables.join_values(table, 'scale')} "
        f"scale.{tables.describe_explained(table.set_index('map')['explained'])}"
    )
