"""Memory, operations and seconds of saliency encoding, beside the figures of FedSLS's section 3.4.

The paper does not say what its figures count. Several readings are computed for each figure. A
reading reproduces a figure if it agrees to the printed precision, half a unit of the last digit.
Our own accounting stores 4 bytes for every number of the latents G_l (images, channels, height,
width), or of their channel means (equation 12).
"""

from decimal import Decimal
from itertools import product

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.runtime.names import known
from fedgrid.study.records import Study

FLOAT = 4  # bytes
BYTES = (4, 2, 1, 8)  # per number, for readings of the paper's figures
REPRODUCES = "reproduces"
FORWARD = "forward pass"  # the pass to which others are compared
MEGA = {"MB": 1e6, "MiB": 2**20}
UNITS = ("MB", "GFLOPs")  # of figures that have readings
OPERATIONS = {
    "MACs of a forward pass": 1,
    "multiplications and additions of a forward pass": 2,
    "MACs of a forward and a backward pass": 3,
    "multiplications and additions of a forward and a backward pass": 6,
}
COLUMNS = ["quantity", "images", "value", "unit", "published", "published_unit", "difference"]
COLUMNS += ["verdict", "formula", "readings", "model", "dataset", "scale"]


def draw(costs: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per quantity: the paper's figures with their readings, then our accounting.

    `costs` is the table of fedgrid.experiments.costs. The figures are in the study's
    published.resources; they are left out for another model or dataset. In a published row,
    `value` is that of the nearest reading, in the reading's unit.
    """
    model, dataset = costs["model"].iloc[0], costs["dataset"].iloc[0]
    published = study.get("published", {}).get("resources", {})
    same = (published.get("model"), published.get("dataset")) == (model, dataset)
    figures = published.get("figures", []) if same else []
    rows = [compare_figure(figure, figures, costs) for figure in figures]
    measured = costs[(costs["kind"] == "measured") & (costs["name"] == "seconds")]["layer"]
    rows += [*list_memory(costs), *list_operations(costs)]
    rows += [row for layer in measured for row in list_pass(layer, costs)]
    table = pd.DataFrame(rows, columns=COLUMNS).assign(model=model, dataset=dataset, scale=scale)
    table = table.astype({"images": "Int64", "readings": "Int64"})
    return table.round({"value": 4, "difference": 4})


def read_value(costs: pd.DataFrame, layer: str, name: str) -> float:
    (value,) = costs.loc[(costs["layer"] == layer) & (costs["name"] == name), "value"]
    return float(value)


def list_convolutions(costs: pd.DataFrame, side: bool) -> pd.DataFrame:
    """Return a row per convolution in forward order; `side` adds those of side paths."""
    chosen = costs[costs["kind"].isin(["main", "side"] if side else ["main"])]
    wide = chosen.pivot(index="layer", columns="name", values="value")
    wide = wide.reindex(chosen["layer"].unique()).astype(float)
    return wide.assign(area=wide["height"] * wide["width"])


def count_macs(costs: pd.DataFrame) -> float:
    return float(costs.loc[costs["name"] == "macs", "value"].sum())


# --- readings of the published figures -------------------------------------------------------


def count_stored(costs: pd.DataFrame) -> dict[str, float]:
    """Count how many numbers an encoder stores per image, by every reading of the paper."""
    main, both = list_convolutions(costs, side=False), list_convolutions(costs, side=True)
    image, classes = read_value(costs, "image", "elements"), read_value(costs, "image", "classes")
    counts = {
        "gradient at the input": image,
        "gradient at the input and class scores": image + classes,
        "first convolution's output": main["elements"].iloc[0],
        "channel mean of the first convolution's output": main["area"].iloc[0],
    }
    for where, layers in {"main path": main, "with side paths": both}.items():
        counts[f"inputs of all convolutions, {where}"] = layers["input_elements"].sum()
        counts[f"outputs of all convolutions, {where}"] = layers["elements"].sum()
        counts[f"channel means of all convolutions' outputs, {where}"] = layers["area"].sum()
    return counts


def list_readings(unit: str, costs: pd.DataFrame, images: int) -> list[tuple[str, float, str]]:
    """List what a figure in a unit can mean: in words, its value, and the value's unit."""
    if unit == "GFLOPs":
        each = count_macs(costs)
        return [(what, images * each * times / 1e9, unit) for what, times in OPERATIONS.items()]
    return [
        (f"{what}, {bytes_} bytes each", images * numbers * bytes_ / MEGA[mega], mega)
        for (what, numbers), bytes_, mega in product(count_stored(costs).items(), BYTES, MEGA)
    ]


def compare_figure(figure: dict, figures: list[dict], costs: pd.DataFrame) -> dict:
    """Compare a published figure, one of `figures`, with its readings; return its row.

    UsageError for a figure in a unit that has no readings.
    """
    unit = known("unit of a published figure", figure["unit"], UNITS)
    readings = list_readings(unit, costs, figure["images"])
    target = float(figure["value"])
    what, value, unit = min(readings, key=lambda reading: abs(reading[1] - target))
    verdict = REPRODUCES
    if not agrees_in_print(value, figure["value"]):
        multiple = find_multiple(figure, figures)
        verdict = f"no reading reproduces it{'; it is ' if multiple else ''}{multiple}"
    row = make_row(f"paper: {figure['quantity']}", figure["images"], value, unit, what)
    row |= {"published": target, "published_unit": figure["unit"], "difference": value - target}
    return row | {"readings": len(readings), "verdict": verdict}


def find_multiple(figure: dict, figures: list[dict]) -> str:
    """Name a figure for fewer images that, scaled to more images, gives this one; or return ""."""
    for other in figures:
        times = Decimal(figure["images"]) / Decimal(other["images"])
        scaled = times * Decimal(str(other["value"]))
        same_unit = other["unit"] == figure["unit"]
        if times > 1 and same_unit and agrees_in_print(scaled, figure["value"]):
            return f"{times:f} x the paper's {other['value']} {other['unit']}"
    return ""


def agrees_in_print(value: float | Decimal, printed: float | str) -> bool:
    """Whether `value` is within half a unit of the last digit of a printed number."""
    digit = Decimal(1).scaleb(int(Decimal(str(printed)).as_tuple().exponent))
    return abs(Decimal(str(value)) - Decimal(str(printed))) <= digit / 2


# --- our own accounting ----------------------------------------------------------------------


def list_sizes(costs: pd.DataFrame) -> list[int]:
    return [int(read_value(costs, which, "images")) for which in ("encoded", "training set")]


def list_memory(costs: pd.DataFrame) -> list[dict]:
    """Return rows of the latents' size before and after the channel mean, and their ratio."""
    main, both = list_convolutions(costs, side=False), list_convolutions(costs, side=True)
    parts = {"first layer": main[:1], "all layers, main path": main}
    parts |= {"all layers, with side paths": both}
    rows, formula = [], f"{FLOAT} bytes x images x sum of"
    for where, layers in parts.items():
        before, after = layers["elements"].sum(), layers["area"].sum()
        for images in list_sizes(costs):
            unit = FLOAT * images / MEGA["MB"]
            sizes = {"latents": (before, "C H W"), "channel means": (after, "H W")}
            for what, (numbers, shape) in sizes.items():
                about = f"{what}, {where}", images, unit * numbers, "MB", f"{formula} {shape}"
                rows.append(make_row(*about))
        ratio = f"latents / channel means, {where}"
        rows.append(make_row(ratio, None, before / after, "", "sum of C H W / sum of H W"))
    return rows


def list_operations(costs: pd.DataFrame) -> list[dict]:
    what, formula = "operations, forward pass", "images x MACs of convolutions and linear layers"
    each = count_macs(costs)
    return [make_row(what, 1, each / 1e6, "MMAC", formula)] + [
        make_row(what, images, images * each / 1e9, "GMAC", formula) for images in list_sizes(costs)
    ]


def list_pass(layer: str, costs: pd.DataFrame) -> list[dict]:
    """List the rows of one pass; its seconds for the training set are extrapolated."""
    images, train = list_sizes(costs)
    seconds, cpu, peak = (
        read_value(costs, layer, name) for name in ("seconds", "cpu_seconds", "peak_memory")
    )
    limit = "" if read_value(costs, "machine", "exact_peak") else "at least, "
    together = f"{limit}measured, {read_value(costs, 'encoded', 'chunk'):.0f} images at a time"
    rows = [
        make_row(f"time, {layer}", images, seconds, "s", "measured"),
        make_row(f"time, {layer}", train, seconds * train / images, "s", "extrapolated"),
        make_row(f"processor time, {layer}", images, cpu, "s", "measured"),
        make_row(f"peak memory, {layer}", images, peak / MEGA["MB"], "MB", together),
    ]
    if layer != FORWARD:
        ratio = seconds / read_value(costs, FORWARD, "seconds")
        rows.append(make_row(f"time / that of a {FORWARD}, {layer}", images, ratio, "", "measured"))
    return rows


def make_row(quantity: str, images: int | None, value: float, unit: str, formula: str) -> dict:
    return dict(quantity=quantity, images=images, value=value, unit=unit, formula=formula)


# --- for readers -----------------------------------------------------------------------------


def wide(table: pd.DataFrame) -> pd.DataFrame:
    shown = pd.DataFrame({
        "quantity": table["quantity"],
        "images": [f"{n:,.0f}" if n == n else "" for n in as_floats(table["images"])],
        "published": write_amounts(table["published"], table["published_unit"]),
        "ours": write_amounts(table["value"], table["unit"]),
        "formula": table["formula"], "verdict": table["verdict"].fillna(""),
    })  # fmt: skip
    return shown.set_index("quantity")


def write_amounts(values: pd.Series, units: pd.Series) -> list[str]:
    """Return values with their units; an empty text for a missing value."""
    pairs = zip(as_floats(values), units.fillna(""), strict=True)
    return [f"{value:.5g} {unit}".strip() if value == value else "" for value, unit in pairs]


def as_floats(values: pd.Series) -> list[float]:
    return values.astype("Float64").to_numpy(float, na_value=float("nan")).tolist()


def caption(table: pd.DataFrame) -> str:
    (images,) = table.loc[table["formula"] == "measured", "images"].unique()
    model, dataset, scale = (
        tables.join_values(table, name) for name in ("model", "dataset", "scale")
    )
    said = (
        f"What encoding saliency costs: memory of the latents at {FLOAT} bytes a number, "
        "operations, and measurements on "
        f"{images:,.0f} random images of the size of {dataset} with {model}; {scale} scale."
    )
    if figures := int(table["published"].notna().sum()):
        reproduced = (table["verdict"] == REPRODUCES).sum()
        said += f" One of up to {table['readings'].max():g} readings gives {reproduced} of the "
        said += f"paper's {figures} figures."
    return said
