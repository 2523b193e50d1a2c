"""Encode the images of the visual-fidelity study as grey maps (FedSLS, section 4.3, figure 3).

    python -m fedgrid.fidelity.maps '{"images": {"digits": 40}, "size": 64, ...}' \\
        --encoder saliency --seed 0 --inputs originals=originals.npz --out maps.npz

--out holds named maps (n, size, size) uint8: the mean over channels, enlarged bilinearly, with the
originals' contrast normalisation, in 8 bit:

    saliency     `input`: the guided gradient of the predicted class's logit at the image
                 (Springenberg et al., 2015); `conv1`: guided gradient times activation at the first
                 convolution's output, equation 4
    autoencoder  `f2`, `f4`, `f8`: latents of autoencoders trained on all the images
    area         `f2`, `f4`, `f8`: no encoder, the grey image averaged down

The paper takes "the output image of the first layer of BackPropagation", which can be the gradient
at the input alone: maps at conv1 do not resemble the image. The input weights=FILE is needed when
the setting's model has published weights; `fidelity.network` says how the model comes about.
"""

import logging
from pathlib import Path

from fedgrid import cli, fidelity
from fedgrid.names import known

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = cli.device(fidelity.parser(__doc__, "originals, weights"))
    parser.add_argument("--encoder", required=True, help=", ".join(ENCODERS))
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default: 0)")
    asked = parser.parse_args(arguments)
    setting = fidelity.read(asked.setting)
    known("encoder", asked.encoder, setting["encoders"])
    wanted = ["originals", *["weights"] * fidelity.published(setting, "model")]
    paths = fidelity.paths(asked.inputs, wanted)
    encode(setting, asked.encoder, asked.seed, paths, asked.out, asked.device, asked.threads)


def encode(
    setting: dict,
    encoder: str,
    seed: int,
    paths: dict[str, Path],
    out: Path,
    device: str,
    threads: int,
) -> None:
    """Encode all images and write their maps."""
    import numpy as np

    from fedgrid import federation, files

    place = federation.prepare(device, threads, "fp32")
    drawn = fidelity.on_device(fidelity.read_originals(paths["originals"], setting), place)
    found = ENCODERS[encoder](setting, drawn, paths.get("weights"), seed)
    maps = {
        layer: fidelity.finish(values, setting["size"], setting["contrast"]).cpu().numpy()
        for layer, values in found.items()
    }
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **maps)
    log.info("%s: %s of %d images", out, ", ".join(maps), len(drawn.images))


def saliency(setting: dict, drawn: fidelity.Originals, weights: Path | None, seed: int) -> dict:
    """Maps (n, h, w) at the input and at the first convolution's output."""
    network = fidelity.network(setting, "model", drawn, weights, seed)
    found = fidelity.in_chunks(lambda images: guided(network, images), drawn.images)
    return dict(zip(fidelity.ENCODERS["saliency"], found, strict=True))


def guided(network: fidelity.Network, images) -> tuple:
    """The two maps of a few images, (n, h, w) each."""
    from fedgrid.encoder import guided_gradients

    x, state = network.input(images), network.model.state_dict()
    outputs, gradients = guided_gradients(network.model, state, x, None, ("max",))
    first, (at_first, *_, at_input) = next(iter(outputs.values())), gradients["max"]
    return at_input.mean(1), (at_first * first.clamp(min=0)).mean(1)


def autoencoder(setting: dict, drawn: fidelity.Originals, weights: Path | None, seed: int) -> dict:
    """Channel means (n, h/f, w/f) of the latents of an autoencoder for every f."""
    from fedgrid.autoencoder import FACTORS

    return {f"f{f}": latent(setting, drawn, f, seed) for f in FACTORS}


def latent(setting: dict, drawn: fidelity.Originals, f: int, seed: int):
    """Channel means (n, h/f, w/f) after training an autoencoder for the setting's epochs."""
    import torch

    from fedgrid import autoencoder, seeds

    names = ("fidelity", "autoencoder", f, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.seed(*names))
        model = autoencoder.autoencoder(3, f).to(drawn.images.device)
    network = fidelity.normalising(model, drawn.images)
    epochs, rng = setting["autoencoder_epochs"], seeds.generator(*names)
    positions = fidelity.shuffled(setting, epochs, drawn, rng)
    batches = (network.input(drawn.images[chosen]) for chosen in positions)
    autoencoder.train(model, batches, setting["autoencoder_lr"], setting["momentum"])
    with torch.no_grad():
        return fidelity.in_chunks(lambda x: (model[0](network.input(x)).mean(1),), drawn.images)[0]


def area(setting: dict, drawn: fidelity.Originals, weights: Path | None, seed: int) -> dict:
    """Grey images (n, h/f, w/f) for every f."""
    from fedgrid.autoencoder import FACTORS, area

    def some(images):
        return tuple(area(images / 255, f)[:, 0] for f in FACTORS)

    found = fidelity.in_chunks(some, drawn.images)
    return {f"f{f}": maps for f, maps in zip(FACTORS, found, strict=True)}


ENCODERS = {"saliency": saliency, "autoencoder": autoencoder, "area": area}


if __name__ == "__main__":
    cli.run(main)
