"""What can change no result is left out of the fingerprint, and nothing takes a number from it.

`make lint` holds which way imports run. Here every function of `runtime/` that a module which
counts uses is in a list, with the reason why it changes no number: who uses another one has to
think about it first.
"""

import ast

import pytest

from fedgrid.runtime import source
from fedgrid.runtime.names import PACKAGE, registered

COMPUTING = ("engine", "federation", "partitions", "models", "method", "methods", "encoders")
COMPUTING += ("datasets",)
HARMLESS = {
    "names.UsageError": "ends the command",
    "names.known": "gives back the name that it was given, or ends the command",
    "names.shown": "for the text of an error",
    "names.registered": "which files a folder has; a run's own are among its code",
    "contract.called": "runs a file's own code, which counts, and names its errors",
    "contract.imported": "imports a file, which counts, and names its errors",
    "contract.SCALED": "the name of a normalisation; its numbers are in federation/stored.py",
    "contract.dataset": "ends the command for a file that lacks something",
    "source.file": "for the text of an error",
    "source.literal": "a constant of a file that counts",
    "files.whole": "ends the command for a file that cannot be read",
    "files.array_names": "names as they are in the file",
    "files.read_arrays": "arrays as they are in the file",
    "files.replacing": "where a file is written before it gets its name",
    "download.fetch": "a file that has the right checksum",
    "download.verify": "ends the command for a wrong checksum",
    "cli.warn": "a sentence for people",
    "gpus.claim": "which of several GPUs a job takes",
    "own_data.place_of": "where data of one's own are; what is in them counts",
}


def uses(module: str) -> set[str]:
    """What a module takes from runtime/ and study/: `names.known`, or `study.jobs.memory_mb`."""
    found, bound = set(), {}
    for node in ast.walk(source.tree(module)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(LEFT_OUT):
            for alias in node.names:
                name = f"{node.module}.{alias.name}".removeprefix("fedgrid.")
                is_module = source.path(name).exists()
                bound[alias.asname or alias.name] = name if is_module else None
                found |= set() if is_module else {name}
    for node in ast.walk(source.tree(module)):
        owner = getattr(getattr(node, "value", None), "id", None)
        if isinstance(node, ast.Attribute) and bound.get(owner):
            found.add(f"{bound[owner]}.{node.attr}")
    return {name.removeprefix("runtime.") for name in found}


LEFT_OUT = tuple(f"fedgrid.{folder}." for folder in source.LEFT_OUT)
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).with_suffix("").parts[0] in COMPUTING
)


def test_modules_that_compute_take_only_what_is_harmless():
    assert {name for module in MODULES for name in uses(module)} == HARMLESS.keys()


@pytest.mark.parametrize("folder", ["methods", "models", "datasets", "partitions"])
def test_a_registrys_files_count(folder):
    for name in registered(folder):
        assert f"{folder}.{name}" in source.counted(f"{folder}.{name}")


@pytest.mark.parametrize("stage", ["partition", "pretrain", "saliency", "latents", "train"])
def test_a_stage_counts_all_it_reaches_but_the_two_folders(stage):
    counted = source.counted(stage)
    assert not any(name.startswith(("runtime", "study")) for name in counted)
    direct = {name for module in counted for name in source._imports(module)}
    assert {name for name in direct if source.counts(name)} <= counted
