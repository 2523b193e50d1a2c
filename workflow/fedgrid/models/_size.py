"""The memory that a model takes: its weights, and what a pass keeps of one more sample.

    python -m fedgrid.models._size cnn '{"shape": [3, 32, 32], "classes": 10, "tokens": 0}'

It prints three numbers of megabytes as JSON: `weights`, and per sample `training` and `evaluation`.
`study/jobs.py` asks for them while Snakemake plans, in a process of its own, because the Snakefile
does not import torch. The model is made on torch's device "meta", which has shapes and no numbers,
so this takes no memory; a model whose code needs numbers is made on the CPU.
"""

import json
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from fedgrid import models

SAMPLES = 2  # of a batch: BatchNorm needs two


def main(name: str, inputs: str) -> None:
    """Print the sizes of a model with these inputs."""
    print(json.dumps(measure(name, **json.loads(inputs))))


def measure(name: str, shape: list[int], classes: int, tokens: int) -> dict[str, float]:
    """Return the megabytes of the weights, and of one sample in training and in evaluation.

    Sequences of tokens have `tokens` symbols. UsageError if the model's code fails.
    """
    try:
        return measure_on("meta", name, shape, classes, tokens)
    except Exception:
        return measure_on("cpu", name, shape, classes, tokens)


def measure_on(
    device: str, name: str, shape: list[int], classes: int, tokens: int
) -> dict[str, float]:
    """Return the same; all tensors are made on the device."""
    with torch.device(device):
        model = models.draw(name, tuple(shape), classes, tokens)
        x = torch.zeros(SAMPLES, *shape, dtype=torch.long if tokens else torch.float32)
    weights, kept = {*storages(model.state_dict())}, {}
    largest = watch(model)
    with saved_tensors_hooks(lambda tensor: kept.update(storages(tensor)) or tensor, lambda t: t):
        model.train()(x)
    activations = [kept[key].nbytes() for key in kept.keys() - weights]
    found = {
        "training": (sum(activations) + max(largest)) / SAMPLES,
        "evaluation": (x.nbytes + max(largest)) / SAMPLES,
        "weights": sum(tensor.nbytes for tensor in model.state_dict().values()),
    }
    return {key: count / 1e6 for key, count in found.items()}


def storages(tensors: object) -> dict[int, torch.UntypedStorage]:
    """Return what tensors keep their numbers in, once each, by its identity."""
    found = [one.untyped_storage() for one in tree_leaves(tensors) if isinstance(one, Tensor)]
    return {id(storage): storage for storage in found}


def watch(model: nn.Module) -> list[int]:
    """Return a list that gets the bytes of each layer's inputs and outputs in every pass."""
    sizes: list[int] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        sizes.append(sum(one.nbytes() for one in storages((inputs, output)).values()))

    for module in model.modules():
        if not [*module.children()]:
            module.register_forward_hook(note)
    return sizes


if __name__ == "__main__":
    main(*sys.argv[1:])
