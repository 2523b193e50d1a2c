"""How salient each client's images are to its pretrained model: FedSLS's weights R_k.

The contribution of every layer, client and reading of the paper's equations (`encoders/guided.py`),
so that a method can choose its reading and tau without encoding again. A warning names clients that
hold most of the weight if they are few, and clients whose R_k is not finite.
"""

import json
import logging
import time
from pathlib import Path

from fedgrid.federation.protocols import changed_protocol
from fedgrid.runtime import cli, files
from fedgrid.runtime.names import in_words
from fedgrid.runtime.resolved import Run
from fedgrid.study.command import (
    Machine,
    require_file,
)

MOST, FEW = 0.5, 0.05  # warn if this share of the weight is with this share of clients, or fewer

log = logging.getLogger(__name__)


def encode(run: Run, paths: dict[str, Path], out: Path, machine: Machine) -> None:
    """Encode all clients, and write contributions, table, and costs."""
    import numpy as np

    from fedgrid.encoders import guided
    from fedgrid.training import results
    from fedgrid.training.build import build_engine

    engine, _ = build_engine(run | {"method": {}}, paths, machine)
    began = time.monotonic()
    contributions, layers = encoded(engine, paths["pretrain"])
    costs = results.machine_facts(engine, time.monotonic() - began, machine.threads)
    with files.whole(str(timed := paths["pretrain"] / "seconds.txt")):
        costs["pretrain_seconds"] = float(timed.read_text())
    main = guided.main_path(engine.architecture.empty, layers)
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        arrays = {"contributions": contributions.cpu().numpy(), "main": main.numpy()}
        np.savez(file, **arrays, layers=layers, flops=count_operations(engine))
    table = describe(contributions, main, layers, engine.federation.counts.sum(1))
    with files.replacing(out.with_suffix(".csv")) as temporary:
        table.to_csv(temporary, index=False)
    with files.replacing(out.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(costs, indent=1) + "\n")
    log.info("%s: %.1f effective clients of %d", out, table.effective_clients[0], len(table))
    warn_of_doubts(out, table)


def encoded(engine, folder: Path):
    """Encode one client after the other, each in chunks of images.

    Return contributions (targets, readings, roots, N, L) by the models in `folder`, and the names
    of the layers.
    """
    import torch

    from fedgrid.encoders import guided

    found, network = [], engine.architecture.empty
    for client in range(len(engine.federation.members)):
        path = require_file(folder / f"client{client}.safetensors", "python -m fedgrid pretrain")
        model = client_model(engine, path)
        sums = engine.samples.total(
            client, lambda x, y, model=model: guided.contributions(network, model, x, y)
        )
        found.append(guided.stack(sums))
    return torch.stack(found, dim=-2), [name.partition("#")[0] for name in sums]


def count_operations(engine) -> float:
    """Return a client's operations, on average: of its pretraining, and of encoding one target."""
    from fedgrid.encoders import guided
    from fedgrid.engine import operations
    from fedgrid.federation import schedule

    data, network = engine.federation, engine.architecture.empty
    sizes = [*map(len, data.members)]
    some = data.members[sizes.index(max(sizes))][:2]
    x, y = engine.samples.normalise(data.images[some]), data.labels[some]
    model = engine.architecture.live.state_dict()
    epochs = schedule.epochs(engine.protocol["pretrain_epochs"])
    seen = schedule.mean_samples(sizes, changed_protocol(engine.protocol, epochs))
    training = seen * operations.count_plain_step(network, model, x, y)
    given = guided.contributions, network, model, x, y, ("label",)
    encoding = sum(sizes) / len(sizes) * operations.counted(*given)[1]
    return (training + encoding) / len(some)


def client_model(engine, path: Path) -> dict:
    """Load a client's model to the device; UsageError for a damaged file or another model."""
    from safetensors.torch import load_file

    with files.whole(str(path)):
        state, wanted = load_file(path, str(engine.device)), engine.architecture.empty.state_dict()
        if {n: w.shape for n, w in state.items()} != {n: w.shape for n, w in wanted.items()}:
            raise ValueError("it is not of this model")
    return state


def describe(contributions, main, layers: list[str], sizes):
    """Return a row per client: R_k by the default reading, and the layers' parts of it."""
    import pandas as pd

    from fedgrid.encoders import guided

    layered = guided.Choice().layered(contributions, main).cpu()
    weights = layered.sum(1)
    share = weights / weights.sum()
    rows = {"client": range(len(sizes)), "size": sizes.cpu().numpy(), "R": weights.numpy()}
    table = pd.DataFrame(rows)
    table["R_per_sample"] = table["R"] / table["size"]
    table["weight"], table["effective_clients"] = share.numpy(), float(1 / share.square().sum())
    names = [name for name, counts in zip(layers, main, strict=True) if counts]
    return table.join(pd.DataFrame(layered.numpy(), columns=names))


def warn_of_doubts(out: Path, table) -> None:
    """Warn of weights that are unreliable, with the names of clients."""
    lost = table[~table["R"].abs().lt(float("inf"))]  # infinite or NaN
    if len(lost):
        cli.warn(
            f"{out}: R_k is not finite for {clients(lost)}: their pretraining diverged, and a run "
            "with these weights will fail; lower the protocol's lr or raise its smallest_batch"
        )
    elif not table["R"].sum():
        cli.warn(f"{out}: R_k is 0 for every client: a run with these weights will fail")
    elif not (heavy := heaviest(table)).empty:
        each, share = "R_per_sample", heavy["weight"].sum()
        there = in_words(f"{one:.3g}" for one in heavy[each])
        cli.warn(
            f"{out}: {share:.1%} of all weight is with {clients(heavy)} of {len(table)}: R_k / n_k "
            f"is {there} there, and the median is {table[each].median():.3g}; check these clients' "
            "images and the protocol's smallest_batch and lr before you use these weights"
        )


def heaviest(table):
    """Return the rows of the clients that hold most of the weight; none unless they are few."""
    ordered = table.sort_values("weight", ascending=False, kind="stable")
    count = int((ordered["weight"].cumsum() < MOST).sum()) + 1
    return ordered.head(count if count <= max(1, FEW * len(table)) else 0)


def clients(table) -> str:
    """Return the clients of these rows, in words."""
    return f"client{'s' * (len(table) > 1)} {in_words(map(str, table['client']))}"
