"""The products of every study, drawn from made-up runs of its quick grids."""

import copy
from collections.abc import Callable
from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.report import _product
from fedgrid.study.products import product_module

ROUNDS = [0, 2, 6, 8, 10]
CLASSES = range(10)
# Products that are drawn from hundreds of runs, and those that need several seeds of them.
MANY_RUNS = ("ranks", "significance", "ways", "omissions")
SEVERAL_SEEDS = ("omissions",)
SCORE = {"metric": "best", "tail": 7}  # of all runs; they have validation data
# The studies, with the first claims alone: to judge all of them takes its time.
SLOW = pytest.mark.slow
STUDIES = {
    name: about | {"claims": about.get("claims", [])[:3]} for name, about in made.STUDIES.items()
}


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
def make_source(study: str, text: str, several: bool = False) -> pd.DataFrame:
    """A source of products, such as `runs/table1`, as it is read again."""
    kind, _, grid = text.partition("/")
    if kind not in KINDS:
        return made.read(made.EXPERIMENTS[text]())
    return made.read(made.collected(kind, list_runs(study, grid, several), KINDS))


def list_runs(study: str, grid: str, several: bool = False) -> list[dict]:
    """The runs of a quick grid, of two seeds; of one if they are many, and not `several`."""
    runs = [run | {"seed": 0} for run in made.GRID.runs(study, "quick", grid)]
    once = {repr(run): run for run in runs}.values()
    return [
        run | {"seed": seed}
        for run in once
        for seed in range(2 if several or len(once) < 99 else 1)
    ]


def lose_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Let every seventh run of a table diverge before its last evaluation."""
    if not {"diverged", "round"} <= {*table}:
        return table
    run = table.groupby([*made.NAMES, "method", "seed"], sort=False)["round"]
    gone = run.ngroup() % 7 == 3
    last = table["round"] == run.transform("max")
    return table.assign(diverged=table["diverged"] | gone)[~(gone & last)]


def list_products(wanted: Callable[[dict], bool] = bool) -> list:
    """Parameters: every product that is drawn at the quick scale, as its study and its name.

    One product of each file stands for all of them; the tests of the others are slow, and those of
    hundreds of runs.
    """
    fast = {
        product_module(study, name, made.STUDIES[study]["products"][name]): (study, name)
        for study in (*made.STUDIES, "fedsls")
        for name in made.GRID.products(study, "quick")
    }
    return [
        pytest.param(
            study, name, marks=() if one in fast.values() and name not in MANY_RUNS else SLOW
        )
        for study in made.STUDIES
        for name in made.GRID.products(study, "quick")
        for one in [(study, name)]
        if wanted(made.STUDIES[study]["products"][name])
    ]


@cache
def draw_product(study: str, name: str, score: bool = True, lost: bool = False) -> SimpleNamespace:
    """A product with its table, also as it is read again; it changes neither runs nor study.

    Runs are scored as in SCORE, or for figures as they are made, so that no two points are equal.
    With `lost`, some of them diverged.
    """
    about, before = STUDIES[study], copy.deepcopy(STUDIES[study])
    entry = about["products"][name]
    several = name in SEVERAL_SEEDS
    found = {key: make_source(study, text, several) for key, text in entry["from"].items()}
    if score:
        found = {key: of.assign(**SCORE) if "tail" in of else of for key, of in found.items()}
    if lost:
        found = {key: lose_runs(of) for key, of in found.items()}
    copies = {key: of.copy() for key, of in found.items()}
    product = _product.load_product(study, name, entry)
    product.table = _product.draw_table(product, found, about, "quick")
    product.read = made.read(product.table)
    for key, of in found.items():
        pd.testing.assert_frame_equal(of, copies[key])
    assert about == before
    return product
