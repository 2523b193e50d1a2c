"""Encode how salient every client's images are to its pretrained model: FedSLS's weights R_k.

    python -m fedgrid.saliency fedsls-quick/digits/dir0.1/fedsls/seed0

Writes --out.npz with the contribution of every layer, client and reading of the paper's equations,
so that a method can choose its reading and tau without encoding again; and beside it a .csv for
people, with the default reading: R_k, R_k / n_k, the weight R_k / sum R, the effective number of
clients 1 / sum_k a_k^2 over the population, and what each layer adds to R_k; and a .json with what
encoding took, for all readings and targets, and pretraining before it.
"""

import json
import logging
import time
from pathlib import Path

from fedgrid import cli, files, spec, stage

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
    table = pd.DataFrame({"client": range(len(sizes)), "size": sizes.cpu(), "R": weights})
    table["R_per_sample"] = table["R"] / table["size"]
    table["weight"], table["effective_clients"] = share, float(1 / share.square().sum())
    names = [name for name, counts in zip(layers, main, strict=True) if counts]
    return table.join(pd.DataFrame(layered.numpy(), columns=names))


if __name__ == "__main__":
    cli.run(main)
