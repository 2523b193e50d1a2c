"""Short hashes of texts and of settings, for names, notes and comparisons."""

import json
from hashlib import sha256
from typing import Any

DIGITS = 12  # hexadecimal: two of a million values agree with a probability of 0.002


def hash_text(text: str, digits: int = DIGITS) -> str:
    """Return so many hexadecimal digits of the SHA-256 of a text."""
    return sha256(text.encode()).hexdigest()[:digits]


def hash_facts(facts: Any, digits: int = DIGITS) -> str:
    """Return the hash of what JSON can hold; the order of keys does not matter."""
    return hash_text(json.dumps(facts, sort_keys=True), digits)
