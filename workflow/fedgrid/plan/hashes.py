"""Hashes of what is no file, for the parameters by which Snakemake knows that a job is stale."""

import json
from hashlib import sha256
from typing import Any


def hash_facts(facts: list[Any]) -> str:
    """Return a short hash of the facts."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
