"""FedSLS's guided encoder: how salient a client's images are to its model (algorithm 1).

Guided back-propagation passes a gradient through a ReLU only where the forward input and the
gradient are both positive (Springenberg et al., 2015). It is active for one forward pass as a mode
of torch's API. So it covers every call of a ReLU, in place or not, from a reused module or not,
without changes to the model, and it records convolutions in the order of the forward pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from fedgrid.engine.state import moved
from fedgrid.method import Model
from fedgrid.runtime.names import UsageError

TARGETS = ("label", "max", "sum")  # the scalar Y: the label's logit, the largest, or their sum
READINGS = ("A", "B")  # guided gradient times activation, or guided gradient alone
ROOTS = (False, True)  # the norm, or its root

_RELUS = {F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}
_CONVOLUTIONS = {torch.conv1d, torch.conv2d, torch.conv3d}


class _GuidedReLU(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        output = x.clamp(min=0)
        context.save_for_backward(output)
        return output

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (output,) = context.saved_tensors
        return gradient.clamp(min=0) * (output > 0)


class Guided(TorchFunctionMode):
    """While active, makes ReLUs guided and records the outputs of convolutions by name."""

    def __init__(self, model: Model):
        super().__init__()
        self.outputs: dict[str, Tensor] = {}
        self._names = {id(tensor): name for name, tensor in model.items()}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Intercept every call of torch's API."""
        if function in _RELUS:
            return _GuidedReLU.apply(arguments[0])
        output = function(*arguments, **(keywords or {}))
        if function in _CONVOLUTIONS:
            name = self._names[id(arguments[1])].removesuffix(".weight")
            self.outputs[f"{name}#{len(self.outputs)}"] = output  # a module may be called again
            return output.clone()  # the model may change it in place
        return output


def guided_gradients(
    architecture: nn.Module,
    model: Model,
    x: Tensor,
    y: Tensor | None,
    targets: tuple[str, ...] = TARGETS,
) -> tuple[dict[str, Tensor], dict[str, list[Tensor]]]:
    """Return convolutions' outputs (B, channels, h, w) by name, and by target their gradients.

    `architecture` must be in evaluation mode, so that gradients of different images do not mix;
    UsageError if its images are not independent even then. The last gradient of each list is that
    of the input x.
    """
    refuse_batch_statistics(architecture)
    x = x.detach().requires_grad_()
    with torch.enable_grad(), Guided(model) as guided:
        _, logits = functional_call(architecture, model, (x,))
    scores = {
        "label": lambda: logits.gather(1, cast(Tensor, y)[:, None]).sum(),
        "max": lambda: logits.amax(1).sum(),
        "sum": lambda: logits.sum(),
    }
    inputs = [*guided.outputs.values(), x]
    gradients = {
        target: list(torch.autograd.grad(scores[target](), inputs, retain_graph=True))
        for target in targets
    }
    return {name: output.detach() for name, output in guided.outputs.items()}, gradients


def refuse_batch_statistics(architecture: nn.Module) -> None:
    """Raise a UsageError if an image's outputs depend on the other images of its batch."""
    for name, module in architecture.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise UsageError(
                f"the saliency of an image cannot be encoded with this model: its {name} is a "
                "BatchNorm without running statistics, which mixes the images of a batch; choose "
                "a model with running statistics, such as resnet18"
            )


def contributions(
    architecture: nn.Module,
    model: Model,
    x: Tensor,
    y: Tensor | None,
    targets: tuple[str, ...] = TARGETS,
) -> dict[str, Tensor]:
    """Sum N_{i,l} over the images i of a batch: (targets, readings, roots) by convolution l.

    N is the L2 norm of the channel mean over the map (equations 4 to 6).
    """
    outputs, gradients = guided_gradients(architecture, model, x, y, targets)
    found = {}
    for layer, (name, output) in enumerate(outputs.items()):
        active = output.clamp(min=0)
        maps = [[g * active, g] for g in (gradients[target][layer] for target in targets)]
        norms = torch.stack([torch.stack([norm(m) for m in readings]) for readings in maps])
        found[name] = torch.stack([norms.sum(-1), norms.sqrt().sum(-1)], dim=-1).double()
    return found


def norm(maps: Tensor) -> Tensor:
    """Return the L2 norm over (h, w) of the channel mean: (B, channels, h, w) -> (B,)."""
    return maps.mean(1).flatten(1).norm(dim=1)


def stack(found: dict[str, Tensor]) -> Tensor:
    """Stack the results of `contributions` to (targets, readings, roots, L), in forward order."""
    return torch.stack(list(found.values()), dim=-1)


def main_path(architecture: Any, found: Iterable[str]) -> Tensor:
    """Return (L,): False for convolutions beside the main path, such as a residual block's 1x1."""
    return torch.tensor(
        [not any(part in name for part in architecture.side_paths) for name in found]
    )


@dataclass(frozen=True)
class Choice:
    """One reading of the paper's equations; see `methods/fedsls.py`."""

    tau: float = 0.5
    reading: str = "A"
    extra_root: bool = False
    target: str = "label"
    layers: str = "main"

    def __post_init__(self) -> None:
        options = {"reading": READINGS, "target": TARGETS, "layers": ("main", "all")}
        for name, among in options.items():
            if getattr(self, name) not in among:
                raise UsageError(f"{name} is one of {', '.join(among)}, not {getattr(self, name)}")

    def layered(
        self, contributions: Tensor, main: Tensor, targets: tuple[str, ...] = TARGETS
    ) -> Tensor:
        """Return w_l sum_i N_{i,l} (N, L) of contributions (targets, readings, roots, N, all L)."""
        where = targets.index(self.target), READINGS.index(self.reading), int(self.extra_root)
        chosen = contributions[where]
        if self.layers == "main":
            chosen = chosen[:, moved(np.flatnonzero(main.numpy(force=True)), chosen.device)]
        return chosen * self.tau ** torch.arange(chosen.shape[1], device=chosen.device)

    def weights(
        self, contributions: Tensor, main: Tensor, targets: tuple[str, ...] = TARGETS
    ) -> Tensor:
        """Return R_k (N,), equation 8."""
        return self.layered(contributions, main, targets).sum(1)
