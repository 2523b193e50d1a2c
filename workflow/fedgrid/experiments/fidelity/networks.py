"""The networks of the visual-fidelity study: the model and the judge."""

from pathlib import Path
from typing import Any, NamedTuple

from fedgrid.experiments.fidelity import greymaps
from fedgrid.experiments.fidelity.setting import NETWORKS, PUBLISHED, SMALLEST, Originals


class Network(NamedTuple):
    """A classifier in evaluation mode and the constants that normalise its inputs."""

    model: Any
    mean: Any  # (3, 1, 1), for images in [0, 1]
    std: Any

    def input(self, images):
        """Return uint8 (n, 3, h, w), or grey maps (n, h, w), as input of the model."""
        from fedgrid.federation import augment

        colour = images if images.ndim == 4 else images[:, None].expand(-1, 3, -1, -1)
        return augment.normalise(colour, self.mean, self.std)


def network(
    setting: dict[str, Any], which: str, drawn: Originals, weights: Path | None, seed: int
) -> Network:
    """Return the setting's model or its judge, trained for its epochs on the images drawn.

    With published weights and no epochs, the published classifier is kept; else it is drawn from
    the seed. Inputs are normalised by the constants of the published weights or, without these,
    by the mean and deviation of the images drawn.
    """
    from fedgrid import models
    from fedgrid.federation import seeds

    epochs, name = (setting[f"{NETWORKS[which]}{field}"] for field in ("epochs", "weights"))
    published_classes: Any
    published_classes, *constants = PUBLISHED.get(name, (None,))
    head = weights is not None and epochs == 0
    classes = published_classes if head else int(drawn.labels.max()) + 1
    number, shape = seeds.seed("fidelity", which, seed), tuple(drawn.images.shape[1:])
    model = models.build(setting[which], shape, classes, weights, number, head)
    made = normalising(model.to(drawn.images.device), drawn.images, constants)
    if not head:
        fine_tune(made, setting, drawn, epochs, seeds.generator("fidelity", which, seed))
        calibrate(made, drawn)
    return made._replace(model=made.model.eval())


def normalising(model, images, constants=None) -> Network:
    """Return the model with mean and deviation per channel: the constants, or the images' own."""
    import torch

    found = constants or statistics(images)
    return Network(model, *(torch.tensor(v, device=images.device)[:, None, None] for v in found))


def statistics(images) -> list[list[float]]:
    """Return mean and deviation per channel of uint8 images (n, channels, h, w), in [0, 1]."""
    import torch

    channels = [channel.flatten() for channel in images.transpose(0, 1)]
    counts = torch.stack([torch.bincount(channel, minlength=256) for channel in channels])
    shares = counts.double() / len(channels[0])
    values = torch.arange(256, device=images.device).double() / 255
    mean = shares @ values
    variance = (shares * (values - mean[:, None]).square()).sum(1)
    return [mean.tolist(), variance.sqrt().clamp(min=1 / 255).tolist()]


def fine_tune(made: Network, setting: dict[str, Any], drawn: Originals, epochs: int, rng) -> None:
    """Minimise the cross-entropy by SGD, in place; an epoch may omit its last images."""
    import torch
    import torch.nn.functional as F

    made.model.train()
    optimiser = torch.optim.SGD(made.model.parameters(), setting["lr"], setting["momentum"])
    for chosen in shuffled(setting, epochs, drawn, rng):
        optimiser.zero_grad()
        _, logits = made.model(made.input(drawn.images[chosen]))
        F.cross_entropy(logits, drawn.labels[chosen]).backward()
        optimiser.step()


def calibrate(made: Network, drawn: Originals) -> None:
    """Set BatchNorm's running statistics to the mean over chunks of the images, in place.

    After a few steps they are still close to those of a new model, so that in evaluation mode the
    outputs would be nearly the same for all images.
    """
    import torch

    norms = [m for m in made.model.train().modules() if isinstance(m, torch.nn.BatchNorm2d)]
    whole = max(1, len(drawn.images) // greymaps.CHUNK)  # chunks, without a rest
    chunks = drawn.images.split(greymaps.CHUNK)[:whole]
    with torch.no_grad():
        for count, images in enumerate(chunks, start=1):
            for norm in norms:
                norm.momentum = 1 / count  # a running mean over the chunks
            made.model(made.input(images))


def shuffled(setting: dict[str, Any], epochs: int, drawn: Originals, rng):
    """Yield batches of positions for `epochs` epochs, none with fewer than SMALLEST."""
    from fedgrid.federation import schedule

    size = {"batch": setting["batch"], "smallest_batch": SMALLEST}
    work: Any = {**size, **schedule.epochs(epochs)}
    return schedule.batches(len(drawn.images), work, rng)
