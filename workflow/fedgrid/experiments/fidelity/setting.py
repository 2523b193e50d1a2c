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
from fedgrid.runtime import cli
from fedgrid.runtime.code import contract, own_data, source
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.study.checks import check_images, check_type

# The fields of a setting, with an example of each.
FIELDS: dict[str, Any] = {
    "images": {"digits": 40, "photographs": 40},  # number of images by dataset
    "size": 64,  # height and width of all maps, in pixels
    "contrast": "minmax",
    "model": "resnet18",  # its guided gradients are the saliency maps
    "weights": "none",
    "epochs": 3,  # of fine-tuning on the images; 0 keeps the classifier of published weights
    "judge": "resnet18",  # the cosine compares its outputs
    "judge_weights": "none",
    "judge_epochs": 3,
    "judge_output": "logits",
    "batch": 8,
    "lr": 0.01,
    "momentum": 0.9,
    "autoencoder_epochs": 10,
    "autoencoder_lr": 0.1,  # at 0.01 the deepest learns only the mean image
    "encoders": {"saliency": 2, "autoencoder": 3, "area": 1},  # numbers of seeds
}
LEAST = {
    "size": 16,
    "batch": 3,
    "lr": 0,
    "momentum": 0,
    "autoencoder_lr": 0,
    "epochs": 0,
    "judge_epochs": 0,
    "autoencoder_epochs": 0,
}
MAPS = {  # the maps of each encoder
    "saliency": ("input", "conv1"),
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
    """Return the setting in a JSON text, checked."""
    try:
        setting = json.loads(text)
    except json.JSONDecodeError as problem:
        raise UsageError(f"the setting is not JSON: {problem}") from None
    check_setting(setting)
    return setting


def check_setting(setting: dict[str, Any]) -> None:
    """Raise a UsageError for a field that is unknown, missing, of another type or out of range."""
    check_field("the setting", setting, FIELDS)
    for field, value in setting.items():
        known("field of the setting", field, FIELDS)
        check_field(f"the setting's {field}", value, FIELDS[field])
        if field in LEAST:
            check_least(field, value, LEAST[field])
    if missing := [field for field in FIELDS if field not in setting]:
        raise UsageError(f"the setting lacks `{missing[0]}`")
    if setting["size"] % 8:  # the largest factor of the autoencoders
        raise UsageError(f"the setting's size is {setting['size']}, not a multiple of 8")
    check_counts(setting)
    check_names(setting)


def check_counts(setting: dict[str, Any]) -> None:
    """Raise a UsageError unless datasets and encoders are known and their numbers positive."""
    members = {"images": ("dataset", own_data.list_datasets()), "encoders": ("encoder", MAPS)}
    for field, (kind, among) in members.items():
        for name, count in setting[field].items():
            known(kind, name, among)
            check_field(f"the setting's {field} of {name}", count, 1)
            check_least(f"{field} of {name}", count, 1)
    for name in setting["images"]:
        contract.dataset(name)
        check_images("the setting", name)
    check_least("number of images", sum(setting["images"].values()), SMALLEST)
    check_least("number of encoders", len(setting["encoders"]), 1)


def check_names(setting: dict[str, Any]) -> None:
    """Raise a UsageError for an unknown contrast, output, model or set of weights."""
    known("contrast", setting["contrast"], CONTRASTS)
    known("output of the judge", setting["judge_output"], OUTPUTS)
    for field, prefix in NETWORKS.items():
        contract.model(model := known(field, setting[field], registered("models")))
        there = PUBLISHED.keys() & {*source.literal(f"models.{model}", "WEIGHTS", ())}
        known(f"set of weights for {model}", setting[f"{prefix}weights"], {"none", *there})


def check_field(what: str, value: Any, example: Any) -> None:
    """Raise a UsageError for a value of another type than the example's."""
    if not isinstance(example, dict):
        check_type(what, value, example)
    elif not isinstance(value, dict):
        raise UsageError(f"{what} is {value!r}, not names with their values")


def check_least(what: str, value: float, least: float) -> None:
    """Raise a UsageError for a value below the least."""
    if value < least:
        raise UsageError(f"the setting's {what} is {value}, not at least {least}")


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
    from fedgrid.runtime import files

    found = Originals(**files.read_arrays(path, *Originals._fields))
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
