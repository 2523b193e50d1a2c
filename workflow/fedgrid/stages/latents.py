"""Each client's images by conventional encoders: the weights R_k of FedSL.

The sum over a client's images of the norm of the channel-averaged latent, for an autoencoder of its
own, one of all data, and plain averaging (`encoders/autoencoder.py`), at f = 2, 4 and 8. With
`autoencoder_fit`, an autoencoder is trained until it explains this share of its images' variance.
"""

import logging
from pathlib import Path

from fedgrid.federation.protocols import changed_protocol
from fedgrid.runtime import cli
from fedgrid.runtime.resolved import Run
from fedgrid.study.command import Machine

NOT_KNOWN = float("nan")  # explained variance if it was not measured or there is no decoder

log = logging.getLogger(__name__)


def encode(run: Run, paths: dict[str, Path], out: Path, machine: Machine) -> None:
    """Encode all clients with every encoder and factor, and write the arrays."""
    import numpy as np

    from fedgrid.encoders import autoencoder
    from fedgrid.engine.device import prepare
    from fedgrid.federation.federation import load_federation
    from fedgrid.runtime import files

    data = load_federation(run, paths, prepare(machine.device, machine.threads, "fp32"))
    encoders = (by_client, pooled, by_area)
    found = [[encoder(run, data, f) for f in autoencoder.FACTORS] for encoder in encoders]
    norms, explained = np.moveaxis(np.array(found), -1, 0)
    arrays = {"norms": norms, "factors": autoencoder.FACTORS}
    arrays |= {
        f"flops/encoder=client/f={f}": count_operations(run, data, f) for f in arrays["factors"]
    }
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays | ({"explained": explained} if wanted(run) else {}))
    log.info("%s: %d clients", out, norms.shape[-1])
    if wanted(run):
        judge(run, explained, out)


def count_operations(run: Run, data, f: int) -> float:
    """Return a client's operations, on average, with an autoencoder of its own: all its steps.

    How many steps an autoencoder takes until it explains enough is not known: NaN.
    """
    from fedgrid.encoders import autoencoder
    from fedgrid.engine.operations import counted
    from fedgrid.federation import schedule

    if wanted(run):
        return NOT_KNOWN
    sizes = [*map(len, data.members)]
    x = normalised(data, data.members[sizes.index(max(sizes))][:2])
    model = autoencoder.autoencoder(x.shape[1], f).to(x.device)
    step = counted(autoencoder.train, model, [x], 0.0, 0.0)[1]
    seen = schedule.mean_samples(sizes, changed_protocol(run["protocol"], work(run)))
    return (seen * step + sum(sizes) / len(sizes) * counted(model[0], x)[1]) / len(x)


def wanted(run: Run) -> float:
    """Return the share of variance that an autoencoder must explain; 0: no requirement."""
    return run["protocol"]["autoencoder_fit"]


def by_client(run: Run, data, f: int) -> list[tuple[float, float]]:
    """Encode with an autoencoder per client, all from the same initial weights."""
    return [
        encoded(data, ids, *trained(run, data, f, ids, k)) for k, ids in enumerate(data.members)
    ]


def pooled(run: Run, data, f: int) -> list[tuple[float, float]]:
    """Encode with one autoencoder, trained on all clients' images."""
    import numpy as np

    made = trained(run, data, f, np.concatenate(data.members), "pooled")
    return [encoded(data, ids, *made) for ids in data.members]


def by_area(run: Run, data, f: int) -> list[tuple[float, float]]:
    """Encode by averaging grey images, without an autoencoder."""
    from fedgrid.encoders import autoencoder

    def norms(index):
        return autoencoder.norms(autoencoder.area(data.images[index] / 255, f))

    return [(float(summed(ids, norms)), NOT_KNOWN) for ids in data.members]


def trained(run: Run, data, f: int, ids, who):
    """Return an encoder trained on the images `ids`, and the share of variance it explains."""
    import torch

    from fedgrid.encoders import autoencoder
    from fedgrid.federation import schedule, seeds

    protocol = run["protocol"]
    rng = seeds.generator("latents", *data.names, f, who)
    torch.manual_seed(seeds.seed("latents", *data.names, f))
    model = autoencoder.autoencoder(data.images.shape[1], f).to(data.images.device)
    positions = schedule.batches(len(ids), changed_protocol(protocol, work(run)), rng)
    batches = (normalised(data, ids[chosen]) for chosen in positions)
    if wanted(run):
        return model[0], fitted(run, model, batches, data, ids)
    autoencoder.train(model, batches, protocol["lr"], protocol["momentum"])
    return model[0], NOT_KNOWN


def work(run: Run) -> dict:
    """Return the amount of an autoencoder's training, as fields of a protocol."""
    from fedgrid.encoders import autoencoder
    from fedgrid.federation import schedule

    if wanted(run):
        return {"local": autoencoder.LIMIT, "local_unit": "steps", "smallest_batch": 1}
    return schedule.epochs(run["protocol"]["pretrain_epochs"])


def fitted(run: Run, model, batches, data, ids) -> float:
    """Train in place until enough variance is explained; return the explained share."""
    from fedgrid.encoders import autoencoder

    if not len(ids):
        return 1.0  # no images to explain
    pixels = len(ids) * data.images.shape[-2] * data.images.shape[-1]
    moments = summed(ids, lambda index: autoencoder.moments(normalised(data, index)))
    variance = autoencoder.variance(moments, pixels)

    def explained() -> float:
        error = summed(ids, lambda index: autoencoder.error(model, normalised(data, index)))
        return float(1 - error / variance)

    epoch = -(-len(ids) // run["protocol"]["batch"])
    between = max(epoch, autoencoder.BETWEEN)
    return autoencoder.fit(model, batches, explained, wanted(run), between)


def judge(run: Run, explained, out: Path) -> None:
    """Log the explained shares, and warn of autoencoders below `autoencoder_fit`."""
    import numpy as np

    from fedgrid.encoders import autoencoder

    worse = []
    for f, own, (common, *_) in zip(autoencoder.FACTORS, explained[0], explained[1], strict=True):
        log.info(
            "%s: f = %d: explained by a client's autoencoder: %.3f at least, %.3f in the median; "
            "by the pooled one: %.3f",
            out,
            f,
            own.min(),
            np.median(own),
            common,
        )
        shares = {f"client {k}": share for k, share in enumerate(own)} | {"pooled": common}
        worse += [
            f"f = {f}, {who} ({share:.3f})"
            for who, share in shares.items()
            if not share >= wanted(run)
        ]
    if worse:
        cli.warn(
            f"{out}: after {autoencoder.LIMIT} steps these autoencoders explain less of their "
            f"images' variance than autoencoder_fit, which is {wanted(run)}: {'; '.join(worse)}; "
            "FedSL still uses them for its weights: lower autoencoder_fit to a share that all reach"
        )


def encoded(data, ids, encoder, explained: float) -> tuple[float, float]:
    """Return the sum of norms of a client's latents, and what its autoencoder explains."""
    from fedgrid.encoders import autoencoder

    norms = summed(ids, lambda index: autoencoder.norms(encoder(normalised(data, index))))
    return float(norms), explained


def normalised(data, ids):
    """Return the images `ids` normalised, without augmentation."""
    from fedgrid.federation import augment

    return augment.normalise(data.images[ids], data.mean, data.std)


def summed(ids, function, chunk: int = 256):
    """Return the sum of function(ids) over chunks of ids; 0 for no ids."""
    import torch

    with torch.no_grad():
        parts = [function(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
    return torch.stack(parts).sum(0) if parts else torch.zeros((), dtype=torch.float64)
