"""What is refused of the files in the folder of one's own paper, before any of them is used."""

import re

from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, refuse_twice, registered
from fedgrid.runtime.places import OWN, PACKAGE, paper

CONSTANTS = ("PATTERN", "EXAMPLE", "LABEL")  # of a partition's file


def check_own_files() -> None:
    """Raise a UsageError for a name that fedgrid has, and for a partition that is wrong."""
    if (folder := paper()) is None:
        return
    for kind in OWN:
        registered(kind)
        for file in sorted((folder / kind).glob("_[!_]*.py")):
            if (PACKAGE / kind / file.name).exists():
                refuse_twice(file)
    own = [file.stem for file in sorted((folder / "partitions").glob("[!_.]*.py"))]
    for name in own:
        check_partition(name)
    for name in own:
        check_names_apart(name)


def check_partition(name: str) -> None:
    source.tree(f"partitions.{name}")  # raises for a file that is not Python, with its line
    for constant in CONSTANTS:
        if not isinstance(source.literal(f"partitions.{name}", constant), str):
            raise UsageError(
                f"partitions/{name}.py has no {constant}, which is a text: write one, such as "
                'PATTERN = "mine([0-9.]+)", EXAMPLE = "mine0.1" and LABEL = "mine={}"'
            )
    pattern, example = read_names(name)
    try:
        matches = re.fullmatch(pattern, example)
    except re.error as problem:
        raise UsageError(f"partitions/{name}.py: PATTERN is no pattern ({problem})") from None
    if not matches:
        raise UsageError(f"partitions/{name}.py: PATTERN does not match EXAMPLE, {example}")


def check_names_apart(name: str) -> None:
    """Refuse a partition whose names another one has, too."""
    pattern, example = read_names(name)
    for other in (one for one in registered("partitions") if one != name):
        theirs, their_example = read_names(other)
        for form, text in ((pattern, their_example), (theirs, example)):
            if re.fullmatch(form, text):
                raise UsageError(
                    f"`{text}` is a partition of partitions/{name}.py and of {other}.py: change "
                    f"PATTERN in partitions/{name}.py"
                )


def read_names(name: str) -> tuple[str, str]:
    return tuple(source.literal(f"partitions.{name}", one) for one in CONSTANTS[:2])
