"""Convert weights that torchvision publishes into this package's models."""

import re
from pathlib import Path

from fedgrid.federation import array_files
from fedgrid.runtime import files


def convert(torchvision_name: str, folder: Path, out: Path) -> None:
    """Convert torchvision's file, downloaded if missing; its `fc` is renamed to `head`."""
    from torchvision.models import get_weight

    from fedgrid import models
    from fedgrid.runtime.download import fetch

    url = get_weight(torchvision_name).url
    name = url.rpartition("/")[2]
    prefix = name.rpartition("-")[2].removesuffix(".pth")
    weights = models.read_weights(fetch(url, folder / name, f"sha256:{prefix}"))
    renamed = {re.sub(r"^fc\.", "head.", n): w.contiguous() for n, w in weights.items()}
    with files.replacing(out) as temporary:
        array_files.save_tensors(renamed, temporary)
