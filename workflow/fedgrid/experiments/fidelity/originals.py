"""Draw the images whose encodings are compared with them (FedSLS, section 4.3.1).

    python -m fedgrid.experiments.fidelity.originals '{"images": {"digits": 40}, ...}' \\
        --inputs digits=results/data/digits --out originals.npz

Images are drawn at random, without replacement, from each dataset's train split and resized to one
size in colour. --out holds, for the n images in the order of the draw, dataset by dataset:

    images    (n, 3, size, size) uint8: bilinear, smoothed before shrinking, grey repeated
    labels    (n,) the rank of the image's (dataset, class) among those that were drawn
    datasets  (n,) names; ids (n,) positions in the datasets' train splits
    grey      (n, size, size) uint8: luminance with normalised contrast, compared with all maps
"""

import logging
from pathlib import Path

from fedgrid.experiments.fidelity import greymaps
from fedgrid.experiments.fidelity.setting import Originals, find_paths, read_setting, setting_parser
from fedgrid.runtime import cli, records
from fedgrid.runtime.names import UsageError

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> records.Work:
    """Run the command; UsageError for more images than a dataset has."""
    asked = setting_parser(__doc__, "the datasets").parse_args(arguments)
    setting = read_setting(asked.setting)
    paths = find_paths(asked.inputs, list(setting["images"]))
    import numpy as np

    from fedgrid.engine.device import prepare
    from fedgrid.runtime import files

    prepare("cpu", asked.threads, "fp32")  # for the same pixels on every machine
    drawn = draw(setting, paths)
    with files.replacing(asked.out) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **drawn._asdict())
    log.info("%s: %d images of %d classes", asked.out, len(drawn.ids), drawn.labels.max() + 1)
    return records.Work([asked.out], paths.values(), code=["experiments.fidelity.originals"])


def draw(setting: dict, paths: dict[str, Path]) -> Originals:
    import numpy as np
    import torch

    parts = [of(name, count, paths[name]) for name, count in setting["images"].items()]
    datasets = np.repeat([*setting["images"]], [len(ids) for ids, _, _ in parts])
    images = torch.cat([colour(part, setting["size"]) for _, _, part in parts])
    grey = greymaps.finish(greymaps.luminance(images), setting["size"], setting["contrast"])
    labels = ranked([labels for _, labels, _ in parts])
    ids = np.concatenate([ids for ids, _, _ in parts])
    return Originals(images.numpy(), labels, datasets, ids, grey.numpy())


def of(name: str, count: int, path: Path):
    """Return ids, labels and images of `count` images; a smaller count gives the first of them."""
    from fedgrid.federation import seeds
    from fedgrid.federation.stored import open_data

    data = open_data(path)
    if count > (there := len(data.train_labels)):
        raise UsageError(f"{count} images of {name} are more than the {there} in {path}")
    ids = seeds.generator("originals", name).permutation(there)[:count]
    return ids, data.train_labels[ids], data.train_images[ids]


def colour(images, size: int):
    """Convert uint8 arrays (n, 1 or 3, h, w) to a uint8 tensor (n, 3, size, size)."""
    import torch

    def some(part):
        return (greymaps.resize(part.float(), size).round().byte(),)

    (resized,) = greymaps.in_chunks(some, torch.from_numpy(images))
    return resized.expand(-1, 3, -1, -1)


def ranked(labels: list):
    """Number the classes of several datasets consecutively, without gaps."""
    import numpy as np

    pairs = [(rank, label) for rank, part in enumerate(labels) for label in part]
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


if __name__ == "__main__":
    cli.run(main)
