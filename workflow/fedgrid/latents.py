"""Encode every client's images with conventional encoders: the weights R_k of FedSL.

    python -m fedgrid.latents fedsls-quick/digits/dir0.1/fedsl-f2/seed0

Writes --out.npz with `norms`, (encoders, factors, N): the sum over a client's images of the norm of
the channel-averaged latent, for an autoencoder of its own, one of all data, and plain averaging
(`autoencoder.py`), at f = 2, 4 and 8.
"""

import logging
from pathlib import Path

from fedgrid import cli, spec, stage

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    asked = stage.machine(stage.parser(__doc__, "data", "partition")).parse_args(arguments)
    run = stage.resolve(asked, "latents")
    out = asked.out or asked.results / spec.inputs(run)["latents"]
    paths = stage.inputs(asked, run, "data", "partition")
    encode(run, paths, out, asked.device, asked.threads)


def encode(run: dict, paths: dict[str, Path], out: Path, device: str, threads: int) -> None:
    """Encode all clients with every encoder and factor."""
    import numpy as np
    import torch

    from fedgrid import autoencoder, federation, files

    data = federation.load(run, paths, federation.prepare(device, threads, "fp32"))
    norms = torch.stack([
        torch.stack([torch.stack(encoder(run, data, f)) for f in autoencoder.FACTORS])
        for encoder in (by_client, pooled, by_area)
    ])  # fmt: skip
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, norms=norms.cpu().numpy(), factors=autoencoder.FACTORS)
    log.info("%s: %d clients", out, norms.shape[-1])


def by_client(run: dict, data, f: int) -> list:
    """An autoencoder per client, all from the same initial weights."""
    return [encoded(trained(run, data, f, ids, k), data, ids) for k, ids in enumerate(data.members)]


def pooled(run: dict, data, f: int) -> list:
    """One autoencoder, trained on everybody's images."""
    import numpy as np

    model = trained(run, data, f, np.concatenate(data.members), "pooled")
    return [encoded(model, data, ids) for ids in data.members]


def by_area(run: dict, data, f: int) -> list:
    """No encoder: grey images, averaged down."""
    from fedgrid import autoencoder

    return [
        summed(ids, lambda index: autoencoder.norms(autoencoder.area(data.images[index] / 255, f)))
        for ids in data.members
    ]


def trained(run: dict, data, f: int, ids, who):
    """An autoencoder after the protocol's pretraining epochs on the images `ids`."""
    import torch

    from fedgrid import autoencoder, schedule, seeds

    protocol = run["protocol"]
    rng = seeds.generator("latents", *data.names, f, who)
    torch.manual_seed(seeds.seed("latents", *data.names, f))
    model = autoencoder.autoencoder(data.images.shape[1], f).to(data.images.device)
    epochs = {"local": protocol["pretrain_epochs"], "local_unit": "epochs"}
    positions = schedule.batches(len(ids), protocol | epochs, rng)
    batches = (normalised(data, ids[chosen]) for chosen in positions)
    autoencoder.train(model, batches, protocol["lr"], protocol["momentum"])
    return model[0]


def encoded(encoder, data, ids):
    """The sum of norms of a client's latents."""
    from fedgrid import autoencoder

    return summed(ids, lambda index: autoencoder.norms(encoder(normalised(data, index))))


def normalised(data, ids):
    """The images `ids` as the model sees them, without augmentation."""
    from fedgrid import augment

    return augment.normalise(data.images[ids], data.mean, data.std)


def summed(ids, function, chunk: int = 256):
    """The sum of function(ids) over chunks of ids; 0 for no ids."""
    import torch

    with torch.no_grad():
        parts = [function(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
    return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)


if __name__ == "__main__":
    cli.run(main)
