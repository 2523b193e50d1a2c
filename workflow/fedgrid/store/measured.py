"""Tables of an experiment that are kept with a study, such as the fidelity study of FedSLS.

The folder <study>/<scale>/<experiment>/ of kept runs has its tables and MADE: the setting that they
were made with, their checksums, and code and versions. They stand for a measurement of
today only if the setting is the same, and so are data of one's own that it names. The Snakefile
imports this: no pandas.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from fedgrid.runtime import files
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.store import kept

MADE = "made.json"
FACTS = ("outputs", "code", "versions")  # what is kept of a record


def find_measured(study: str, scale: str, text: str, setting: dict[str, Any]) -> Path | None:
    """Return the kept file of a source such as fidelity/scores; None if none has this setting.

    UsageError if the file is not the one that was kept.
    """
    path = kept.store_folder(study, scale) / f"{text}.csv"
    made = path.with_name(MADE)
    if "/" not in text or not made.exists():
        return None
    facts = json.loads(made.read_text("utf-8"))
    if (facts["setting"], facts.get("data", {})) != (setting, hash_data(setting)):
        return None
    if not path.exists() or files.checksum(path) != facts["outputs"].get(path.name):
        raise UsageError(f"{path} is missing or is not the file that was kept: {kept.MEND}")
    return path


def hash_data(setting: dict[str, Any]) -> dict[str, str]:
    """Return the hash of each dataset of one's own in a setting, by name."""
    names = [*setting.get("images", ()), *filter(None, [setting.get("dataset")])]
    return {name: hashed["data"] for name in names if (hashed := source.data_of(name))}


def keep_measured(study: str, scale: str, text: str, setting: dict[str, Any], here: Path) -> bool:
    """Keep the tables beside the file `here`, made with this setting; return whether it was so."""
    found = sorted(here.parent.glob(".*.record")) if "/" in text and here.exists() else []
    for record in (json.loads(path.read_text("utf-8")) for path in found):
        if here.name in record["outputs"] and json.dumps(setting) in record["command"]:
            folder = (kept.store_folder(study, scale) / f"{text}.csv").parent
            folder.mkdir(parents=True, exist_ok=True)
            for name in record["outputs"]:
                shutil.copy(here.with_name(name), folder / name)
            facts = {"setting": setting, "data": hash_data(setting)} | {
                key: record.get(key) for key in FACTS
            }
            with files.replacing(folder / MADE) as temporary:
                temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            return True
    return False
