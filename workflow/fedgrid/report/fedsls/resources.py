"""Memory, operations and seconds that saliency costs, beside the figures of FedSLS's section 3.4.

The paper does not say what its figures count. All readings of a list are computed, and a figure is
reproduced only by a reading that agrees to the figure's printed precision, half a unit of its last
digit. Our own accounting stores 4 bytes for every number of the latents G_l (images, channels,
height, width), or of their channel means (equation 12).
"""

from decimal import Decimal
from itertools import product

import pandas as pd

from fedgrid import tables
from fedgrid.names import known

FLOAT = 4  # bytes
BYTES = (4, 2, 1, 8)  # of a number, for readings of the paper's figures
REPRODUCES = "reproduces"
FORWARD = "forward pass"  # the pass that others are compared with
MEGA = {"MB": 1e6, "MiB": 2**20}
OPERATIONS = {
    "MACs of a forward pass": 1,
    "multiplications and additions of a forward pass": 2,
    "MACs of a forward and a backward pass": 3,
    "multiplications and additions of a forward and a backward pass": 6,
}
COLUMNS = [
    *("quantity", "images", "value", "unit", "published", "published_unit", "difference"),
    *("verdict", "formula", "readings", "model", "dataset", "scale"),
]


def draw(costs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per quantity: the paper's figures and what gives them, then our own accounting.

    `costs` is what fedgrid.costs wrote; `study` is the study's file, with the figures under
    published.resources. They are left out for another model or dataset than theirs. Of a published
    row `value` is that of the nearest reading, in the reading's unit.
    """
    model, dataset = costs["model"].iloc[0], costs["dataset"].iloc[0]
    published = study.get("published", {}).get("resources", {})
    same = (published.get("model"), published.get("dataset")) == (model, dataset)
    figures = published.get("figures", []) if same else []
    rows = [compared(figure, figures, costs) for figure in figures]
    rows += [*memory(costs), *operations(costs), *measured(costs)]
    table = pd.DataFrame(rows, columns=COLUMNS).assign(model=model, dataset=dataset, scale=scale)
    table["images"] = table["images"].astype("Int64")
    table["readings"] = table["readings"].astype("Int64")
    return table.round(dict.fromkeys(("value", "difference"), 4))


def number(costs: pd.DataFrame, layer: str, name: str) -> float:
    """One value of `costs`."""
    (value,) = costs.loc[(costs["layer"] == layer) & (costs["name"] == name), "value"]
    return float(value)


def layers(costs: pd.DataFrame, side: bool) -> pd.DataFrame:
    """A row per convolution in forward order, a column per number; `side` for side paths too."""
    chosen = costs[costs["kind"].isin(["main", "side"] if side else ["main"])]
    wide = chosen.pivot(index="layer", columns="name", values="value")
    return wide.reindex(chosen["layer"].unique()).astype(float)


def macs(costs: pd.DataFrame) -> float:
    """Multiply-accumulates of a forward pass of one image."""
    return float(costs.loc[costs["name"] == "macs", "value"].sum())


# --- readings of the published figures -------------------------------------------------------


def stored(costs: pd.DataFrame) -> dict[str, float]:
    """What might be kept of one image, in numbers."""
    main, both = layers(costs, side=False), layers(costs, side=True)
    image, classes = number(costs, "image", "elements"), number(costs, "image", "classes")
    found = {
        "gradient at the input": image,
        "gradient at the input and class scores": image + classes,
        "first convolution's output": main["elements"].iloc[0],
        "channel mean of the first convolution's output": area(main).iloc[0],
    }
    for where, of in {"main path": main, "with side paths": both}.items():
        found[f"inputs of all convolutions, {where}"] = of["input_elements"].sum()
        found[f"outputs of all convolutions, {where}"] = of["elements"].sum()
        found[f"channel means of all convolutions' outputs, {where}"] = area(of).sum()
    return found


def area(layers: pd.DataFrame) -> pd.Series:
    """Numbers of a channel mean, by layer."""
    return layers["height"] * layers["width"]


def memory_readings(costs: pd.DataFrame, images: int) -> list[tuple[str, float, str]]:
    """What is stored, its size and the size's unit."""
    return [
        (f"{what}, {bytes_} bytes each", images * numbers * bytes_ / MEGA[unit], unit)
        for (what, numbers), bytes_, unit in product(stored(costs).items(), BYTES, MEGA)
    ]


def operation_readings(costs: pd.DataFrame, images: int) -> list[tuple[str, float, str]]:
    """What is counted, its number and the number's unit."""
    each = macs(costs)
    return [(what, images * each * times / 1e9, "GFLOPs") for what, times in OPERATIONS.items()]


READINGS = {"MB": memory_readings, "GFLOPs": operation_readings}  # by the unit of a figure


def compared(figure: dict, figures: list[dict], costs: pd.DataFrame) -> dict:
    """The row of a published figure, one of `figures`: its nearest reading, and if that gives it.

    UsageError for a figure in a unit that has no readings.
    """
    unit = known("unit of a published figure", figure["unit"], READINGS)
    readings = READINGS[unit](costs, figure["images"])
    target = float(figure["value"])
    what, value, unit = min(readings, key=lambda reading: abs(reading[1] - target))
    return {
        "quantity": f"paper: {figure['quantity']}",
        **{"images": figure["images"], "published": target, "published_unit": figure["unit"]},
        **{"value": value, "unit": unit, "difference": value - target},
        **{"readings": len(readings), "formula": what},
        "verdict": verdict(agrees(value, figure["value"]), multiple(figure, figures)),
    }


def verdict(reproduced: bool, multiple: str) -> str:
    """In words; `multiple` is how the figure follows from another one, if it does."""
    if reproduced:
        return REPRODUCES
    return f"no reading reproduces it{'; it is ' if multiple else ''}{multiple}"


def multiple(figure: dict, figures: list[dict]) -> str:
    """The figure for fewer images that gives this one if it is scaled by images, or nothing."""
    for other in figures:
        times = Decimal(figure["images"]) / Decimal(other["images"])
        scaled = times * Decimal(str(other["value"]))
        if times > 1 and other["unit"] == figure["unit"] and agrees(scaled, figure["value"]):
            return f"{times:f} x the paper's {other['value']} {other['unit']}"
    return ""


def agrees(value: float | Decimal, printed: float | str) -> bool:
    """Whether `value` is within half a unit of the last digit of a number as it was printed."""
    digit = Decimal(1).scaleb(Decimal(str(printed)).as_tuple().exponent)
    return abs(Decimal(str(value)) - Decimal(str(printed))) <= digit / 2


# --- our own accounting ----------------------------------------------------------------------


def both_sizes(costs: pd.DataFrame) -> list[int]:
    """The images that were measured, and those of the training set."""
    return [int(number(costs, which, "images")) for which in ("encoded", "training set")]


def memory(costs: pd.DataFrame) -> list[dict]:
    """Rows of the latents' size before and after the channel mean, and their ratio."""
    main, both = layers(costs, side=False), layers(costs, side=True)
    parts = {
        "first layer": main[:1],
        "all layers, main path": main,
        "all layers, with side paths": both,
    }
    return [row for where, of in parts.items() for row in kept(where, of, both_sizes(costs))]


def kept(where: str, of: pd.DataFrame, sizes: list[int]) -> list[dict]:
    """Rows of the memory of some layers' latents and channel means, for numbers of images."""
    before, after = of["elements"].sum(), area(of).sum()
    rows = []
    for images in sizes:
        unit = FLOAT * images / MEGA["MB"]
        formula = f"{FLOAT} bytes x images x sum of"
        rows.append(row(f"latents, {where}", images, unit * before, "MB", f"{formula} C H W"))
        rows.append(row(f"channel means, {where}", images, unit * after, "MB", f"{formula} H W"))
    ratio = f"latents / channel means, {where}"
    return [*rows, row(ratio, None, before / after, "", "sum of C H W / sum of H W")]


def operations(costs: pd.DataFrame) -> list[dict]:
    """Rows of a forward pass's multiply-accumulates."""
    what, formula = "operations, forward pass", "images x MACs of convolutions and linear layers"
    each = macs(costs)
    return [row(what, 1, each / 1e6, "MMAC", formula)] + [
        row(what, images, images * each / 1e9, "GMAC", formula) for images in both_sizes(costs)
    ]


def measured(costs: pd.DataFrame) -> list[dict]:
    """Rows of the seconds and peak memory of every pass."""
    chosen = costs[(costs["kind"] == "measured") & (costs["name"] == "seconds")]
    return [row for layer in chosen["layer"] for row in timed(layer, costs)]


def timed(layer: str, costs: pd.DataFrame) -> list[dict]:
    """Rows of one pass; its seconds for the training set are extrapolated."""
    images, train = both_sizes(costs)
    seconds, cpu, peak = (
        number(costs, layer, name) for name in ("seconds", "cpu_seconds", "peak_memory")
    )
    limit = "" if number(costs, "machine", "exact_peak") else "at least, "
    together = f"{limit}measured, {number(costs, 'encoded', 'chunk'):.0f} images at a time"
    rows = [
        row(f"time, {layer}", images, seconds, "s", "measured"),
        row(f"time, {layer}", train, seconds * train / images, "s", "extrapolated"),
        row(f"processor time, {layer}", images, cpu, "s", "measured"),
        row(f"peak memory, {layer}", images, peak / MEGA["MB"], "MB", together),
    ]
    if layer != FORWARD:
        ratio = seconds / number(costs, FORWARD, "seconds")
        rows.append(row(f"time / that of a {FORWARD}, {layer}", images, ratio, "", "measured"))
    return rows


def row(quantity: str, images: int | None, value: float, unit: str, formula: str) -> dict:
    """A row that is compared with nothing."""
    return dict(quantity=quantity, images=images, value=value, unit=unit, formula=formula)


# --- for people ------------------------------------------------------------------------------


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """A row per quantity: amounts with their units, and why."""
    images = numbers(table["images"])
    shown = pd.DataFrame({
        "quantity": table["quantity"],
        "images": [f"{n:,.0f}" if n == n else "" for n in images],
        "published": amounts(table["published"], table["published_unit"]),
        "ours": amounts(table["value"], table["unit"]),
        "formula": table["formula"],
        "verdict": table["verdict"].fillna(""),
    })  # fmt: skip
    return shown.set_index("quantity")


def amounts(values: pd.Series, units: pd.Series) -> list[str]:
    """Values with their units; nothing for a missing one."""
    pairs = zip(numbers(values), units.fillna(""), strict=True)
    return [f"{value:.5g} {unit}".strip() if value == value else "" for value, unit in pairs]


def numbers(values: pd.Series) -> list[float]:
    """NaN where one is missing."""
    return values.astype("Float64").to_numpy(float, na_value=float("nan")).tolist()


def caption(table: pd.DataFrame) -> str:
    """What the numbers are, and how many of the paper's are reproduced."""
    (images,) = table.loc[table["formula"] == "measured", "images"].unique()
    model, dataset, scale = (tables.each(table, name) for name in ("model", "dataset", "scale"))
    said = (
        f"What encoding saliency costs: memory of the latents at {FLOAT} bytes a number, "
        "operations, and what was measured on "
        f"{images:,.0f} random images of the size of {dataset} with {model}; {scale} scale."
    )
    if not (figures := int(table["published"].notna().sum())):
        return said
    reproduced = int((table["verdict"] == REPRODUCES).sum())
    most = int(table["readings"].max())
    return (
        f"{said} One of up to {most} readings gives {reproduced} of the paper's {figures} figures."
    )
