"""A study with its kept runs, tables and figures in one archive, for the reviewers of a paper.

A bundle is itself the folder of a paper (`runtime/places.py`). Besides the paper's files it has

    made/<study>/<scale>/   the products, as drawn from the kept runs in the bundle
    environment.txt         the packages with which they were drawn
    checksums.sha256        of all files
    ro-crate-metadata.json  what each file is, and what made the products: a Workflow Run RO-Crate
                            (https://w3id.org/ro/wfrun/workflow/0.5)
    REVIEW.md               how to review it
"""

import datetime
import mimetypes
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from fedgrid import __version__
from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError, shown
from fedgrid.runtime.places import OWN
from fedgrid.store import trained_again

MADE, SUMS, PACKAGES, REVIEW = "made", "checksums.sha256", "environment.txt", "REVIEW.md"
LATER = ("results", "data", SUMS)  # what a review makes in the folder, and the checksums
# Of the paper's folder: single files, and of some folders the files with these ends.
FILES = ("Snakefile", "config.yaml", "README.md", "requirements.txt", "LICENSE", "CITATION.cff")
FOLDERS = (*OWN, "studies", "tests", "rules", "scripts")
ENDS = (".py", ".smk", ".yaml", ".csv", ".json")
# Lines of config.yaml about the author's machine: a reviewer's has fedgrid's values.
MACHINE = re.compile(
    r"^(data_root|device|backend|compile|threads|vram_gb|warm|keep_state_gb|checkpoints|log)"
    r"[ \t]*:.*\n?",
    re.MULTILINE,
)
DRAWN = "The tables and figures were drawn from the kept runs by Snakemake."
FORMATS = {".md": "text/markdown", ".yaml": "application/yaml", ".py": "text/x-python"}
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}


def fill(bundle: Path, paper: Path, study: str, scale: str, data: str = "") -> None:
    """Copy what a paper's folder has of a study into the folder of a bundle, with its README.

    `data` says which data a reviewer needs to train runs again.
    """
    for part in list_parts(paper, study, scale):
        (bundle / part).parent.mkdir(parents=True, exist_ok=True)
        copy(paper / part, bundle / part)
    config = bundle / "config.yaml"
    config.write_text(MACHINE.sub("", config.read_text("utf-8-sig")), encoding="utf-8")
    text = Path(__file__).with_name(REVIEW).read_text("utf-8")
    text = text.format(study=study, scale=scale, version=__version__, data=data)
    (bundle / REVIEW).write_text(text.rstrip() + "\n", encoding="utf-8")
    packages = sorted({f"{one.metadata['Name']}=={one.version}" for one in distributions()})
    (bundle / PACKAGES).write_text("\n".join(packages) + "\n", encoding="utf-8")


def list_parts(paper: Path, study: str, scale: str) -> list[Path]:
    """Return the files of a paper's folder that belong into a bundle, relative to it."""
    folders = (path for name in FOLDERS for path in sorted((paper / name).rglob("*")))
    inside = [file for file in folders if file.suffix in ENDS]
    every = (*(paper / name for name in FILES), *inside)
    parts = [f.relative_to(paper) for f in every if f.is_file() and not f.is_symlink()]
    return [part for part in parts if not is_hidden(part) and is_of(part, study, scale)]


def is_hidden(file: Path) -> bool:
    return file.suffix == ".pyc" or any(part.startswith(".") for part in file.parts)


def is_of(file: Path, study: str, scale: str) -> bool:
    """Whether a file is no kept run, and no choice, of another study or scale."""
    kept = file.parts[:1] == ("studies",) and len(file.parts) > 3
    return not kept or file.parts[2:4] == (study, scale)


def draw(folder: Path, study: str, scale: str, products: Iterable[str], cores: str) -> None:
    """Draw files such as table.csv in a folder, from kept runs; UsageError if this fails."""
    targets = [f"results/{name}" for name in products]
    config = ["--config", f"study={study}", f"scale={scale}", "kept=true"]
    options = ["--cores", cores, "--quiet", "rules", "progress", *config]
    command = [sys.executable, "-m", "snakemake", *options, "--", *targets]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        *_, last = ["it says nothing", *filter(str.strip, done.stderr.split("\n"))]
        raise UsageError(f"the tables and figures cannot be drawn: {shown(last)}")


def take_products(folder: Path, study: str, scale: str, products: Iterable[str]) -> None:
    """Move drawn files to where a bundle has them."""
    place = folder / MADE / study / scale
    place.mkdir(parents=True)
    for name in products:
        (folder / "results" / name).rename(place / name)


def list_files(bundle: Path) -> list[Path]:
    """Return the files of a bundle, relative to it, without that of the checksums."""
    inside = (path.relative_to(bundle) for path in bundle.rglob("*") if path.is_file())
    return sorted(path for path in inside if not (is_hidden(path) or path.parts[0] in LATER))


def sum_files(bundle: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path."""
    return {path.as_posix(): files.checksum(bundle / path) for path in list_files(bundle)}


def write_sums(bundle: Path) -> None:
    lines = [f"{digest}  {name}\n" for name, digest in sum_files(bundle).items()]
    (bundle / SUMS).write_text("".join(lines), encoding="utf-8")


def find_altered(bundle: Path) -> list[str]:
    """Return the files that are missing or not as they were, and files of code that are not listed.

    UsageError if this is no bundle.
    """
    listed, there = read_sums(bundle), sum_files(bundle)
    altered = [name for name, digest in listed.items() if there.get(name) != digest]
    return altered + [name for name in there if name not in listed and name.endswith(".py")]


def read_sums(bundle: Path) -> dict[str, str]:
    try:
        lines = (bundle / SUMS).read_text("utf-8").splitlines()
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as problem:
        raise UsageError(f"{bundle} is no bundle: {SUMS} cannot be read ({problem})") from None


def describe(bundle: Path, title: str) -> None:
    """Write what each file of a bundle is, as a Workflow Run RO-Crate."""
    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")
    every = [path.as_posix() for path in list_files(bundle)]
    facts = {name: {"name": name, "encodingFormat": find_format(name)} for name in every}
    parts = {name: crate.add_file(bundle / name, name, properties=facts[name]) for name in every}
    workflow = crate.add_workflow(bundle / "Snakefile", "Snakefile", main=True, lang="snakemake")
    workflow["name"] = f"The workflow of {title}"
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    crate.name, crate.datePublished = title, now[:10]
    crate.description = f"Code, kept runs, tables and figures of {title}, made with fedgrid"
    crate.license = parts.get("LICENSE", "No licence is stated.")
    crate.root_dataset["conformsTo"] = [
        crate.add(ContextEntity(crate, url, properties=describe_profile(url, name)))
        for url, name in PROFILES.items()
    ]
    made = [part for name, part in parts.items() if name.startswith(f"{MADE}/")]
    read = [part for name, part in parts.items() if name.startswith(("config.yaml", "studies/"))]
    done = {"name": "Drawing", "description": DRAWN, "endTime": now}
    action = crate.add_action(workflow, "#draw", object=read, result=made, properties=done)
    crate.root_dataset["mentions"] = action
    if readme := parts.get("README.md"):
        readme["about"] = crate.root_dataset
    crate.metadata.write(bundle)


def find_format(name: str) -> str:
    """Return the media type of a file: text/markdown, text/csv and so on."""
    return FORMATS.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "text/plain"


def describe_profile(url: str, name: str) -> dict[str, str]:
    return {"@type": "CreativeWork", "name": name, "version": url.rpartition("/")[2]}


def pack(bundle: Path, out: Path) -> None:
    """Write a folder as an archive, in which all files are in a folder of its name."""
    with files.replacing(out) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as archive:
        for path in [*list_files(bundle), Path(SUMS)]:
            archive.write(bundle / path, f"{bundle.name}/{path.as_posix()}")


def unpack(file: Path, to: Path) -> Path:
    """Unpack an archive into a folder; return the folder of its bundle in it."""
    try:
        with ZipFile(file) as archive, TemporaryDirectory(dir=to) as temporary:
            tops = {name.partition("/")[0] for name in archive.namelist()}
            if len(tops) != 1 or tops & {"", ".", ".."}:
                raise BadZipFile("its files are not all in one folder")
            place = to / tops.pop()
            if place.exists():
                raise UsageError(f"{place} exists already: review this folder, or delete it")
            archive.extractall(temporary)
            (Path(temporary) / place.name).rename(place)
    except (OSError, BadZipFile, zlib.error, RuntimeError, NotImplementedError) as problem:
        raise UsageError(f"{file} is no archive of a bundle ({problem})") from None
    return place


def redraw(bundle: Path, study: str, scale: str, cores: str) -> dict[str, bool]:
    """Return of each CSV file whether it is, byte by byte, the one that is drawn anew.

    It is drawn in a folder with the files that have checksums, and nothing else.
    """
    made = bundle / MADE / study / scale
    with TemporaryDirectory() as temporary:
        for name in read_sums(bundle):
            (Path(temporary) / name).parent.mkdir(parents=True, exist_ok=True)
            copy(bundle / name, Path(temporary) / name)
        draw(Path(temporary), study, scale, sorted(file.name for file in made.iterdir()), cores)
        drawn = Path(temporary) / "results"
        tables = sorted(made.glob("*.csv"))
        return {one.name: one.read_bytes() == (drawn / one.name).read_bytes() for one in tables}


def train_again(bundle: Path, study: str, scale: str, number: int, seed: int, cores: str) -> None:
    """Train so many kept runs again, which a seed draws; UsageError if one of them fails.

    The bundle stays as it is, apart from its folder of results.
    """
    asked = ["--again", str(number), "--seed", str(seed), "--cores", cores]
    command = [sys.executable, "-m", "fedgrid", "keep", study, scale, *asked]
    noted = bundle / "studies/reference" / study / scale / trained_again.NOTED
    before = noted.read_bytes() if noted.exists() else None
    failed = subprocess.run(command, cwd=bundle, check=False).returncode
    noted.unlink(missing_ok=True)
    if before is not None:
        noted.write_bytes(before)
    if failed:
        raise UsageError("not all drawn runs could be trained again")
