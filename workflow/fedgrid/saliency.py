"""Encode how salient every client's images are to its pretrained model: FedSLS's weights R_k.

    python -m fedgrid.saliency fedsls-quick/digits/dir0.1/fedsls/seed0

Writes --out.npz with the contribution of every layer, client and reading of the paper's equations,
so that a method can choose its reading and tau without encoding again; and beside it a .csv for
people, with the default reading: R_k, R_k / n_k, the weight R_k / sum R, the effective number of
clients 1 / sum_k a_k^2 over the population, and what each layer adds to R_k; and a .json with what
encoding took, for all readings and targets, and pretraining before it.

A warning names the clients that hold most of the weight where these are few, and clients whose R_k
is not finite.
"""

import json
import logging
import time
from pathlib import Path

from fedgrid import cli, files, spec, stage

MOST, FEW = 0.5, 0.05  # of the weight, of the clients: so many must not hold so much

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = stage.machine(stage.parser(__doc__, "data", "partition", "pretrain"))
    asked = parser.parse_args(arguments)
    run = stage.resolve(asked, "saliency")
    out = asked.out or asked.results / spec.inputs(run)["saliency"]
    paths = stage.inputs(asked, run, "data", "partition", "pretrain")
    encode(run, paths, out, asked.device, asked.threads)


def encode(run: dict, paths: dict[str, Path], out: Path, device: str, threads: int) -> None:
    """Encode all clients and write what was found, with what it cost."""
    import numpy as np

    from fedgrid import encoder, runs

    engine, _ = runs.engine(run | {"method": {}}, paths, device, "loop", threads)
    began = time.monotonic()
    contributions, layers = encoded(engine, paths["pretrain"])
    costs = runs.machine(engine, time.monotonic() - began, threads)
    with files.whole(str(timed := paths["pretrain"] / "seconds.txt")):
        costs["pretrain_seconds"] = float(timed.read_text())
    main = encoder.main_path(engine.empty, layers)
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, contributions=contributions.cpu().numpy(), main=main.numpy(), layers=layers)
    table = describe(contributions, main, layers, engine.federation.counts.sum(1))
    with files.replacing(out.with_suffix(".csv")) as temporary:
        table.to_csv(temporary, index=False)
    with files.replacing(out.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(costs, indent=1) + "\n")
    log.info("%s: %.1f effective clients of %d", out, table.effective_clients[0], len(table))
    if sentence := doubts(table):
        cli.warn(f"{out}: {sentence}")


def encoded(engine, folder: Path):
    """(targets, readings, roots, N, L) by the clients' models in `folder`, and the layers' names.

    One client after the other, each in chunks of images.
    """
    import torch

    from fedgrid import encoder

    found = []
    for client in range(len(engine.federation.members)):
        path = stage.need(folder / f"client{client}.safetensors", "python -m fedgrid.pretrain")
        state = client_model(engine, path)
        sums = engine.total(
            client, lambda x, y, state=state: encoder.contributions(engine.empty, state, x, y)
        )
        found.append(encoder.stack(sums))
    return torch.stack(found, dim=-2), [name.partition("#")[0] for name in sums]


def client_model(engine, path: Path) -> dict:
    """A client's model, on the device; UsageError if the file is damaged or another model's."""
    from safetensors.torch import load_file

    with files.whole(str(path)):
        state, wanted = load_file(path, str(engine.device)), engine.empty.state_dict()
        if {n: w.shape for n, w in state.items()} != {n: w.shape for n, w in wanted.items()}:
            raise ValueError("it is not of this model")
    return state


def describe(contributions, main, layers: list[str], sizes):
    """A row per client: R_k by the default reading, and where it comes from."""
    import pandas as pd

    from fedgrid import encoder

    layered = encoder.Choice().layered(contributions, main).cpu()
    weights = layered.sum(1)
    share = weights / weights.sum()
    rows = {"client": range(len(sizes)), "size": sizes.cpu().numpy(), "R": weights.numpy()}
    table = pd.DataFrame(rows)
    table["R_per_sample"] = table["R"] / table["size"]
    table["weight"], table["effective_clients"] = share.numpy(), float(1 / share.square().sum())
    names = [name for name, counts in zip(layers, main, strict=True) if counts]
    return table.join(pd.DataFrame(layered.numpy(), columns=names))


def doubts(table) -> str:
    """Why the weights cannot be relied on, with the names of clients; nothing if they can."""
    lost = table[~table["R"].abs().lt(float("inf"))]  # infinite, or no number
    if len(lost):
        return (
            f"R_k is not finite for {clients(lost)}: their pretraining diverged, and a run that "
            "weighs by it is lost; lower the protocol's lr or raise its smallest_batch"
        )
    if not table["R"].sum():
        return "R_k is 0 for every client: a run that weighs by it is lost"
    if (heavy := heaviest(table)).empty:
        return ""
    each, share = "R_per_sample", heavy["weight"].sum()
    there = in_words(f"{one:.3g}" for one in heavy[each])
    return (
        f"{share:.1%} of all weight is with {clients(heavy)} of {len(table)}: R_k / n_k is {there} "
        f"there, and the median is {table[each].median():.3g}; check these clients' images and the "
        "protocol's smallest_batch and lr before you rely on it"
    )


def heaviest(table):
    """The rows of the clients that hold most of the weight together; none unless they are few."""
    ordered = table.sort_values("weight", ascending=False, kind="stable")
    count = int((ordered["weight"].cumsum() < MOST).sum()) + 1
    return ordered.head(count if count <= max(1, FEW * len(table)) else 0)


def clients(table) -> str:
    """The clients of these rows, in words."""
    return f"client{'s' * (len(table) > 1)} {in_words(map(str, table['client']))}"


def in_words(words) -> str:
    """Words as a sentence lists them: a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


if __name__ == "__main__":
    cli.run(main)
