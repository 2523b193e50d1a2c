"""Mean and standard deviation of the pixels of each channel, or of floats of one's own."""

import numpy as np

AT_ONCE = 4096  # images whose pixels are counted at once: numpy copies them to int64


def measured(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel of uint8 images, scaled to [0, 1]."""
    if images.dtype != np.uint8:
        return of_floats(images)
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in np.moveaxis(images, 1, 0):
        parts = np.array_split(channel, len(channel) // AT_ONCE + 1)
        share = sum(np.bincount(part.ravel(), minlength=256) for part in parts) / channel.size
        means.append(float(share @ values))
        deviations.append(float(np.sqrt(share @ (values - means[-1]) ** 2)))
    return means, deviations


def of_floats(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the same of floats, divided by 255 as `augment.normalise` divides images.

    The deviation of a channel that is constant is 1 of 255.
    """
    axes = (0, 2, 3)
    means = images.mean(axes, np.float64)
    deviations = np.sqrt(images.var(axes, np.float64))
    deviations = np.where(deviations > 0, deviations, 1.0)
    return significant(means / 255), significant(deviations / 255)


def significant(values: np.ndarray) -> list[float]:
    """Return numbers with nine significant digits, which are those of every machine."""
    return [float(f"{value:.9g}") for value in values]


def rounded(images: np.ndarray) -> list[list[float]]:
    """Return the same with eight digits, which are those of every machine, to normalise with.

    The deviation of a constant channel is 1, because normalising divides by it.
    """
    if images.dtype != np.uint8:
        return [*measured(images)]
    means, deviations = measured(images)
    return [[round(value, 8) for value in means], [round(one, 8) or 1.0 for one in deviations]]
