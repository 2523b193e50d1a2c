"""One picture file as pixels of 8 bits, and what these pixels do not show of the file.

Pillow reads colours of 16 bits as 8 bits in several formats without a word. So the bits are those
that the file names (`count_bits`), and more than 8 are refused. Transparent pixels have a colour
that nobody sees, often black: a picture is put on white paper (`on_white`). Of a file with several
frames or pages the first is read.
"""

import re
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

BITS = 8  # of a colour of a pixel
STILL = ("MPO",)  # files of cameras: their further frames are views of the first
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)


class Picture(NamedTuple):
    """A picture's pixels, and what they do not show of its file."""

    pixels: np.ndarray  # uint8 (channels, height, width)
    transparent: bool  # whether a pixel was transparent
    frames: bool  # whether the file has more frames or pages than the first
    exif: bool = False  # whether the file has EXIF data that cannot be read, so it is not turned


def read(data: bytes, channels: int, size: tuple[int, int]) -> Picture:
    """Return a file's picture, turned as its camera says, scaled and cut to (height, width).

    One of UNREADABLE for a file that is no picture, or has more than 8 bits per channel.
    """
    try:
        with opened(data) as image:
            frames = image.format not in STILL and getattr(image, "n_frames", 1) > 1
            turned, is_damaged = upright(image)
            seen, transparent = on_white(turned)
            plain = seen.convert("L" if channels == 1 else "RGB")
            fitted = ImageOps.fit(plain, size[::-1], Image.Resampling.LANCZOS)
    except (MemoryError, *UNREADABLE):
        raise
    except Exception as problem:  # a damaged file can make its decoder fail in any way
        raise ValueError(f"{type(problem).__name__}: {problem}") from None
    pixels = np.asarray(fitted)
    pixels = pixels[None] if channels == 1 else np.moveaxis(pixels, 2, 0)
    return Picture(pixels, transparent, frames, is_damaged)


def upright(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return a picture turned as its camera says, and whether its EXIF data cannot be read."""
    try:
        return ImageOps.exif_transpose(image), False
    except MemoryError:
        raise
    except Exception:  # if it is the pixels that cannot be read, who reads them fails again
        return image, True


def opened(data: bytes) -> Image.Image:
    """Return an open picture; one of UNREADABLE for no picture, and for more than 8 bits."""
    try:
        image = Image.open(BytesIO(data))
    except UnidentifiedImageError:
        raise ValueError("it has no known format") from None
    if image.mode[0] in "IF" or count_bits(image, data) > BITS:
        raise ValueError(f"its pixels have more than {BITS} bits")
    return image


def on_white(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return a picture on white paper, and whether a pixel was transparent; others as they are."""
    if not image.has_transparency_data:
        return image, False
    seen = image.convert("RGBA")
    extrema: Any = seen.getextrema()
    if extrema[3][0] == 255:
        return image, False
    paper = Image.new("RGBA", seen.size, "white")
    return Image.alpha_composite(paper, seen).convert("RGB"), True


def count_bits(image: Any, data: bytes) -> int:
    """Return the bits per channel that a file names; 8 in a format that has no more."""
    match image.format:
        case "PNG":  # the bit depth of the header IHDR (PNG, 11.2.2)
            return data[24]
        case "TIFF":  # the largest value of the tag BitsPerSample (TIFF 6.0)
            bits = image.tag_v2.get(258, 1)
            return max(bits) if isinstance(bits, tuple) else bits
        case "PPM":  # the bits of the largest value, the third number of P2, P3, P5 and P6
            magic, *numbers = re.sub(rb"#[^\n]*", b"", data[:4096]).split()[:4]
            return int(numbers[2]).bit_length() if magic in (b"P2", b"P3", b"P5", b"P6") else 1
        case "JPEG2000":  # the largest depth of the marker SIZ's components (ISO 15444-1, A.5.1)
            start = data.index(b"\xff\x4f\xff\x51")
            count = int.from_bytes(data[start + 40 : start + 42])
            return max((data[start + 42 + 3 * i] & 127) + 1 for i in range(count))
        case "AVIF":  # high_bitdepth of an image's box av1C (AV1 in ISOBMFF, 2.3.3)
            boxes = data[:65536].split(b"av1C")[1:]
            return 10 if any(box[2:3] and box[2] & 64 for box in boxes) else BITS
        case "SGI":  # the bytes per channel are the header's fourth byte
            return 8 * data[3]
    return BITS
