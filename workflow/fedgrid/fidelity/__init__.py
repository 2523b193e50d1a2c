"""What the parts of the visual-fidelity study share (FedSLS, section 4.3, figures 3 and 5).

Images and their encodings become grey maps of one size and contrast, in 8 bit, so that they can be
compared: `originals.py` draws the images, `maps.py` encodes them, `scores.py` compares. The paper
says "size, brightness and contrast normalisation" and no more; CONTRASTS has two readings.
Torch is imported late: a setting can be checked without it.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid import cli, contract, grid, records, source
from fedgrid.names import UsageError, known, registered

# The fields of a setting, with an example of each.
FIELDS: dict[str, Any] = {
    "images": {"digits": 40, "photographs": 40},  # how many of each dataset
    "size": 64,  # height and width of all maps, in pixels
    "contrast": "minmax",
    "model": "resnet18",  # whose guided gradients are the saliency maps
    "weights": "none",
    "epochs": 3,  # of fine-tuning on the images; 0 keeps the classifier of published weights
    "judge": "resnet18",  # whose outputs are compared by their cosine
    "judge_weights": "none",
    "judge_epochs": 3,
    "judge_output": "logits",
    "batch": 8,
    "lr": 0.01,
    "momentum": 0.9,
    "autoencoder_epochs": 10,
    "autoencoder_lr": 0.1,  # at 0.01 the deepest learns the mean image and nothing else
    "encoders": {"saliency": 2, "autoencoder": 3, "area": 1},  # numbers of seeds
}
LEAST = {
    **{"size": 16, "batch": 3, "lr": 0, "momentum": 0, "autoencoder_lr": 0},
    **{"epochs": 0, "judge_epochs": 0, "autoencoder_epochs": 0},
}
ENCODERS = {  # the maps of each encoder
    "saliency": ("input", "conv1"),
    "autoencoder": ("f2", "f4", "f8"),
    "area": ("f2", "f4", "f8"),
}
OUTPUTS = ("features", "logits")  # of a model, as it returns them
NETWORKS = {"model": "", "judge": "judge_"}  # the prefix of a network's fields
PUBLISHED = {  # published weights: classes, and the mean and deviation of the images they are for
    "imagenet": (1000, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
SMALLEST = 8  # images in a batch: see `schedule.py`
CHUNK = 32  # images at a time


class Originals(NamedTuple):
    """What `originals.py` drew; `images`, `labels` and `grey` may be numpy's or torch's."""

    images: Any  # (n, 3, size, size) uint8
    labels: Any  # (n,) among the classes of all datasets that were drawn
    datasets: Any  # (n,) names
    ids: Any  # (n,) positions in the datasets' train splits
    grey: Any  # (n, size, size) uint8, normalised


# -- settings ------------------------------------------------------------------------------------


def parser(description: str, *inputs: str) -> argparse.ArgumentParser:
    """A parser of what all parts of the study are given."""
    made = cli.parser(description)
    made.add_argument("setting", help="the study's setting as JSON; see fidelity/__init__.py")
    made.add_argument(
        "--inputs", nargs="+", default=[], metavar="NAME=PATH",
        help=f"where inputs are: {', '.join(inputs)}",
    )  # fmt: skip
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    return made


def read(text: str) -> dict[str, Any]:
    """The setting in a JSON text, checked."""
    try:
        setting = json.loads(text)
    except json.JSONDecodeError as problem:
        raise UsageError(f"the setting is not JSON: {problem}") from None
    check(setting)
    return setting


def check(setting: dict[str, Any]) -> None:
    """UsageError for a field that is unknown, missing, of another type or out of its range."""
    like("the setting", setting, FIELDS)
    for field, value in setting.items():
        known("field of the setting", field, FIELDS)
        like(f"the setting's {field}", value, FIELDS[field])
        if field in LEAST:
            at_least(field, value, LEAST[field])
    if missing := [field for field in FIELDS if field not in setting]:
        raise UsageError(f"the setting lacks `{missing[0]}`")
    if setting["size"] % 8:  # the largest factor of the autoencoders
        raise UsageError(f"the setting's size is {setting['size']}, not a multiple of 8")
    check_counts(setting)
    check_names(setting)


def check_counts(setting: dict[str, Any]) -> None:
    """UsageError unless there are images of known datasets and seeds of known encoders."""
    members = {"images": ("dataset", registered("datasets")), "encoders": ("encoder", ENCODERS)}
    for field, (kind, among) in members.items():
        for name, count in setting[field].items():
            known(kind, name, among)
            like(f"the setting's {field} of {name}", count, 1)
            at_least(f"{field} of {name}", count, 1)
    for name in setting["images"]:
        contract.dataset(name)
    at_least("number of images", sum(setting["images"].values()), SMALLEST)
    at_least("number of encoders", len(setting["encoders"]), 1)


def check_names(setting: dict[str, Any]) -> None:
    """UsageError for another name that stands for nothing."""
    known("contrast", setting["contrast"], CONTRASTS)
    known("output of the judge", setting["judge_output"], OUTPUTS)
    for field, prefix in NETWORKS.items():
        contract.model(model := known(field, setting[field], registered("models")))
        there = PUBLISHED.keys() & {*source.literal(f"models.{model}", "WEIGHTS", ())}
        known(f"set of weights for {model}", setting[f"{prefix}weights"], {"none", *there})


def like(what: str, value: Any, example: Any) -> None:
    """UsageError for a value of another type than the example's."""
    if not isinstance(example, dict):
        grid.like(what, value, example)
    elif not isinstance(value, dict):
        raise UsageError(f"{what} is {value!r}, not names with their values")


def at_least(what: str, value: float, least: float) -> None:
    """UsageError for a value below the least."""
    if value < least:
        raise UsageError(f"the setting's {what} is {value}, not at least {least}")


def paths(texts: list[str], wanted: list[str], kind: str = "input") -> dict[str, Path]:
    """The paths in texts NAME=PATH, of the names `wanted`, no fewer and no others."""
    found: dict[str, str] = {}
    for name, _, path in (text.partition("=") for text in texts):
        if known(kind, name, wanted) in found:
            raise UsageError(f"the {kind} {name} is given twice")
        found[name] = path
    for name in wanted:
        if not found.get(name):
            raise UsageError(f"the {kind} {name} is missing: say where it is with {name}=PATH")
        if not Path(found[name]).exists():
            raise UsageError(f"the {kind} {name} is missing: there is no {found[name]}")
    records.NOTES.inputs += [Path(found[name]) for name in wanted]
    return {name: Path(found[name]) for name in wanted}


def published(setting: dict[str, Any], network: str) -> bool:
    """Whether a network starts from published weights, whose file is then an input."""
    return setting[f"{NETWORKS[network]}weights"] != "none"


def read_originals(path: Path, setting: dict[str, Any]) -> Originals:
    """The images of `originals.py`; UsageError if they are not those of the setting."""
    from fedgrid import files

    found = Originals(**files.read_arrays(path, *Originals._fields))
    shape = (sum(setting["images"].values()), 3, setting["size"], setting["size"])
    if found.images.shape != shape:
        raise UsageError(f"{path} holds images {found.images.shape}, not {shape} as in the setting")
    return found


def on_device(drawn: Originals, device) -> Originals:
    """The arrays as tensors on the device; the names and ids as they are."""
    import torch

    arrays = ("images", "labels", "grey")
    there = {name: torch.from_numpy(getattr(drawn, name)).to(device) for name in arrays}
    return drawn._replace(**there)


# -- maps ----------------------------------------------------------------------------------------


def resize(maps, size: int):
    """Maps (n, channels, h, w) float -> (n, channels, size, size), bilinear."""
    import torch.nn.functional as F

    shrinks = max(maps.shape[-2:]) > size
    return F.interpolate(
        maps, (size, size), mode="bilinear", align_corners=False, antialias=shrinks
    )


def luminance(images):
    """Images (n, 3, h, w) -> (n, h, w), .299 red + .587 green + .114 blue."""
    from fedgrid.autoencoder import LUMINANCE

    return sum(weight * images[:, channel] for channel, weight in enumerate(LUMINANCE))


def minmax(maps):
    """Each map (n, h, w) shifted and scaled to run from 0 to 1; a constant one is 0.5."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    flat = constant(low, high)
    return ((maps - low) / (high - low).masked_fill(flat, 1)).masked_fill(flat, 0.5)


def moments(maps):
    """Each map (n, h, w) at mean 0.5, deviation 0.2, clipped to [0, 1]; a constant one is 0.5."""
    flat = constant(maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True))
    deviation = maps.std((1, 2), keepdim=True, correction=0).masked_fill(flat, 1)
    scaled = 0.5 + 0.2 * (maps - maps.mean((1, 2), keepdim=True)) / deviation
    return scaled.clamp(0, 1).masked_fill(flat, 0.5)


def constant(low, high):
    """Whether a map's least and largest values differ by no more than float32 rounds."""
    return high - low <= 1e-6 * low.abs().maximum(high.abs())


CONTRASTS = {"minmax": minmax, "moments": moments}


def finish(maps, size: int, contrast: str):
    """Maps (n, h, w) float -> (n, size, size) uint8: resized, normalised and rounded."""

    def some(part):
        normalised = CONTRASTS[contrast](resize(part[:, None], size)[:, 0].double())
        return ((255 * normalised).round().byte(),)

    return in_chunks(some, maps)[0]


# -- networks ------------------------------------------------------------------------------------


class Network(NamedTuple):
    """A classifier in evaluation mode and the constants that its inputs are normalised by."""

    model: Any
    mean: Any  # (3, 1, 1), for images in [0, 1]
    std: Any

    def input(self, images):
        """uint8 (n, 3, h, w), or grey maps (n, h, w), as the model takes them."""
        from fedgrid import augment

        colour = images if images.ndim == 4 else images[:, None].expand(-1, 3, -1, -1)
        return augment.normalise(colour, self.mean, self.std)


def network(
    setting: dict[str, Any], which: str, drawn: Originals, weights: Path | None, seed: int
) -> Network:
    """The setting's model or its judge, after its epochs on the images drawn and their labels.

    With published weights and no epochs the published classifier is kept, else it is drawn from
    the seed. Inputs are normalised by the constants of the published weights, or, without these,
    by the mean and deviation of the images drawn.
    """
    from fedgrid import models, seeds

    epochs, name = (setting[f"{NETWORKS[which]}{field}"] for field in ("epochs", "weights"))
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
    """The model with mean and deviation per channel: those given, or those of the images."""
    import torch

    found = constants or statistics(images)
    return Network(model, *(torch.tensor(v, device=images.device)[:, None, None] for v in found))


def statistics(images) -> list[list[float]]:
    """Mean and deviation of each channel of uint8 images (n, channels, h, w), scaled to [0, 1]."""
    import torch

    channels = [channel.flatten() for channel in images.transpose(0, 1)]
    counts = torch.stack([torch.bincount(channel, minlength=256) for channel in channels])
    shares = counts.double() / len(channels[0])
    values = torch.arange(256, device=images.device).double() / 255
    mean = shares @ values
    variance = (shares * (values - mean[:, None]).square()).sum(1)
    return [mean.tolist(), variance.sqrt().clamp(min=1 / 255).tolist()]


def fine_tune(made: Network, setting: dict[str, Any], drawn: Originals, epochs: int, rng) -> None:
    """Minimise the cross-entropy by SGD, in place; the last images of an epoch may be left out."""
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
    """Make BatchNorm's running statistics the mean of those over chunks of the images, in place.

    After a few steps they would still be nearly those of a new model, and in evaluation mode its
    outputs nearly the same for all images.
    """
    import torch

    norms = [m for m in made.model.train().modules() if isinstance(m, torch.nn.BatchNorm2d)]
    chunks = drawn.images.split(CHUNK)[: max(1, len(drawn.images) // CHUNK)]  # whole ones
    with torch.no_grad():
        for count, images in enumerate(chunks, start=1):
            for norm in norms:
                norm.momentum = 1 / count  # a running mean over the chunks
            made.model(made.input(images))


def shuffled(setting: dict[str, Any], epochs: int, drawn: Originals, rng):
    """Batches of positions for `epochs` epochs, none of fewer than SMALLEST."""
    from fedgrid import schedule

    batches = {"batch": setting["batch"], "smallest_batch": SMALLEST}
    protocol = batches | {"local": epochs, "local_unit": "epochs"}
    return schedule.batches(len(drawn.images), protocol, rng)


def in_chunks(function, rows) -> list:
    """What `function` gives, a tuple, of CHUNK rows at a time, put together along the rows."""
    import torch

    parts = [function(rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]
