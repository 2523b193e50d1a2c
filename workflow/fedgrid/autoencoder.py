"""The conventional encoder of FedSL: a small convolutional autoencoder that shrinks images f times.

The paper cites latent diffusion's notation, z = E(x) with f = H/h = 2^m, and gives no architecture:
here m stride-2 3x3 convolutions of width 32 and a 1x1 convolution to four latent channels, mirrored
by transposed convolutions, trained on mean squared error.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FACTORS = (2, 4, 8)
ENCODERS = ("client", "pooled", "area")
LATENT, WIDTH = 4, 32
LUMINANCE = (0.299, 0.587, 0.114)


def autoencoder(channels: int, f: int) -> nn.Sequential:
    """Encoder and decoder; images (B, channels, H, W) with H and W multiples of f."""
    halvings = f.bit_length() - 1
    down, up = [], []
    for i in range(halvings):
        down += [nn.Conv2d(WIDTH if i else channels, WIDTH, 3, stride=2, padding=1), nn.ReLU()]
        out = WIDTH if i < halvings - 1 else channels
        up += [nn.ReLU(), nn.ConvTranspose2d(WIDTH, out, 4, stride=2, padding=1)]
    encoder = nn.Sequential(*down, nn.Conv2d(WIDTH, LATENT, 1))
    return nn.Sequential(encoder, nn.Sequential(nn.Conv2d(LATENT, WIDTH, 1), *up))


def train(model: nn.Sequential, batches: Iterable[Tensor], lr: float, momentum: float) -> None:
    """Minimise the mean squared error of reconstruction, in place."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for x in batches:
        optimiser.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimiser.step()


@torch.no_grad()
def norms(latent: Tensor) -> Tensor:
    """sum_i || mean_c z_i ||_2 over the images of z (B, channels, h, w)."""
    return latent.mean(1).flatten(1).norm(dim=1).sum().double()


def area(images: Tensor, f: int) -> Tensor:
    """Grey images (B, 1, H/f, W/f) of images (B, channels, H, W) in [0, 1], by averaging."""
    if images.shape[1] == 3:
        images = images * images.new_tensor(LUMINANCE)[:, None, None] * 3
    return F.avg_pool2d(images.mean(1, keepdim=True), f)
