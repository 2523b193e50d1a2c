"""Mean and standard deviation of the pixels of each channel, or of floats of one's own.

Images are read in parts, because numpy copies what it counts or squares to numbers of 8 bytes.
"""

import numpy as np

from fedgrid.datasets._stream import parts_of


def measured(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel of uint8 images, scaled to [0, 1]."""
    if images.dtype != np.uint8:
        return of_floats(images)
    counts = np.zeros((images.shape[1], 256), np.int64)  # how often a channel has each value
    for part in parts_of(images):
        for channel, of in enumerate(np.moveaxis(part, 1, 0)):
            counts[channel] += np.bincount(of.ravel(), minlength=256)
    values, means, deviations = np.arange(256) / 255, [], []
    for share in counts / counts.sum(1, keepdims=True):
        means.append(float(share @ values))
        deviations.append(float(np.sqrt(share @ (values - means[-1]) ** 2)))
    return means, deviations


def of_floats(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the same of floats, divided by 255 as `augment.normalise` divides images.

    The deviation of a channel that is constant is 1 of 255. Numbers have nine significant digits,
    which are those of every machine.
    """
    axes = (0, 2, 3)
    means = images.mean(axes, np.float64, keepdims=True)
    squares = sum(((part - means) ** 2).sum(axes) for part in parts_of(images))
    deviations = np.sqrt(squares / (images.size // images.shape[1]))
    deviations = np.where(deviations > 0, deviations, 1.0)
    both = (means.ravel() / 255, deviations / 255)
    mean, deviation = ([float(f"{value:.9g}") for value in values] for values in both)
    return mean, deviation


def rounded(images: np.ndarray) -> list[list[float]]:
    """Return the same with eight digits, which are those of every machine, to normalise with.

    The deviation of a constant channel is 1, because normalising divides by it.
    """
    means, deviations = measured(images)
    if images.dtype != np.uint8:
        return [means, deviations]
    return [[round(value, 8) for value in means], [round(one, 8) or 1.0 for one in deviations]]
