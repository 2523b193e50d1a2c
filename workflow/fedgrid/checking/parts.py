"""Try a dataset, a partition or a model, and say what is wrong with it, as `method.py` does.

A dataset is decoded in a temporary folder. A model and a partition are tried with the samples of a
dataset. A model trains some rounds of FedAvg in both backends, on a few of the samples.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from fedgrid import models
from fedgrid.checking import method, small
from fedgrid.checking.method import CLOSE, ROUNDS, SIZES, Findings
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.federation import schedule
from fedgrid.federation.federation import Federation, per_channel
from fedgrid.federation.members import Partition, fits
from fedgrid.federation.protocols import changed_protocol
from fedgrid.federation.stored import Data, open_data, read_statistics
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.models._size import measure
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.resolved import Run
from fedgrid.stages.data import decode
from fedgrid.stages.partition import draw
from fedgrid.study import checks
from fedgrid.study.protocol import PROTOCOL

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@contextmanager
def opened(dataset: str, root: Path) -> Iterator[Data]:
    """Yield a dataset that is decoded in a temporary folder; warnings say what is odd about it."""
    contract.dataset(dataset)
    with TemporaryDirectory(prefix="fedgrid.") as folder:
        decode(dataset, root, out := Path(folder, dataset))
        yield open_data(out)


# -- datasets -------------------------------------------------------------------------------------


def check_dataset(name: str, root: Path) -> Findings:
    findings = Findings()
    with opened(name, root) as data:
        findings.facts = describe_data(data)
        if not source.literal(f"datasets.{name}", "HASHES", ()):  # which a reading is held to
            with opened(name, root) as again:
                if again.meta["sha256"] != data.meta["sha256"]:
                    findings.problems.append("a second reading gives other samples or labels")
    return findings


def describe_data(data: Data) -> dict[str, str]:
    kind = f"tokens below {data.tokens}" if data.tokens else data.train_images.dtype
    facts = {"a sample": f"{kind} {data.shape}", "classes": str(data.classes)}
    for part, labels in {"train": data.train_labels, "test": data.test_labels}.items():
        counts = np.bincount(labels)
        facts[part] = f"{counts.sum()} samples, {spread(counts)} of a class"
    if data.train_writers is not None:
        _, each = np.unique(data.train_writers, return_counts=True)
        facts["clients"] = f"{len(each)}, with {spread(each)} training samples"
    for name, (mean, std) in data.meta["statistics"].items():
        facts[name] = f"mean {rounded(mean)}, deviation {rounded(std)}"
    return facts


def spread(counts: np.ndarray) -> str:
    return f"{counts.min()} to {counts.max()} (median {np.median(counts):g})"


def rounded(values: Any) -> str:
    """Write some of the statistics of channels in units of the samples, of which 255 are 1."""
    return ", ".join(f"{255 * value:.4g}" for value in np.ravel(values)[:4])


# -- partitions -----------------------------------------------------------------------------------


def check_partition(name: str, run: Run, root: Path) -> Findings:
    """Draw the partition of a resolved run twice."""
    checks.check_partition(name, run["dataset"])
    with opened(run["dataset"], root) as data:
        made, again = draw(run, data), draw(run, data)
        findings = Findings(facts=describe_partition(made, run))
        if not fits(made, data.train_labels, data.classes, len(data.test_labels)):
            findings.problems.append(
                "not every training sample is in one place of one client, or `counts` are others"
            )
        if not same(made, again):
            findings.problems.append("a second draw with the same seed gives another partition")
    return findings


def describe_partition(made: Partition, run: Run) -> dict[str, str]:
    sizes = made.counts.sum(1)
    facts = {"clients": str(len(sizes)), "samples each": spread(sizes)}
    facts["classes each"] = spread((made.counts > 0).sum(1))
    idle = schedule.count_idle(sizes.tolist(), run["protocol"])
    return facts | ({"never train": f"{idle} clients"} if idle else {})


def same(one: Partition, other: Partition) -> bool:
    as_many = len(one.members) == len(other.members)
    return as_many and all(map(np.array_equal, one.members, other.members))


# -- models ---------------------------------------------------------------------------------------


def check_model(name: str, dataset: str, root: Path) -> Findings:
    checks.check_tokens(f"model `{name}`", PROTOCOL | {"model": name, "augment": []}, dataset)
    contract.model(name)
    with opened(dataset, root) as data:
        made = partial(models.build, name, data.shape, data.classes, tokens=data.tokens)
        findings = Findings(facts=describe_model(name, made(), data))
        findings.problems = [*judge_model(name, made, few(data))]
        findings.problems += compare_backends(made, few(data), findings.facts)
    return findings


def describe_model(name: str, model: Classifier, data: Data) -> dict[str, str]:
    """Return what a model is made of; its memory is that of single precision."""
    size = measure(name, [*data.shape], data.classes, data.tokens)
    facts = {
        "parameters": f"{sum(one.numel() for one in model.parameters()):,}",
        "features": str(model.width),
        "memory": f"{size['weights']:.3g} MB, and {size['training']:.3g} MB per sample in training",
    }
    return facts | ({"blocks": ", ".join(model.blocks)} if model.blocks else {})


def judge_model(name: str, made: Callable[..., Classifier], data: Federation) -> Iterator[str]:
    """Yield a sentence for weights that no seed gives, and for a constant that is not true."""
    one, again, other = (made(seed=seed).state_dict() for seed in (0, 0, 1))
    if not all(torch.equal(tensor, again[key]) for key, tensor in one.items()):
        yield "the same seed gives other initial weights: draw them by torch's generator"
    drawn = [key for key, tensor in one.items() if key.startswith("body.") and tensor.dim() > 1]
    if drawn and all(torch.equal(one[key], other[key]) for key in drawn):
        yield "another seed gives the same initial weights: draw them by torch's generator"
    has = any(isinstance(module, CONVOLUTIONS) for module in made().modules())
    if not has and checks.has_maps(name):
        yield "it has no convolutions: write `CONVOLUTIONS = False` into its file"
    if mixes(made().double(), data) and source.literal(f"models.{name}", "INDEPENDENT", True):
        yield (
            "in evaluation an image's output depends on the other images of its batch: write "
            "`INDEPENDENT = False` into its file"
        )


def mixes(model: Classifier, data: Federation) -> bool:
    """Whether in evaluation the output for a sample changes with the other one of its batch."""
    model.eval()
    x = data.images[:3].long() if data.tokens else data.images[:3].double() / 255
    with torch.no_grad():
        same, one, other = (model(x[[0, of]])[1][0] for of in (1, 1, 2))
    return torch.equal(same, one) and not torch.allclose(one, other, rtol=CLOSE)  # it may draw


def few(data: Data) -> Federation:
    """Return some training samples, dealt out to clients of the sizes SIZES."""
    ids = np.linspace(0, len(data.train_labels) - 1, sum(SIZES)).astype(int)
    arrays = data.train_images[ids], data.train_labels[ids]
    parts = [torch.from_numpy(np.array(one)).split(SIZES) for one in arrays]
    mean, std = (
        per_channel(one, torch.float64, torch.device("cpu"))
        for one in read_statistics(data, "standard", Path(data.meta["dataset"]))
    )
    made = small.federated([*zip(*parts, strict=True)], data.classes, scale=1)
    return replace(made, mean=mean, std=std, tokens=data.tokens)


def compare_backends(
    made: Callable[..., Classifier], data: Federation, facts: dict[str, str]
) -> Iterator[str]:
    """Yield a sentence if FedAvg fails with a model, or is another one in the other backend."""
    try:
        first = play("loop", made, data)
        if method.drew_numbers():
            facts["random numbers"] = "the network draws some, so backends are not compared"
            return
        second = play("stacked", made, data)
    except Exception as problem:
        yield f"a run of FedAvg fails: {method.describe_problem(problem)}"
        return
    if not all(tensor.isfinite().all() for tensor in first.server.values()):
        yield f"after {ROUNDS} rounds of FedAvg it has numbers that are not finite"
    elif place := method.difference(second, first, CLOSE):
        yield f"the backend stacked gives another model than loop: they differ in {place}"


def play(backend: str, made: Callable[..., Classifier], data: Federation) -> RunState:
    """Return the server's model after some rounds of FedAvg."""
    protocol = changed_protocol(PROTOCOL, method.SETTING | {"client_test": 0.0})
    engine = Engine(lambda seed: made(seed=seed).double(), Method(), protocol, data, backend)
    state = engine.start(0)
    for _ in range(ROUNDS):
        state = engine.round(state)
    return RunState(state.server, {})
