"""Data of one's own: entries of a configuration or a study that stand for files of datasets/.

    datasets:
      flowers: {folder: /data/flowers, size: 32}
      spectra: {npz: spectra.npz}

`dataset` returns what such a file would have: its constants, and a `load` that leads to
`datasets/_folder.py` or `datasets/_npz.py`. The constant CONTENT is a hash of what is in the files,
so that other data make other results; the place and the times of the files are no part of it.
Where the files are not, what is kept with the runs that were trained on them stands for them.
The Snakefile imports this: no torch, and numpy only if there are such data.
"""

import json
import os
import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedgrid.runtime import notes
from fedgrid.runtime.hashes import hash_text
from fedgrid.runtime.names import UsageError, registered, shown
from fedgrid.runtime.own_config import CONFIG, is_own
from fedgrid.runtime.places import roots

DESCRIBED = "datasets.json"  # the file of a folder of kept runs with the code of data, by name
KEPT = f"studies/reference/*/*/{DESCRIBED}"
# Variables with entries as JSON, of the configuration and of studies: the Snakefile tells its jobs.
VARIABLE, OF_STUDIES = "FEDGRID_OWN_DATA", "FEDGRID_STUDY_DATA"
# What an entry can be, and the options that are read of each.
KINDS = {
    "folder": ("size", "channels", "test", "clients"),
    "npz": ("shape", "classes", "tokens", "channels_last"),
}


def entries() -> dict[str, dict[str, Any]]:
    """Return the entries by name: those of studies, as far as they are read, and `given`."""
    return json.loads(os.environ.get(OF_STUDIES) or "{}") | given()


def given() -> dict[str, dict[str, Any]]:
    """Return the entries of the Snakefile's configuration, or else of this folder's config.yaml."""
    if (given := os.environ.get(VARIABLE)) is not None:
        return json.loads(given)
    return dict(entries_in(config_text()))


def list_datasets() -> list[str]:
    """List the names of all datasets: the files of datasets/, and the entries."""
    return sorted([*registered("datasets"), *entries()])


def config_text() -> str:
    """Return the text of this folder's config.yaml, or ""; UsageError if fedgrid's is no text."""
    content = CONFIG.read_bytes() if CONFIG.exists() else b""
    try:
        return content.decode()
    except ValueError as problem:
        if not is_own(content.decode(errors="replace")):
            return ""
        raise UsageError(f"{CONFIG} is not text in UTF-8 ({problem}): correct it") from None


@cache
def entries_in(text: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a configuration's text; UsageError if fedgrid's is not YAML."""
    if "datasets" not in text or not is_own(text):
        return {}
    import yaml

    from fedgrid.runtime.plain_yaml import load_yaml

    try:
        read = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        said = " ".join(str(problem).split())
        raise UsageError(f"{CONFIG} is not YAML, correct it: {said}") from None
    return checked(read.get("datasets")) if isinstance(read, dict) else {}


def checked(given: Any, of: str = "the configuration") -> dict[str, dict[str, Any]]:
    """Return what a configuration or a study has under `datasets`.

    UsageError for what is no entry, and for one that has the name of a file of datasets/.
    """
    if not isinstance(given or {}, dict):
        raise UsageError(
            f"`datasets` of {of} is {shown(repr(given))}, not entries with names: "
            "write `datasets: {flowers: {folder: PATH}}`, or `dataset` for names of datasets"
        )
    for name, entry in (given or {}).items():
        if said := describe_mistake(name, entry):
            raise UsageError(f"datasets.{name} of {of} {said}", where=of)
    return dict(given or {})


def describe_mistake(name: str, entry: Any) -> str:
    """Return what is wrong with an entry, as the rest of a sentence; "" for a right one."""
    if not isinstance(entry, dict):
        said = f"is {shown(repr(entry))}, not an entry: write "
        return f"{said}`{name}: {{folder: PATH}}` or `{name}: {{npz: PATH}}`"
    if name in registered("datasets"):
        return f"has the name of the file datasets/{name}.py: give it another name"
    kinds = [kind for kind in KINDS if kind in entry]
    read = {option for kind in kinds for option in (kind, *KINDS[kind])}
    if kinds and (unread := [key for key in entry if key not in read]):
        said = f"has `{shown(unread[0])}`, which is not read of a `{kinds[0]}`: remove it; "
        return f"{said}the options are {', '.join(KINDS[kinds[0]])}"
    return ""


def give(config: dict[str, Any]) -> dict[str, Any]:
    """Make a configuration's entries known; return it with names in place of `folder:PATH`."""
    there = checked(config.get("datasets"))
    asked = config.get("dataset") or []
    if isinstance(asked, str | list) and ":" in str(asked):
        if isinstance(asked, str):
            asked = (asked[1:-1] if asked.startswith("[") else asked).split(",")
        asked = [named(str(one).strip(), there) for one in asked]
    os.environ[VARIABLE] = json.dumps(there, sort_keys=True)
    return config | {"datasets": there} | ({"dataset": asked} if asked else {})


def give_studies(there: dict[str, dict[str, Any]]) -> None:
    """Make the entries of studies known, in place of those of studies that were read before."""
    os.environ[OF_STUDIES] = json.dumps(there, sort_keys=True)


def named(text: str, there: dict[str, dict[str, Any]]) -> str:
    """Return the name of a dataset in `folder:PATH` or `npz:PATH`, which gets an entry."""
    kind, colon, place = text.partition(":")
    if not colon or kind not in KINDS:
        return text
    stem = Path(place).name if kind == "folder" else Path(place).stem
    name = re.sub(r"[^\w.=@]", "_", stem).lstrip(".") or kind
    entry = {kind: place}
    if there.setdefault(name, entry) != entry:
        raise UsageError(
            f"the dataset {shown(text)} has the name {name}, as another one has: write an entry "
            "with another name under `datasets`"
        )
    return name


class OwnDataset(NamedTuple):
    """What an entry stands for: a reader, and the constants of a dataset's file (`datasets/`)."""

    name: str
    reader: str  # datasets._folder or datasets._npz
    constants: dict[str, Any]

    @property
    def code(self) -> str:
        """What counts of the data in the code of a result: the reader, and all constants."""
        head = f"from fedgrid.{self.reader} import load\n"
        return head + "".join(f"{key} = {value!r}\n" for key, value in self.constants.items())

    def as_module(self) -> ModuleType:
        """Return what the import of a dataset's file would give: its constants and `load`."""
        module = ModuleType(f"fedgrid.datasets.{self.name}")
        vars(module).update(self.constants, load=self.load)
        return module

    def load(self, root: Path) -> Any:
        """Return the samples; `root`, the folder of downloads, is not used."""
        kept = self.constants
        read = import_module(f"fedgrid.{self.reader}").load
        return read(self.name, kept["SHAPE"], kept["CLASSES"], kept["OPTIONS"])


def dataset(name: str) -> OwnDataset:
    """Return what an entry stands for; UsageError if it does not fit, or its files are missing."""
    kind, options = read_entry(name)
    if missing := find_missing(name):
        raise UsageError(missing)
    place = place_of(name, kind)
    reader = import_module(f"fedgrid.datasets._{kind}")  # of an upper layer, and it imports numpy
    states = [content(place, reader.read_by(place))]
    if options.get("clients"):
        clients = place_of(name, "clients")
        states += [content(clients, [clients])]
    constants: dict[str, Any] = {"TRAIN": None, "TEST": None, "STATISTICS": {}}
    constants |= reader.describe(name, place, entries()[name])
    constants |= {"CONTENT": hash_text("".join(states)), "OPTIONS": options}
    return OwnDataset(name, f"datasets._{kind}", constants)


def read_entry(name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of an entry, and its options without places; UsageError for no kind."""
    entry = entries()[name]
    kinds = [kind for kind in KINDS if isinstance(entry.get(kind), str)]
    if len(kinds) != 1:
        raise UsageError(f"datasets.{name} needs either `folder` or `npz`, a path")
    options = {key: value for key, value in sorted(entry.items()) if key not in KINDS}
    return kinds[0], options | ({"clients": True} if options.get("clients") else {})


def find_missing(name: str) -> str:
    """Return a sentence if what an entry names is not there; "" if it is."""
    kind, _ = read_entry(name)
    place = place_of(name, kind)
    is_there = place.is_dir() if kind == "folder" else place.exists()
    what = "folder" if kind == "folder" else "file"
    return "" if is_there else f"datasets.{name}: there is no {what} {place}"


def find_code(name: str) -> str:
    """Return the code of an entry's data; if they are missing, that of data of kept runs.

    These are of the entry's name, kind and options. UsageError if there are none, or several.
    """
    if not (missing := find_missing(name)):
        return dataset(name).code
    kind, options = read_entry(name)
    start, end = f"from fedgrid.datasets._{kind} import load\n", f"\nOPTIONS = {options!r}\n"
    files = (file for root in roots("studies") for file in sorted(root.glob(KEPT)))
    every = (read_described(file).get(name, "") for file in files)
    found = {code for code in every if code.startswith(start) and code.endswith(end)}
    if len(found) > 1:
        raise UsageError(f"{missing}, and kept runs have {len(found)} different data of this name")
    if not found:
        raise UsageError(missing)
    return found.pop()


def read_described(file: Path) -> dict[str, str]:
    """Return the code of the data that runs of a folder were trained on, by name."""
    try:
        lines = json.loads(file.read_text("utf-8")) if file.exists() else {}
        return {name: "".join(f"{line}\n" for line in of) for name, of in lines.items()}
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise UsageError(
            f"{file} cannot be read ({problem}): restore it from the repository, or delete it and "
            "keep the runs again"
        ) from None


def place_of(name: str, key: str) -> Path:
    """Return a path of an entry: its `folder`, its `npz`, or the .csv of its `clients`."""
    return Path(os.path.expanduser(entries()[name][key]))


def content(place: Path, files: list[Path]) -> str:
    """Return a hash of the names below a place and of what is in the files."""
    try:
        states = [(file, file.stat()) for file in files]
        lines = [
            f"{f.relative_to(place)} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}"
            for f, s in states
        ]
        return read_once(place, tuple(files), hash_lines(lines))
    except OSError as problem:
        raise UsageError(f"{problem.filename} cannot be read ({problem.strerror})") from None


@cache
def read_once(place: Path, files: tuple[Path, ...], state: str) -> str:
    """Return the hash of `content`; it is noted for this state (sizes, times) of the files."""
    from fedgrid.runtime.files import checksum  # help needs no other package

    note = notes.place_note(f"data-{hash_lines([str(place.resolve())])[:32]}.txt")
    lines = (f"{file.relative_to(place)} {checksum(file)}" for file in files)
    return notes.find_noted(note, state, ".+", lambda: hash_lines(lines))


def hash_lines(lines: Iterable[str]) -> str:
    """Return a hash of lines, which may have the names of files that are no text."""
    return sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
