"""The packages that fedgrid needs, and the lowest version of each, as `pyproject.toml` states them.

`make test-lowest` runs the tests with these versions. The Snakefile imports this: no torch here.
"""

import tomllib
from contextlib import suppress
from importlib import metadata
from typing import Any

from fedgrid.runtime.names import UsageError
from fedgrid.runtime.places import PACKAGE

PROJECT = PACKAGE.parents[1] / "pyproject.toml"  # of a clone; an installed package has metadata


def refuse_old_packages() -> None:
    if sentence := describe_old_packages():
        raise UsageError(sentence)


def describe_old_packages() -> str:
    """Return which installed packages fedgrid does not work with, and what to do; "" for none."""
    old = []
    for needed in read_requirements():
        with suppress(metadata.PackageNotFoundError):  # whoever imports it says so
            version = metadata.version(needed.name)
            if not needed.specifier.contains(version, prereleases=True):
                old.append((needed, version))
    if not old:
        return ""
    there = ", ".join(f"{one.name} {version}" for one, version in old)
    needed = " ".join(f'"{one.name}{one.specifier}"' for one, _ in old)
    return (
        f"fedgrid does not work with the installed versions of packages ({there}): "
        f"run `python -m pip install {needed}`"
    )


def read_requirements() -> list[Any]:
    """Return what fedgrid needs: what the clone states, or what was stated at the installation."""
    from packaging.requirements import Requirement

    if PROJECT.exists():
        texts = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["dependencies"]
    else:
        texts = metadata.requires("fedgrid") or []
    return [Requirement(text) for text in texts]
