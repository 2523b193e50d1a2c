"""Encode the images of the visual-fidelity study as grey maps (FedSLS, section 4.3, figure 3).

    python -m fedgrid.experiments.fidelity.maps '{"images": {"digits": 40}, "size": 64, ...}' \\
        --encoder saliency --seed 0 --inputs originals=originals.npz --out maps.npz

--out holds named maps (n, size, size) uint8: the mean over channels, enlarged bilinearly, with the
originals' contrast normalisation, in 8 bit:

    saliency     `input`: the guided gradient of the predicted class's logit at the image
                 (Springenberg et al., 2015); `conv1`: guided gradient times activation at the first
                 convolution's output, equation 4
    untrained    the same of the model with random weights: the placebo of saliency (Adebayo et al.,
                 2018); a map that depends on what a model has learned differs from it
    autoencoder  `f2`, `f4`, `f8`: latents of autoencoders trained on all the images
    area         `f2`, `f4`, `f8`: no encoder, the averaged grey image

The array `explained` has for each map the share of the images' variance that its autoencoder
explains (`encoders/autoencoder.py`), or no number. The paper takes "the output image of the first
layer of BackPropagation", which can be the gradient at the input alone: maps at conv1 do not
resemble the image. The input weights=FILE is needed when the setting's model has published weights;
`networks.py` says how the model is made.
"""

import logging
from pathlib import Path

from fedgrid.experiments.fidelity import greymaps, networks
from fedgrid.experiments.fidelity.setting import (
    MAPS,
    Originals,
    find_paths,
    has_published,
    read_originals,
    read_setting,
    setting_parser,
    to_device,
)
from fedgrid.runtime import cli, records
from fedgrid.runtime.names import known

Encoded = tuple[dict, list[float]]  # maps by layer, and what the autoencoder of each explains

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> records.Work:
    parser = cli.device(setting_parser(__doc__, "originals, weights"))
    parser.add_argument("--encoder", required=True, help=", ".join(ENCODERS))
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default: 0)")
    asked = parser.parse_args(arguments)
    setting = read_setting(asked.setting)
    known("encoder", asked.encoder, setting["encoders"])
    wanted = ["originals", *["weights"] * has_published(setting, "model")]
    paths = find_paths(asked.inputs, wanted)
    encode(setting, asked.encoder, asked.seed, paths, asked.out, asked.device, asked.threads)
    code = ["experiments.fidelity.maps", f"models.{setting['model']}"]
    return records.Work([asked.out], paths.values(), code=code)


def encode(
    setting: dict,
    encoder: str,
    seed: int,
    paths: dict[str, Path],
    out: Path,
    device: str,
    threads: int,
) -> None:
    import numpy as np

    from fedgrid.engine.device import prepare
    from fedgrid.runtime import files

    place = prepare(device, threads, "fp32")
    drawn = to_device(read_originals(paths["originals"], setting), place)
    found, explained = ENCODERS[encoder](setting, drawn, paths.get("weights"), seed)
    maps = {
        layer: greymaps.finish(values, setting["size"], setting["contrast"]).cpu().numpy()
        for layer, values in found.items()
    }
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **maps, explained=explained or [np.nan] * len(maps))
    log.info("%s: %s of %d images", out, ", ".join(maps), len(drawn.images))


def saliency(setting: dict, drawn: Originals, weights: Path | None, seed: int) -> Encoded:
    """Return maps (n, h, w) at the input and at the first convolution's output."""
    network = networks.network(setting, "model", drawn, weights, seed)
    found = greymaps.in_chunks(lambda images: guided(network, images), drawn.images)
    return dict(zip(MAPS["saliency"], found, strict=True)), []  # those of `untrained`, too


def untrained(setting: dict, drawn: Originals, weights: Path | None, seed: int) -> Encoded:
    return saliency(setting | {"weights": "none", "epochs": 0}, drawn, None, seed)


def guided(network: networks.Network, images) -> tuple:
    """Return the two maps of some images, (n, h, w) each."""
    from fedgrid.encoders.guided import guided_gradients

    x, state = network.input(images), network.model.state_dict()
    outputs, gradients = guided_gradients(network.model, state, x, None, ("max",))
    first, (at_first, *_, at_input) = next(iter(outputs.values())), gradients["max"]
    return at_input.mean(1), (at_first * first.clamp(min=0)).mean(1)


def autoencoder(setting: dict, drawn: Originals, weights: Path | None, seed: int) -> Encoded:
    """Return channel means (n, h/f, w/f) of the latents of an autoencoder for every f."""
    from fedgrid.encoders.autoencoder import FACTORS

    found = {f"f{f}": latent(setting, drawn, f, seed) for f in FACTORS}
    return {f: maps for f, (maps, _) in found.items()}, [share for _, share in found.values()]


def latent(setting: dict, drawn: Originals, f: int, seed: int) -> tuple:
    """Train an autoencoder for the setting's epochs.

    Return channel means (n, h/f, w/f), and the share of the images' variance that it explains.
    """
    import torch

    from fedgrid.encoders import autoencoder
    from fedgrid.federation import seeds

    names = ("fidelity", "autoencoder", f, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.seed(*names))
        model = autoencoder.autoencoder(3, f).to(drawn.images.device)
    network = networks.normalising(model, drawn.images)
    epochs, rng = setting["autoencoder_epochs"], seeds.generator(*names)
    positions = networks.shuffled(setting, epochs, drawn, rng)
    batches = (network.input(drawn.images[chosen]) for chosen in positions)
    autoencoder.train(model, batches, setting["autoencoder_lr"], setting["momentum"])

    def measure(images) -> tuple:
        x = network.input(images)
        sums = autoencoder.error(model, x), autoencoder.moments(x)
        return model[0](x).mean(1), *(one[None] for one in sums)

    with torch.no_grad():
        found, error, moments = greymaps.in_chunks(measure, drawn.images)
    variance = autoencoder.variance(moments.sum(0), drawn.images[:, 0].numel())
    return found, float(1 - error.sum() / variance)


def area(setting: dict, drawn: Originals, weights: Path | None, seed: int) -> Encoded:
    """Return grey images (n, h/f, w/f) for every f."""
    from fedgrid.encoders.autoencoder import FACTORS, area

    def some(images):
        return tuple(area(images / 255, f)[:, 0] for f in FACTORS)

    found = greymaps.in_chunks(some, drawn.images)
    return {f"f{f}": maps for f, maps in zip(FACTORS, found, strict=True)}, []


ENCODERS = {"saliency": saliency, "untrained": untrained, "autoencoder": autoencoder, "area": area}


if __name__ == "__main__":
    cli.run(main)
