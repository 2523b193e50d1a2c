"""Files of LEAF's datasets, as its scripts write them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path


def content(users: dict[str, tuple[Iterable, Iterable]]) -> dict:
    """The content of a file with the samples and labels of users."""
    data = {name: {"x": [*x], "y": [*y], "raw": "all"} for name, (x, y) in users.items()}
    return {
        "users": [*data],
        "num_samples": [len(own["x"]) for own in data.values()],
        "user_data": data,
    }


def write(folder: Path, *contents: dict) -> Path:
    """Write files into a folder; return the first one."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(contents):
        (folder / f"all_data_{number}.json").write_text(json.dumps(one))
    return folder / "all_data_0.json"


def of_first(change: Callable[[dict], object]) -> Callable[[dict], object]:
    """Change the data of the first user of a content."""
    return lambda content: change(next(iter(content["user_data"].values())))
