"""Models, one file each: `models/resnet18.py` is the model `resnet18`.

A file has `body(shape) -> (module, width)`: from inputs (B, *shape) to features (B, width). The
linear classifier on top is the same for all models, so every model returns (features, logits), and
the names of the classifier's parameters begin with `head.`. A file may have literal constants:

    WEIGHTS        name -> torchvision's name of published weights
    SIDE_PATHS     names of convolutions beside the main path, such as ("downsample",)
    CHANNELS_LAST  True if that layout is faster on CPUs
    INDEPENDENT    False if an image's output depends on the other images of its batch, as with
                   BatchNorm without running statistics
    CONVOLUTIONS   False if it has none, so that there is no map to encode
    TOKENS         True if inputs are tokens, (B, length): the function is `body(shape, tokens)`,
                   where `tokens` is the number of symbols
    BLOCKS         the model's blocks from input to output, which methods can keep private one by
                   one: the names of the first child of each block in the body, an nn.Sequential,
                   and at last "head"
    ENCODER        number of blocks that are the encoder; those after it are the classifier

It may have `initialise(model)`, which draws the initial weights of the whole model in another way.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fedgrid.models._network import check_network
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.files import whole
from fedgrid.runtime.names import UsageError, known, registered, shown
from fedgrid.runtime.places import search

__path__ = search("models")  # with the folder of one's own paper


class Classifier(nn.Module):
    """A body and a linear head: inputs (B, *shape) -> features, logits."""

    def __init__(self, body: nn.Module, width: int, classes: int):
        super().__init__()
        self.body, self.head, self.width = body, nn.Linear(width, classes), width
        self.side_paths: tuple[str, ...] = ()  # names of convolutions beside the main path
        self.layout = torch.contiguous_format  # the fastest layout of images and weights
        self.blocks: tuple[str, ...] = ()  # the file's BLOCKS
        self.encoder = 0  # the file's ENCODER
        self.draw: Callable[[], Classifier] | None = None  # one more of its kind, with new weights

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, width) and logits (B, K)."""
        features = self.body(x)
        return features, self.head(features)


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    weights: Path | None = None,
    seed: int = 0,
    head: bool = False,
    tokens: int = 0,
) -> Classifier:
    """Return a model with weights drawn from `seed`, its body's read from the file `weights`.

    With `head`, the classifier is read too; the file must have the same number of classes. `tokens`
    is the number of symbols of inputs that are tokens.
    """
    contract.imported(f"models.{known('model', name, registered('models'))}")  # before the seed
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = draw(name, shape, classes, tokens)
        inputs = torch.zeros(2, *shape, dtype=torch.long if tokens else torch.get_default_dtype())
        check_network(source.file(f"models.{name}"), model, inputs, model.width)
    if weights is not None:
        load(model, weights, head)
    return model


def draw(name: str, shape: tuple[int, ...], classes: int, tokens: int) -> Classifier:
    """Return a model with weights drawn from torch's generator.

    Batch counters are removed, because BatchNorm with a fixed momentum does not read them.
    """
    file = contract.imported(f"models.{known('model', name, registered('models'))}")
    check_inputs(name, file, tokens)
    model = Classifier(*given(name, file, shape, tokens), classes)
    model.draw = partial(draw, name, shape, classes, tokens)
    model.side_paths = getattr(file, "SIDE_PATHS", ())
    model.blocks, model.encoder = getattr(file, "BLOCKS", ()), getattr(file, "ENCODER", 0)
    check_blocks(name, model)
    if getattr(file, "CHANNELS_LAST", False):
        model.layout = torch.channels_last
    if hasattr(file, "initialise"):
        contract.called(f"models.{name}", "`initialise`", lambda: file.initialise(model))
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.num_batches_tracked = None
    return model


def given(
    name: str, file: ModuleType, shape: tuple[int, ...], tokens: int
) -> tuple[nn.Module, int]:
    """Return the body of a model's file; UsageError if the file's code fails."""
    module, more = f"models.{name}", (tokens,) if getattr(file, "TOKENS", False) else ()
    made = contract.called(module, "`body`", lambda: file.body(shape, *more))
    if not (isinstance(made, tuple) and [*map(type, made[1:])] == [int] and made[1] > 0):
        said = f"`body` gives {shown(repr(made))}, not a module and the width of its features"
        raise UsageError(f"{source.file(module)}: {said}")
    return made


def check_inputs(name: str, file: ModuleType, tokens: int) -> None:
    """Refuse images for a model that reads tokens, and tokens for one that does not."""
    if bool(tokens) != getattr(file, "TOKENS", False):
        inputs = ("images", "tokens") if tokens else ("tokens", "images")
        raise UsageError(
            f"the model {name} takes {inputs[0]}, and the inputs are {inputs[1]}: choose another "
            "model or another dataset"
        )


def check_blocks(name: str, model: Classifier) -> None:
    """Refuse blocks that are not children of the body in order, from the first one on."""
    if not model.blocks:
        return
    where = f"{source.file(f'models.{name}')}: BLOCKS"
    if not isinstance(model.body, nn.Sequential):
        kind = type(model.body).__name__
        raise UsageError(f"{where} needs a body that is an nn.Sequential, and `body` gives {kind}")
    children = [child for child, _ in model.body.named_children()]
    *starts, head = model.blocks
    in_order = [child for child in children if child in starts]
    right = starts == in_order and starts[:1] == children[:1]
    if head != "head" or "head" in children or not right:
        raise UsageError(
            f"{where} is {shown(repr(model.blocks))}, not the first child of each block, in order "
            'and without a gap at the start, and then "head", which no child may be called: the '
            f"body has the children {shown(', '.join(children))}"
        )


def batch_norm(channels: int) -> nn.Module:
    """Return a BatchNorm for bodies that always uses the statistics of the batch."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


def headless(resnet: Any, channels: int) -> nn.Module:
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
