"""Read which names a configuration asks for, and name the folder of products made from them."""

import json
import re
from typing import Any

from fedgrid.runtime.hashes import hash_text
from fedgrid.runtime.names import listed
from fedgrid.study.protocol import AXES
from fedgrid.study.variants import check_spelling

ADDED = "+"  # before a name that joins the names of a grid
DIGITS = re.compile("[0-9]{1,18}")
DECIMALS = re.compile(r"([a-z]\d+), *(\d+)(?![^,\]])")  # written with a comma
LONGEST, MOST_BYTES = 80, 200  # characters and bytes of a folder's name


def read_axis(config: dict, axis: str) -> tuple[list, list]:
    """Read the configuration's names of an axis: those asked for, and those to add (`+name`).

    The configuration has a list or, from the command line, a text such as `a,b`. In the text of
    partitions, a number behind a comma is decimals: `dir0,5` is dir0.5.
    """
    value = config.get(axis)
    if isinstance(value, str):
        value = DECIMALS.sub(r"\1.\2", value) if axis == "partition" else value
        value = [part.strip() for part in value.strip("[]").split(",") if part.strip()]
    asked: list[Any] = []
    added: list[Any] = []
    for name in listed(value):
        plus = isinstance(name, str) and name.startswith(ADDED)
        (added if plus else asked).append(name.removeprefix(ADDED) if plus else name)
    read = read_seed if axis == "seed" else str
    return [*map(read, asked)], [*map(read, added)]


def read_seed(seed: Any) -> Any:
    if not (isinstance(seed, str) and DIGITS.fullmatch(seed)):
        return seed
    check_spelling(f"seed{seed}", f"seed{int(seed)}")
    return int(seed)


def part_folder(config: dict, *axes: str) -> str:
    """Return the folder of products made under a configuration, below the folder of the study.

    It is empty if the configuration names no axis and no sweep. With `axes`, only these count.
    """
    folders = []
    for axis in axes or AXES:
        asked, added = read_axis(config, axis)
        if names := [*map(str, asked), *(f"{ADDED}{name}" for name in added)]:
            folders.append(f"{axis}={shorten_text(','.join(names))}")
    if (sweep := config.get("sweep")) and not axes:
        fields = "+".join(
            f"{name}-{field}" for name, axes_of_name in sweep.items() for field in axes_of_name
        )
        folders.append(f"sweep={shorten_text(fields, json.dumps(sweep, sort_keys=True))}")
    return "".join(f"/{folder}" for folder in folders)


def shorten_text(text: str, content: str | None = None) -> str:
    """Shorten a text for a folder's name; with `content`, or if too long, a hash is added."""
    short = text[:LONGEST].encode("utf-8", "ignore")[:MOST_BYTES].decode("utf-8", "ignore")
    if content is None and short == text:
        return text
    return f"{short}-{hash_text(content or text, 6)}"
