"""Models, one file each: `models/resnet18.py` is the model `resnet18`.

A file has `body(shape) -> (module, width)`: from images (B, *shape) to features (B, width). The
linear classifier on top is the same for all models, so every model returns (features, logits), and
the names of the classifier's parameters begin with `head.`. A file may have literal constants:

    MEGABYTES      size of its parameters in single precision, to estimate a job's memory
    WEIGHTS        name -> torchvision's name of published weights
    SIDE_PATHS     names of convolutions beside the main path, such as ("downsample",)
    CHANNELS_LAST  True if that layout is faster on CPUs
    INDEPENDENT    False if an image's output depends on the other images of its batch, as with
                   BatchNorm without running statistics
"""

from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from fedgrid.runtime import contract, source
from fedgrid.runtime.files import whole
from fedgrid.runtime.names import UsageError, known, registered, shown


class Classifier(nn.Module):
    """A body and a linear head: images (B, channels, height, width) -> features, logits."""

    def __init__(self, body: nn.Module, width: int, classes: int):
        super().__init__()
        self.body, self.head = body, nn.Linear(width, classes)
        self.side_paths: tuple[str, ...] = ()  # names of convolutions beside the main path
        self.layout = torch.contiguous_format  # the fastest layout of images and weights

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, width) and logits (B, K)."""
        features = self.body(x)
        return features, self.head(features)


def build(
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    weights: Path | None = None,
    seed: int = 0,
    head: bool = False,
) -> Classifier:
    """Return a model with weights drawn from `seed`, its body's read from the file `weights`.

    With `head`, the classifier is read too; the file must have the same number of classes. Batch
    counters are removed, because BatchNorm with a fixed momentum does not read them.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        file = contract.imported(f"models.{known('model', name, registered('models'))}")
        model = Classifier(*given(name, file, shape), classes)
    model.side_paths = getattr(file, "SIDE_PATHS", ())
    if getattr(file, "CHANNELS_LAST", False):
        model.layout = torch.channels_last
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.num_batches_tracked = None
    if weights is not None:
        load(model, weights, head)
    return model


def given(name: str, file: ModuleType, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return the body of a model's file; UsageError if the file's code fails."""
    module = f"models.{name}"
    made = contract.called(module, "`body`", lambda: file.body(shape))
    if not (isinstance(made, tuple) and [*map(type, made[1:])] == [int]):
        said = f"`body` gives {shown(repr(made))}, not a module and the width of its features"
        raise UsageError(f"{source.file(module)}: {said}")
    return made


def batch_norm(channels: int) -> nn.Module:
    """Return a BatchNorm for bodies that always uses the statistics of the batch."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


def headless(resnet: nn.Module, channels: int) -> nn.Module:
    """Return torchvision's ResNet without its classifier, for images with these channels.

    With three channels the first convolution is the original one, as published weights require;
    otherwise it is replaced, and drawn as torchvision draws the original.
    """
    if channels != 3:
        of = resnet.conv1
        shape = {"kernel_size": of.kernel_size, "stride": of.stride, "padding": of.padding}
        resnet.conv1 = nn.Conv2d(channels, of.out_channels, **shape, bias=False)
        nn.init.kaiming_normal_(resnet.conv1.weight, mode="fan_out", nonlinearity="relu")
    resnet.fc = nn.Identity()
    return resnet


def load(model: Classifier, path: Path, head: bool = False) -> None:
    """Copy weights from a .safetensors or .pth file to the body, and with `head` to the head."""
    found = {n.removeprefix("body."): w for n, w in read_weights(path).items()}
    wanted = model.body.state_dict()
    if head:
        wanted |= {n: w for n, w in model.state_dict().items() if n.startswith("head.")}
    if missing := sorted(wanted.keys() - found.keys()):
        raise UsageError(f"{path} lacks `{missing[0]}`: these are not weights of this model")
    for name, tensor in wanted.items():
        if tensor.shape != found[name].shape:
            shapes = tuple(found[name].shape), tuple(tensor.shape)
            raise UsageError(f"{path}: the shape of `{name}` is {shapes[0]}, not {shapes[1]}")
        if not found[name].isfinite().all():
            raise UsageError(f"{path}: `{name}` has numbers that are not finite")
        tensor.copy_(found[name])  # load_state_dict would require the removed counters


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return a state dict; pickles are read with weights_only, so they cannot run code."""
    if not Path(path).is_file():
        raise UsageError(f"the weights {path} do not exist")
    with whole(f"the file of weights {path}"):
        if Path(path).suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
        if not all(isinstance(tensor, Tensor) for tensor in dict(found).values()):
            raise TypeError("it holds more than tensors")
        return dict(found)
