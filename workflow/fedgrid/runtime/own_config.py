"""Whether the config.yaml of this folder is fedgrid's: other programs have such a file, too.

In a checkout of fedgrid it always is. Elsewhere it is if one of its keys is, or is nearly, a key
that hardly any other program has, and if fewer than half of its keys are unknown.
"""

import re
from difflib import get_close_matches
from pathlib import Path

CONFIG = Path("config.yaml")
CHECKOUT = Path("workflow/fedgrid")
OWN = (
    *("study", "scale", "data_root", "protocols", "variants", "datasets", "products"),
    *("checkpoints", "keep_state_gb", "vram_gb", "warm", "kept"),
)
SHARED = (  # with other programs
    *("protocol", "dataset", "partition", "method", "seed", "sweep", "paper"),
    *("device", "backend", "compile", "threads", "log"),
)
KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*:(?=\s)", re.MULTILINE)
NEAR = 0.8  # how like a key a misspelt one is


def is_own(text: str) -> bool:
    if CHECKOUT.is_dir():
        return True
    keys = keys_of(text)
    unknown = [key for key in keys if not is_near(key, (*OWN, *SHARED))]
    typical = [key for key in keys if key not in SHARED and is_near(key, OWN)]
    return bool(typical) and 2 * len(unknown) < len(keys)


def keys_of(text: str) -> list[str]:
    """Return the keys of the first level; without YAML, those at the beginning of lines."""
    import yaml

    from fedgrid.runtime.plain_yaml import load_yaml

    try:
        found = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return KEY.findall(text)
    return [*map(str, found)] if isinstance(found, dict) else []


def is_near(key: str, among: tuple[str, ...]) -> bool:
    return bool(get_close_matches(key, among, n=1, cutoff=NEAR))
