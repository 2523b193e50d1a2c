r"""Measure the costs of encoding saliency: FedSLS, section 3.4, "Tractability of Optimization".

    python -m fedgrid.experiments.costs \
        '{"model": "resnet18", "dataset": "cifar10", "images": 1000, "chunk": 64}' --out costs.csv

Writes a row per number: kind, layer, name, value, unit. The kinds `main` and `side` are the
convolutions, with the encoder's order and names, and `linear` the other layers that multiply: their
shapes and the multiply-accumulates (MACs) of one image. `data` describes the encoded images.
`measured` are the seconds and processor seconds (the fewest of a few repeats) and the peak memory
of a plain forward pass over the images and of the guided encoder, for one target and for all.
Images and weights are random: nothing is downloaded.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid.runtime import cli, files, records
from fedgrid.runtime.code import contract, own_data, source
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.study.checks import check_images
from fedgrid.study.command import add_machine
from fedgrid.study.reading import check_schema

COLUMNS = ["model", "dataset", "kind", "layer", "name", "value", "unit"]
REPEATS = 3  # interleaved, so that other load on the machine affects all passes equally
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """The costs of one pass over the images."""

    seconds: float
    cpu_seconds: float  # of this process: other load hardly changes it
    peak_memory: int  # bytes, beyond those in use before
    exact: bool  # False: the peak is a lower bound


def main(arguments: list[str] | None = None) -> records.Work:
    parser = add_machine(cli.parser(__doc__))
    parser.add_argument("setting", help="model, dataset, images and chunk as JSON")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    setting = read(asked.setting)
    table = costs(setting, asked.device, asked.threads)
    with files.replacing(asked.out) as temporary:
        table.to_csv(temporary, index=False, float_format="%.10g")
    log.info("%s: %d images of %s", asked.out, setting["images"], setting["dataset"])
    code = ["experiments.costs", f"models.{setting['model']}"]
    return records.Work([asked.out], code=code)


def read(text: str) -> dict:
    try:
        setting = dict(json.loads(text))
    except (ValueError, TypeError) as problem:
        raise UsageError(f"the setting is not a JSON object: {problem}") from None
    check(setting)
    return setting


def check(setting: dict) -> None:
    """Raise a UsageError for a field that is unknown, missing or wrong."""
    check_schema("the setting", setting, "study", "costs")
    contract.model(known("model", setting["model"], registered("models")))
    contract.dataset(known("dataset", setting["dataset"], own_data.list_datasets()))
    check_images("the setting", setting["dataset"])
    if source.literal(f"datasets.{setting['dataset']}", "TRAIN") is None:
        raise UsageError(
            f"the setting's dataset {setting['dataset']} has no `TRAIN` in its file, which the "
            "costs of the whole training set need: choose another dataset"
        )


def costs(setting: dict, device: str, threads: int):
    """Return all rows of a setting as a table with COLUMNS."""
    import pandas as pd

    from fedgrid import models
    from fedgrid.engine.device import prepare

    where = prepare(device, threads, "fp32")
    data = f"datasets.{setting['dataset']}"
    shape, classes = source.literal(data, "SHAPE"), source.literal(data, "CLASSES")
    model = models.build(setting["model"], shape, classes).to(where).eval()
    train = source.literal(data, "TRAIN")
    rows = described(setting, shape, classes, train) + counted(model, shape, setting["dataset"])
    rows += measured(model, shape, classes, setting)
    rows.append(("measured", "machine", "threads", threads, "threads"))
    rows.append(("measured", "machine", "cuda", int(where.type == "cuda"), "0 or 1"))
    names = (setting["model"], setting["dataset"])
    return pd.DataFrame([(*names, *row) for row in rows], columns=COLUMNS)


def described(setting: dict, shape: tuple[int, ...], classes: int, train: int) -> list[tuple]:
    """Return rows about an image, the encoded images and the training set."""
    channels, height, width = shape
    return [
        ("data", "image", "elements", channels * height * width, "numbers"),
        ("data", "image", "classes", classes, "classes"),
        ("data", "training set", "images", train, "images"),
        ("data", "encoded", "images", setting["images"], "images"),
        ("data", "encoded", "chunk", setting["chunk"], "images"),
    ]


# -- counted --------------------------------------------------------------------------------------


def counted(model, shape: tuple[int, ...], what: str = "the dataset") -> list[tuple]:
    """Return rows of every layer that multiplies, for one image (channels, height, width).

    UsageError if the model cannot take images of this shape.
    """
    from torch import nn

    from fedgrid.encoders import guided

    outputs, inputs = one_image(model, shape, what)
    rows = []
    for (name, output), size, main in zip(
        outputs.items(), inputs, guided.main_path(model, outputs).tolist(), strict=True
    ):
        weight = model.get_parameter(f"{name.partition('#')[0]}.weight")
        kind, sizes = "main" if main else "side", convolution(output[0], size, weight)
        rows += [(kind, name, of, *sizes[of]) for of in sizes]
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            rows.append(("linear", name, "elements", layer.out_features, "numbers"))
            rows.append(("linear", name, "macs", layer.weight.numel(), "MAC"))
    return rows


def convolution(output, inputs: int, weight) -> dict[str, tuple[int, str]]:
    """Return numbers and units of a convolution: output (channels, h, w), weight (out, in, ...)."""
    channels, height, width = output.shape
    return {
        "channels": (channels, "channels"),
        "height": (height, "pixels"),
        "width": (width, "pixels"),
        "elements": (output.numel(), "numbers"),
        "input_elements": (inputs, "numbers"),
        "macs": (output.numel() * weight[0].numel(), "MAC"),  # a kernel per number of the output
    }


def one_image(model, shape: tuple[int, ...], what: str) -> tuple[dict, list[int]]:
    """Return outputs of the convolutions by the encoder's names, and the sizes of their inputs."""
    import torch
    from torch import nn

    from fedgrid.encoders import guided

    sizes, device = [], next(model.parameters()).device
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0][0].numel()))
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    try:
        label = torch.zeros(1, dtype=torch.long, device=device)
        image = torch.zeros(1, *shape, device=device)
        outputs, _ = guided.guided_gradients(model, model.state_dict(), image, label, ())
    except RuntimeError as problem:
        size = "x".join(map(str, shape))
        raise UsageError(f"the model does not take images of {what}, {size}: {problem}") from None
    finally:
        for hook in hooks:
            hook.remove()
    return outputs, sizes


# -- measured -------------------------------------------------------------------------------------


def measured(model, shape: tuple[int, ...], classes: int, setting: dict) -> list[tuple]:
    """Return rows of every pass over random images: the fewest seconds, the highest peak."""
    import torch

    device = next(model.parameters()).device
    random = torch.Generator().manual_seed(0)
    x = torch.randn(setting["images"], *shape, generator=random).to(device)
    y = torch.randint(classes, (setting["images"],), generator=random).to(device)
    found: dict[str, list[Measured]] = {name: [] for name in passes(model)}
    for _ in range(REPEATS):
        for name, work in passes(model).items():
            found[name].append(metered(work, x, y, setting["chunk"]))
    exact = all(one.exact for repeats in found.values() for one in repeats)
    rows: list[tuple[Any, ...]] = [("measured", "machine", "exact_peak", int(exact), "0 or 1")]
    for name, repeats in found.items():
        rows += [
            ("measured", name, "seconds", min(one.seconds for one in repeats), "s"),
            ("measured", name, "cpu_seconds", min(one.cpu_seconds for one in repeats), "s"),
            ("measured", name, "peak_memory", max(one.peak_memory for one in repeats), "B"),
        ]
    return rows


def passes(model) -> dict[str, Callable]:
    """Return the measured passes by name: functions of images (B, ...) and labels (B,)."""
    import torch
    from torch.func import functional_call

    from fedgrid.encoders import guided

    state = model.state_dict()

    def forward(x, y):
        with torch.no_grad():
            return functional_call(model, state, (x,))

    return {
        "forward pass": forward,
        "encoder, one target": lambda x, y: guided.contributions(model, state, x, y, ("label",)),
        "encoder, all targets": lambda x, y: guided.contributions(model, state, x, y),
    }


def metered(work: Callable, x, y, chunk: int) -> Measured:
    """Return the costs of `work` over chunks of images x and labels y."""
    from time import perf_counter, process_time

    work(x[:1], y[:1])  # warms up: libraries load and choose their kernels
    meter = (Accelerator if x.is_cuda else Process)()
    began, cpu = perf_counter(), process_time()
    for images, labels in zip(x.split(chunk), y.split(chunk), strict=True):
        work(images, labels)
    peak = meter.above()  # waits for a GPU to finish
    return Measured(perf_counter() - began, process_time() - cpu, peak, meter.exact)


class Process:
    """Peak resident memory of this process since the meter was made, beyond that in use then.

    Linux lets a process reset its high-water mark. Elsewhere the mark covers the whole past, and
    gives only a lower bound of the peak. Memory that the allocator keeps between two chunks is
    resident, and counts.
    """

    def __init__(self):
        give_back()
        self.exact = reset_mark()
        self.before = self.mark()

    def mark(self) -> int:
        if self.exact:
            line = next(s for s in STATUS.read_text().splitlines() if s.startswith("VmHWM"))
            return int(line.split()[1]) * 1024
        import resource
        import sys

        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return highest if sys.platform == "darwin" else highest * 1024

    def above(self) -> int:
        return self.mark() - self.before


class Accelerator:
    """Peak memory allocated on a GPU since the meter was made, beyond that in use then."""

    exact = True

    def __init__(self):
        import torch

        self.cuda = torch.cuda
        self.cuda.synchronize()
        self.cuda.reset_peak_memory_stats()
        self.before = self.cuda.memory_allocated()

    def above(self) -> int:
        """Return the peak in bytes, after all queued work."""
        self.cuda.synchronize()
        return self.cuda.max_memory_allocated() - self.before


def reset_mark() -> bool:
    """Reset the high-water mark to the memory in use; return whether the system allows it."""
    try:
        RESET.write_text("5")  # proc(5): "reset the peak resident set size"
        return "VmHWM" in STATUS.read_text()
    except OSError:
        return False


def give_back() -> None:
    """Return freed memory to the system; otherwise reused memory would hide the next peak."""
    import ctypes

    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # only in glibc
        trim(0)


if __name__ == "__main__":
    cli.run(main)
