"""The order of the names of one's own classes and clients, by which they are numbered."""

import re
from typing import Any


def natural(name: str) -> tuple[Any, ...]:
    """Return a key that sorts names as file managers do: numbers in them by their value.

    The order is that of the characters, but a run of digits counts as one number in its place.
    """
    found = re.findall("0*([0-9]+)|([^0-9])", name)
    return [("0", len(digits), digits) if digits else (one, 0, "") for digits, one in found], name
