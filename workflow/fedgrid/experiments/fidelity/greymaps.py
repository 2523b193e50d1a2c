"""Grey maps of one size and contrast, in 8 bit, so that they can be compared."""

CHUNK = 32  # images at a time


def resize(maps, size: int):
    """Resize maps (n, channels, h, w) float to (n, channels, size, size), bilinear."""
    import torch.nn.functional as F

    shrinks = max(maps.shape[-2:]) > size
    return F.interpolate(
        maps, (size, size), mode="bilinear", align_corners=False, antialias=shrinks
    )


def luminance(images):
    """Return .299 red + .587 green + .114 blue of images (n, 3, h, w) as (n, h, w)."""
    from fedgrid.encoders.autoencoder import LUMINANCE

    return sum(weight * images[:, channel] for channel, weight in enumerate(LUMINANCE))


def minmax(maps):
    """Shift and scale each map (n, h, w) to run from 0 to 1; a constant map becomes 0.5."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    flat = constant(low, high)
    return ((maps - low) / (high - low).masked_fill(flat, 1)).masked_fill(flat, 0.5)


def moments(maps):
    """Scale maps (n, h, w) to mean 0.5, deviation 0.2, clipped to [0, 1]; a constant map to 0.5."""
    flat = constant(maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True))
    deviation = maps.std((1, 2), keepdim=True, correction=0).masked_fill(flat, 1)
    scaled = 0.5 + 0.2 * (maps - maps.mean((1, 2), keepdim=True)) / deviation
    return scaled.clamp(0, 1).masked_fill(flat, 0.5)


def constant(low, high):
    """Whether a map's least and largest values differ by no more than float32 rounding."""
    return high - low <= 1e-6 * low.abs().maximum(high.abs())


CONTRASTS = {"minmax": minmax, "moments": moments}


def finish(maps, size: int, contrast: str):
    """Resize, normalise and round maps (n, h, w) float to (n, size, size) uint8."""

    def some(part):
        normalised = CONTRASTS[contrast](resize(part[:, None], size)[:, 0].double())
        return ((255 * normalised).round().byte(),)

    return in_chunks(some, maps)[0]


def in_chunks(function, rows) -> list:
    """Call `function` on CHUNK rows at a time, and join the parts of its tuples along the rows."""
    import torch

    parts = [function(rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]
