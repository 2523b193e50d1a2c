"""Compare the encodings of images with the images (FedSLS, sections 4.3.2 to 4.3.4, figure 5).

    python -m fedgrid.experiments.fidelity.scores '{"images": {"digits": 40}, "size": 64, ...}' \\
        --inputs originals=originals.npz --maps saliency/0=saliency0.npz area/0=area0.npz ... \\
        --out scores.csv --examples examples.csv

--maps are the files of `maps.py` for every encoder and seed of the setting. --out has a row for
every image, encoder, layer and seed:

    ssim       structural similarity to the grey original (Wang et al., 2004): for values in [0, 1],
               over an 11x11 Gaussian window of deviation 1.5, with population covariances
    cosine     of the judge's outputs for the map and for the grey original, in three channels
    euclidean  the L2 norm of the difference of map and original, with values in [0, 1]
    explained  the share of all images' variance that the map's autoencoder explains; else empty

--examples has the first images of every dataset, by each encoder's first seed and as `original`,
with the map as the data URI of an 8-bit PNG. The input judge=FILE is needed if the judge has
published weights.
"""

import logging
from pathlib import Path

from fedgrid.experiments.fidelity import greymaps, networks
from fedgrid.experiments.fidelity.setting import (
    MAPS,
    OUTPUTS,
    Originals,
    find_paths,
    has_published,
    read_originals,
    read_setting,
    setting_parser,
    to_device,
)
from fedgrid.federation import array_files
from fedgrid.runtime import cli, records
from fedgrid.runtime.names import UsageError

EXAMPLES = 3  # images of each dataset
SAME = {"ssim": 1.0, "cosine": 1.0, "euclidean": 0.0}  # the scores of the original itself

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> records.Work:
    """Run the command; UsageError for maps that are missing or do not fit the originals."""
    parser = cli.device(setting_parser(__doc__, "originals, judge"))
    parser.add_argument("--maps", nargs="+", default=[], metavar="ENCODER/SEED=PATH")
    parser.add_argument("--examples", type=Path, required=True)
    asked = parser.parse_args(arguments)
    setting = read_setting(asked.setting)
    wanted = ["originals", *["judge"] * has_published(setting, "judge")]
    paths = find_paths(asked.inputs, wanted)
    maps = find_paths(asked.maps, expected(setting), "file of maps")
    table = score(setting, paths, maps, asked.device, asked.threads)
    write(table, asked.out, asked.examples)
    read = [*paths.values(), *maps.values()]
    code = ["experiments.fidelity.scores", f"models.{setting['judge']}"]
    return records.Work([asked.out, asked.examples], read, code=code)


def expected(setting: dict) -> list[str]:
    """Return the names of the setting's files of maps: `saliency/0` and so on."""
    encoders = setting["encoders"].items()
    return [f"{encoder}/{seed}" for encoder, seeds in encoders for seed in range(seeds)]


def score(setting: dict, paths: dict[str, Path], maps: dict[str, Path], device: str, threads: int):
    """Return a row per image and map, image by image, the original first; examples have a `png`."""
    import pandas as pd

    from fedgrid.engine.device import prepare

    place = prepare(device, threads, "fp32")
    drawn = read_originals(paths["originals"], setting)
    network = networks.network(setting, "judge", to_device(drawn, place), paths.get("judge"), 0)
    reference = outputs(network, setting["judge_output"], drawn.grey)
    tables = [rows(drawn, drawn.grey, ("original", "grey", 0), SAME | {"explained": None})]
    for encoder, layer, seed in layers(setting):
        path = maps[f"{encoder}/{seed}"]
        grey = read_maps(path, layer, drawn.grey.shape)
        shares = array_files.read_arrays(path, "explained")["explained"]
        scores = compare(grey, drawn.grey) | {"explained": shares[MAPS[encoder].index(layer)]}
        scores["cosine"] = cosine(outputs(network, setting["judge_output"], grey), reference)
        tables.append(rows(drawn, grey, (encoder, layer, seed), scores))
        log.info("%s %s, seed %d: ssim %.3f", encoder, layer, seed, scores["ssim"].mean())
    return pd.concat(tables).sort_index(kind="stable")


def layers(setting: dict) -> list[tuple[str, str, int]]:
    """Return encoder, layer and seed of all maps, in the order of the rows."""
    return [
        (encoder, layer, seed)
        for encoder, seeds in setting["encoders"].items()
        for layer in MAPS[encoder]
        for seed in range(seeds)
    ]


def read_maps(path: Path, layer: str, shape: tuple[int, ...]):
    """Return maps (n, size, size) uint8; UsageError if their shape is not the originals'."""
    maps = array_files.read_arrays(path, layer)[layer]
    if (str(maps.dtype), maps.shape) != ("uint8", shape):
        raise UsageError(f"{path}: {layer} is {maps.dtype} {maps.shape}, not uint8 {shape}")
    return maps


def compare(maps, originals) -> dict:
    """Return structural similarity and Euclidean distance (n,) of uint8 maps (n, h, w)."""
    import numpy as np
    from skimage.metrics import structural_similarity

    how = {"data_range": 1.0, "gaussian_weights": True, "sigma": 1.5, "win_size": 11}
    pairs = [(one / 255, other / 255) for one, other in zip(maps, originals, strict=True)]
    ssim = [structural_similarity(*pair, use_sample_covariance=False, **how) for pair in pairs]
    distances = [np.linalg.norm(one - other) for one, other in pairs]
    return {"ssim": np.array(ssim), "euclidean": np.array(distances)}


def outputs(network: networks.Network, output: str, maps):
    """Return the judge's outputs for uint8 maps (n, h, w): tensor (n, d), on the CPU."""
    import torch

    def some(part):
        given = network.model(network.input(part.to(network.mean.device)))
        return (dict(zip(OUTPUTS, given, strict=True))[output].cpu(),)

    with torch.no_grad():
        return greymaps.in_chunks(some, torch.from_numpy(maps))[0]


def cosine(found, reference):
    """Return the cosine (n,) of the angles between rows (n, d); 0 for a row of zeros."""
    import torch.nn.functional as F

    return F.cosine_similarity(found.double(), reference.double()).numpy()


def rows(drawn: Originals, maps, names: tuple[str, str, int], scores: dict):
    """Return a row for every image, indexed by its place among the originals."""
    import pandas as pd

    encoder, layer, seed = names
    table = pd.DataFrame({"dataset": drawn.datasets, "image": drawn.ids})
    examples = (table.groupby("dataset").cumcount() < EXAMPLES) & (seed == 0)
    table = table.assign(encoder=encoder, layer=layer, seed=seed)
    pictures = [png(grey) if shown else None for grey, shown in zip(maps, examples, strict=True)]
    return table.assign(**{name: scores[name] for name in (*SAME, "explained")}, png=pictures)


def png(grey) -> str:
    """Return an 8-bit grey map (h, w) as the data URI of a PNG."""
    import base64
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(grey).save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def write(table, out: Path, examples: Path) -> None:
    """Write the scores of all maps, and those of the examples with their pictures."""
    from fedgrid.runtime import files

    table = table.astype({"explained": float}).round(dict.fromkeys((*SAME, "explained"), 6))
    scored = table[table.encoder != "original"].drop(columns="png")
    for path, part in ((out, scored), (examples, table.dropna(subset="png"))):
        with files.replacing(path) as temporary:
            part.to_csv(temporary, index=False)
    log.info("%s: %d rows", out, len(scored))


if __name__ == "__main__":
    cli.run(main)
