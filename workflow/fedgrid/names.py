"""Names, and what to say when one of them is wrong. No torch here: the Snakefile imports this."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

PACKAGE = Path(__file__).parent
LONGEST = 200  # characters of a value that a sentence quotes


class UsageError(ValueError):
    """Something the person at the keyboard can mend; its text is one clear sentence."""


def registered(kind: str) -> list[str]:
    """The names of a registry: the files of `methods/`, `datasets/`, `models/` or `report/`."""
    return sorted(path.stem for path in (PACKAGE / kind).glob("[!_]*.py"))


def known(kind: str, name: str, among: Iterable[str]) -> str:
    """`name`, if it is one of `among`; else an error that lists the nearest names."""
    among = sorted(among)
    if name in among:
        return name
    near = get_close_matches(shown(name), among, n=3, cutoff=0.5)
    said = (
        f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(among) or 'none'}"
    )
    raise UsageError(f"no {kind} is called `{shown(name)}`: {said}")


def listed(value) -> list:
    """A list of what may be one value or none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def shown(value: object) -> str:
    """A value as a sentence can hold it: printable, and not endless."""
    text = printable(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def printable(text: str) -> str:
    """On one line, and of what can be printed: a name may hold anything."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
