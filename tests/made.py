"""Sources of products that are made up, small, and without chance: what `fedgrid collect` writes.

A run counts with the mean of its evaluations in rounds 8 and 10: the last 4 of 10 rounds.
"""

import json
from io import StringIO

import numpy as np
import pandas as pd

from fedgrid.experiments import costs
from fedgrid.experiments.fidelity import scores
from fedgrid.experiments.fidelity.setting import MAPS
from fedgrid.runtime.places import PACKAGE
from fedgrid.store import tables
from fedgrid.study.grid import Grid
from fedgrid.study.paths import collected_path
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.reading import read_studies

STUDIES = read_studies(PACKAGE.parent / "studies")
STUDY = STUDIES["fedsls"]
SUMMED = {
    "rounds": 10,
    "metric": "tail",
    "tail": 4,
    "local": 2,
    "participation": 0.5,
    "sampler": "seeded",
    "recipe": "classwise",
    "clients": 4,
}
GRID = Grid(STUDIES)
NAMES = {"protocol": "p", "dataset": "cifar10", "partition": "dir0.1", "method": "fedavg"}
NAMES |= {"seed": 0}


# -- runs ---------------------------------------------------------------------------------------


def evaluations(accuracies: dict[int, float], diverged: bool = False, **names) -> pd.DataFrame:
    """A run as it is collected: its evaluations in 0..1 by round, and its names."""
    about = NAMES | SUMMED | {"effective_clients": 2.0, "diverged": diverged} | names
    return pd.DataFrame([{"round": r, "accuracy": a} | about for r, a in accuracies.items()])


def measured(
    by_round: dict[str, dict[int, float]], diverged: bool = False, **names
) -> pd.DataFrame:
    """A run as it is collected: columns of metrics, each with values by round, or empty."""
    rounds = sorted({r for values in by_round.values() for r in values})
    rows = {name: [values.get(r, np.nan) for r in rounds] for name, values in by_round.items()}
    about = NAMES | SUMMED | {"effective_clients": 2.0, "diverged": diverged} | names
    return pd.DataFrame({"round": rounds} | rows).assign(**about)


def run(percent: float, method: str = "fedavg", seed: int = 0, **names) -> pd.DataFrame:
    """A run that counts with `percent`; its best evaluation, of round 6, is not in its tail."""
    last = {8: percent / 100 - 0.01, 10: percent / 100 + 0.01}
    return evaluations({0: 0.1, 2: 0.2, 6: 0.99} | last, method=method, seed=seed, **names)


def lost(method: str = "fedavg", seed: int = 0, **names) -> pd.DataFrame:
    """A run that diverged before its tail."""
    early = {0: 0.1, 2: 0.2, 4: 0.1}
    return evaluations(early, diverged=True, method=method, seed=seed, **names)


def runs(percents: dict[str, list[float | None]], **names) -> pd.DataFrame:
    """Runs by method, a percentage per seed; None is one that diverged."""
    return pd.concat(
        lost(method, seed, **names) if percent is None else run(percent, method, seed, **names)
        for method, values in percents.items()
        for seed, percent in enumerate(values)
    )


# -- what the runs of a whole grid leave --------------------------------------------------------


def some(names: dict) -> np.random.Generator:
    """Numbers that depend on the names alone."""
    return np.random.default_rng(list(repr(sorted(names.items())).encode()))


def metrics(names: dict) -> pd.DataFrame:
    return run(some(names).uniform(40, 60), effective_clients=some(names).uniform(2, 4), **names)


def seconds(names: dict) -> pd.DataFrame:
    """What a run took, and what its summary counts."""
    took = {"seconds": some(names).uniform(5, 9), "rounds_done": SUMMED["rounds"], "resumed_at": 0}
    took |= {"bytes_down": 4000, "bytes_up": 4000, "samples_per_round": 50}
    took |= {"peak_memory_mb": 400.0, "peak_gpu_memory_mb": 0.0, "device": "cpu", "threads": 1}
    took |= {"parameters": 1000, "flops_per_sample": 9e6, "flops_around": 5e6, "flops_before": 7e8}
    return pd.DataFrame([took | names | SUMMED])


def settings(names: dict) -> pd.DataFrame:
    run = GRID.resolve(names)
    parts = {"": run["protocol"]} | run["method"]
    return recorded(parts, **names)


def recorded(parts: dict[str, dict], **names) -> pd.DataFrame:
    """The settings that a run recorded: `parts` has the fields by file, of the protocol as ``."""
    rows = [(of, name, json.dumps(v)) for of, every in parts.items() for name, v in every.items()]
    rows += [(of, "", "") for of, every in parts.items() if not every]
    table = pd.DataFrame(rows, columns=["of", "field", "value"])
    return table.assign(**(NAMES | SUMMED | names))


def counts(names: dict) -> pd.DataFrame:
    held = some(names).integers(0, 50, (SUMMED["clients"], 10))
    client, label = np.nonzero(held)
    table = pd.DataFrame({"client": client, "class": label, "samples": held[client, label]})
    return table.assign(**names, **SUMMED)


def saliency(names: dict) -> pd.DataFrame:
    sizes, per_sample = some(names).integers(10, 99, 4), some(names).uniform(0.1, 9, 4)
    return clients(sizes, sizes * per_sample, **names)


def clients(sizes, found, **names) -> pd.DataFrame:
    """Clients with these numbers of samples and R_k."""
    table = pd.DataFrame({"client": range(len(sizes)), "size": sizes, "R": found})
    table = table.assign(R_per_sample=table["R"] / table["size"], weight=table.R / table.R.sum())
    effective = 1 / (table["weight"] ** 2).sum()
    return table.assign(effective_clients=effective, **(NAMES | SUMMED | names))


def client_rows(own: list[float], server: list[float | None], round: int = 10, **names):
    """A run's clients as they are collected: accuracies in 0..1, 10 test samples each."""
    table = pd.DataFrame({"client": range(len(own)), "samples": 10, "own_accuracy": own})
    table = table.assign(server_accuracy=pd.Series(server, dtype=float), round=round)
    return table.assign(**(NAMES | SUMMED | names))


def encoding(names: dict) -> pd.DataFrame:
    took = {"seconds": some(names).uniform(1, 2), "pretrain_seconds": some(names).uniform(3, 4)}
    return pd.DataFrame([took | names | SUMMED])


KINDS = {
    "runs": metrics,
    "seconds": seconds,
    "settings": settings,
    "partition": counts,
    "saliency": saliency,
    "encoding": encoding,
}


def collected(kind: str, wanted: list[dict], kinds: dict = KINDS) -> pd.DataFrame:
    """What the runs of a grid left of one kind; what they share is there once."""
    shared = {collected_path(kind, names, PROTOCOL | SUMMED): names for names in reversed(wanted)}
    return pd.concat([kinds[kind](names) for names in reversed(shared.values())], ignore_index=True)


# -- experiments --------------------------------------------------------------------------------

DATASETS = ("digits", "photographs")
IMAGES = 12  # of each dataset


def fidelity_scores(seeds: int = 3, images: int = IMAGES) -> pd.DataFrame:
    """Scores of every map; maps of `area` depend on no seed."""
    rows = [
        {"dataset": dataset, "image": image, "encoder": encoder, "layer": layer, "seed": seed}
        for encoder, layers in MAPS.items()
        for layer in layers
        for seed in range(1 if encoder == "area" else seeds)
        for dataset in DATASETS
        for image in range(images)
    ]
    return pd.DataFrame([row | scored(row) for row in rows])


def scored(names: dict) -> dict:
    low, high, far = some(names).uniform((0.1, 0.5, 3), (0.9, 1, 9))
    explained = 0.25 if names["encoder"] == "autoencoder" else np.nan
    numbers = {"ssim": round(low, 6), "cosine": round(high, 6), "euclidean": round(far, 6)}
    return numbers | {"explained": explained}


def examples(images: int = 1) -> pd.DataFrame:
    """The first images of every dataset: the original, then every map, each with its picture."""
    maps = {"original": ("grey",)} | MAPS
    rows = [
        {"dataset": dataset, "image": image, "encoder": encoder, "layer": layer, "seed": 0}
        for dataset in DATASETS
        for image in range(images)
        for encoder, layers in maps.items()
        for layer in layers
    ]
    return pd.DataFrame([row | pictured(row) for row in rows])


def pictured(names: dict) -> dict:
    grey = some(names).integers(0, 256, (4, 4), dtype=np.uint8)
    same = names["encoder"] == "original"
    return (scores.SAME | {"explained": np.nan} if same else scored(names)) | {
        "png": scores.png(grey)
    }


def measured_costs() -> pd.DataFrame:
    """Three convolutions, one of them beside the main path, and what two passes took."""
    setting = {"model": "resnet18", "dataset": "cifar10", "images": 1000, "chunk": 64}
    rows = costs.described(setting, (3, 32, 32), 10, 50_000)
    for kind, layer, (channels, side) in (
        *(("main", "conv1#0", (64, 16)), ("side", "down#1", (32, 8))),
        ("main", "conv2#2", (32, 8)),
    ):
        sizes = {"channels": channels, "height": side, "width": side, "macs": 1_000_000}
        sizes |= {"elements": channels * side * side, "input_elements": 3072}
        rows += [(kind, layer, name, value, "") for name, value in sizes.items()]
    rows += [("linear", "head", "elements", 10, ""), ("linear", "head", "macs", 320, "")]
    for layer, took in (("forward pass", 2), ("encoder, one target", 5)):
        rows.append(("measured", layer, "seconds", took, "s"))
        rows.append(("measured", layer, "cpu_seconds", took, "s"))
        rows.append(("measured", layer, "peak_memory", took * 1e6, "bytes"))
    rows.append(("measured", "machine", "exact_peak", 1, ""))
    return pd.DataFrame([("resnet18", "cifar10", *row) for row in rows], columns=costs.COLUMNS)


EXPERIMENTS = {
    "fidelity/scores": fidelity_scores,
    "fidelity/examples": examples,
    "costs": measured_costs,
}


def sources(product: str, scale: str = "quick", **config) -> dict[str, pd.DataFrame]:
    """All that a product of FedSLS is drawn from, by the names that its file has for it.

    As it is read from the files of these sources.
    """
    made = Grid(STUDIES, config)
    found = {}
    for name, text in STUDY["products"][product]["from"].items():
        kind, _, of = text.partition("/")
        if kind in tables.READERS:
            found[name] = read(collected(kind, made.runs("fedsls", scale, of)))
        else:
            found[name] = read(EXPERIMENTS[text]())
    return found


def read(table: pd.DataFrame) -> pd.DataFrame:
    """A table after it was written and read."""
    return pd.read_csv(StringIO(table.to_csv(index=False)))
