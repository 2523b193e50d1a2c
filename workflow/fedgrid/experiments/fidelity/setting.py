"""The setting of the visual-fidelity study, and what its parts share (FedSLS, section 4.3).

Images and their encodings become grey maps of one size and contrast, in 8 bit, for figures 3 and 5:
`originals.py` draws the images, `maps.py` encodes them, `scores.py` compares. The paper only says
"size, brightness and contrast normalisation"; CONTRASTS has two readings of this. Torch is imported
late, so that a setting can be checked without it.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid.experiments.fidelity.greymaps import CONTRASTS
from fedgrid.federation import array_files
from fedgrid.runtime import cli
from fedgrid.runtime.code import contract, own_data, source
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.study.checks import check_images
from fedgrid.study.reading import check_schema

MAPS = {  # the maps of each encoder
    "saliency": ("input", "conv1"),
    "untrained": ("input", "conv1"),
    "autoencoder": ("f2", "f4", "f8"),
    "area": ("f2", "f4", "f8"),
}
OUTPUTS = ("features", "logits")  # of a model, in the order of its results
NETWORKS = {"model": "", "judge": "judge_"}  # the prefix of a network's fields
PUBLISHED = {  # published weights: classes, mean and deviation of their training images
    "imagenet": (1000, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
SMALLEST = 8  # images in a batch: see `federation/schedule.py`


class Originals(NamedTuple):
    """The result of `originals.py`; `images`, `labels` and `grey` are arrays or tensors."""

    images: Any  # (n, 3, size, size) uint8
    labels: Any  # (n,) among the classes of all datasets that were drawn
    datasets: Any  # (n,) names
    ids: Any  # (n,) positions in the datasets' train splits
    grey: Any  # (n, size, size) uint8, normalised


# -- settings ------------------------------------------------------------------------------------


def setting_parser(description: str, *inputs: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all parts of the study share."""
    made = cli.parser(description)
    made.add_argument("setting", help="the study's setting as JSON; its fields are in setting.py")
    made.add_argument(
        "--inputs", nargs="+", default=[], metavar="NAME=PATH",
        help=f"paths of inputs: {', '.join(inputs)}",
    )  # fmt: skip
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    return made


def read_setting(text: str) -> dict[str, Any]:
    try:
        setting = json.loads(text)
    except json.JSONDecodeError as problem:
        raise UsageError(f"the setting is not JSON: {problem}") from None
    check_setting(setting)
    return setting


def check_setting(setting: dict[str, Any]) -> None:
    check_schema("the setting", setting, "study", "fidelity")
    check_counts(setting)
    check_names(setting)


def check_counts(setting: dict[str, Any]) -> None:
    """Raise a UsageError for an unknown dataset or encoder, and for too few images."""
    for name in setting["encoders"]:
        known("encoder", name, MAPS)
    for name in setting["images"]:
        contract.dataset(known("dataset", name, own_data.list_datasets()))
        check_images("the setting", name)
    if (images := sum(setting["images"].values())) < SMALLEST:
        raise UsageError(f"the setting has {images} images: give at least {SMALLEST}")


def check_names(setting: dict[str, Any]) -> None:
    """Raise a UsageError for an unknown contrast, model or set of weights."""
    known("contrast", setting["contrast"], CONTRASTS)
    for field, prefix in NETWORKS.items():
        contract.model(model := known(field, setting[field], registered("models")))
        there = PUBLISHED.keys() & {*source.literal(f"models.{model}", "WEIGHTS", ())}
        known(f"set of weights for {model}", setting[f"{prefix}weights"], {"none", *there})


def find_paths(texts: list[str], wanted: list[str], kind: str = "input") -> dict[str, Path]:
    """Return the paths in texts NAME=PATH; UsageError unless the names are exactly `wanted`."""
    found: dict[str, str] = {}
    for name, _, path in (text.partition("=") for text in texts):
        if known(kind, name, wanted) in found:
            raise UsageError(f"the {kind} {name} is given twice")
        found[name] = path
    for name in wanted:
        if not found.get(name):
            raise UsageError(f"the {kind} {name} is missing: give its path with {name}=PATH")
        if not Path(found[name]).exists():
            raise UsageError(f"the {kind} {name} is missing: {found[name]} does not exist")
    return {name: Path(found[name]) for name in wanted}


def has_published(setting: dict[str, Any], network: str) -> bool:
    """Whether a network starts from published weights; their file is then an input."""
    return setting[f"{NETWORKS[network]}weights"] != "none"


def read_originals(path: Path, setting: dict[str, Any]) -> Originals:
    """Return the images of `originals.py`; UsageError if they do not fit the setting."""
    found = Originals(**array_files.read_arrays(path, *Originals._fields))
    shape = (sum(setting["images"].values()), 3, setting["size"], setting["size"])
    if found.images.shape != shape:
        raise UsageError(f"{path} holds images {found.images.shape}, not {shape} as in the setting")
    return found


def to_device(drawn: Originals, device) -> Originals:
    """Return the arrays as tensors on the device; names and ids are not changed."""
    import torch

    arrays = ("images", "labels", "grey")
    there = {name: torch.from_numpy(getattr(drawn, name)).to(device) for name in arrays}
    return drawn._replace(**there)
