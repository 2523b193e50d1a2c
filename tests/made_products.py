"""Tables of the products of every study, drawn from made-up runs of its quick grids."""

from functools import cache
from itertools import product

import numpy as np
import pandas as pd

import made
from fedgrid.report import _product

ROUNDS = [0, 2, 6, 8, 10]
CLASSES = range(10)
MANY_RUNS = ("ranks", "significance", "ways")  # products that are drawn from hundreds of runs


def make_runs(names: dict) -> pd.DataFrame:
    """A run with all columns that some figure shows."""
    rng, many = made.some(names), len(ROUNDS)
    columns = ["accuracy", "own_mean", "validation_accuracy", "validation_own_mean"]
    columns += ["weight_distance", "distance_bound", *(f"similarity{k}" for k in range(3))]
    columns += ["alpha_0", "alpha_1", "beta_0", "beta_1"]
    values = {name: rng.uniform(0.3, 0.9, many) for name in columns}
    about = made.SUMMED | {"effective_clients": rng.uniform(2, 4), "diverged": False} | names
    return pd.DataFrame({"round": ROUNDS} | values).assign(**about)


def make_predictions(names: dict) -> pd.DataFrame:
    rows = [{"round": r, "class": c, "predicted": r + c} for r in ROUNDS for c in CLASSES]
    kinds = ("of_class_", "own_of_class_")
    counted = {f"{kind}{c}": made.some(names).integers(1, 9) for kind in kinds for c in CLASSES}
    return pd.DataFrame(rows).assign(**counted, **made.SUMMED | names)


def make_clients(names: dict) -> pd.DataFrame:
    own, server = made.some(names).uniform(0.2, 0.9, (2, 6))
    return made.client_rows([*own], [*server], **names)


def make_sizes(names: dict) -> pd.DataFrame:
    training, test = made.some(names).integers(5, 90, (2, made.SUMMED["clients"]))
    table = pd.DataFrame({"client": range(len(test)), "training": training, "test": test})
    return table.assign(**made.SUMMED | names)


def make_interpolation(names: dict) -> pd.DataFrame:
    points = product(("cohort", "all"), (0, 0.01, 0.5, 1, np.nan), (0, 0.5, 1))
    table = pd.DataFrame(points, columns=["evaluate_clients", "alpha", "beta"])
    found = made.some(names).uniform(0.2, 0.9, (3, len(table)))
    table = table.assign(**dict(zip(("mean", "loss", "divergence"), found, strict=True)))
    return table.assign(**made.SUMMED | names)


KINDS = made.KINDS | {"runs": make_runs, "predictions": make_predictions}
KINDS |= {"clients": make_clients, "interpolation": make_interpolation}
KINDS |= {"sizes": make_sizes}


@cache
def make_source(study: str, text: str) -> pd.DataFrame:
    """A source of products, such as `runs/table1`, as it is read again."""
    kind, _, grid = text.partition("/")
    if kind not in KINDS:
        return made.read(made.EXPERIMENTS[text]())
    return made.read(made.collected(kind, list_runs(study, grid), KINDS))


def list_runs(study: str, grid: str) -> list[dict]:
    """The runs of a quick grid; of two seeds, or of one if they are many."""
    runs = [run | {"seed": 0} for run in made.GRID.runs(study, "quick", grid)]
    once = {repr(run): run for run in runs}.values()
    return [run | {"seed": seed} for run in once for seed in range(2 if len(once) < 99 else 1)]


@cache
def make_table(study: str, name: str) -> pd.DataFrame:
    """The table of a product, as it is read again."""
    about = made.STUDIES[study]
    entry = about["products"][name]
    found = {key: make_source(study, text) for key, text in entry["from"].items()}
    product = _product.load_product(study, name, entry)
    return made.read(_product.draw_table(product, found, about, "quick"))
