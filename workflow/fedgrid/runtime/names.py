"""Names, and the error for an unknown one. No torch here: the Snakefile imports this."""

import errno
import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from fedgrid.runtime.places import PACKAGE, roots
from fedgrid.runtime.words import ALSO

RECENT = 10**9  # nanoseconds in which a folder may change again at the same time of its clock
LONGEST = 200  # characters of a value that a message quotes
SHOWN = 60  # names that a message lists at most
# Errors of the machine: missing rights, full or broken disks, impossible names.
REFUSALS = (
    *("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EIO", "EISDIR", "ENOTDIR", "EEXIST"),
    *("ENAMETOOLONG", "ELOOP", "EMFILE", "ENFILE", "ESTALE", "EBUSY"),
)


class UsageError(ValueError):
    """An error that the user can fix; its text is one clear sentence.

    Where they are known, `where` is the file or the key of the mistake, `key` the kind of what is
    wrong, `value` what is written, and `choices` what may stand there.
    """

    def __init__(
        self,
        text: object = "",
        *,
        where: str = "",
        key: str = "",
        value: object = None,
        choices: Iterable[str] = (),
    ):
        super().__init__(text)
        self.where, self.key, self.value, self.choices = where, key, value, (*choices,)

    def restated(self, text: str, where: str = "") -> "UsageError":
        """Return the same error with another text, and more before its `where`."""
        said = type(self)(text, key=self.key, value=self.value, choices=self.choices)
        said.where = ": ".join(filter(None, [where, self.where]))
        return said


class NothingToDrawError(UsageError):
    """The runs of a product allow no row of it; its text says which are missing.

    This is no mistake if only a part of the product's grid was asked for.
    """


def registered(kind: str) -> list[str]:
    """Return the names of a registry: the files of methods/, datasets/, models/ or report/.

    UsageError if the package and the folder of a paper both have a name.
    """
    found: list[str] = []
    for root in roots(kind):
        names = list_folder(f"{root}/{kind}")
        if twice := {*found}.intersection(names):
            refuse_twice(root / kind / f"{min(twice)}.py")
        found += names
    return sorted(found)


def refuse_twice(file: Path) -> NoReturn:
    raise UsageError(f"{file} has the name of a file of fedgrid: give it another name")


def list_folder(folder: str) -> tuple[str, ...]:
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        changed = 0
    read = read_folder if time.time_ns() - changed > RECENT else read_folder.__wrapped__
    return read(folder, changed)


@cache  # a plan of thousands of runs asks for each of them
def read_folder(folder: str, changed: int) -> tuple[str, ...]:
    """Return the names of the plain modules in a folder that was changed then; 0: there is none."""
    files = os.listdir(folder) if changed and os.path.isdir(folder) else []
    plain = (name for name in files if name.endswith(".py") and name[0] not in "_.")
    return tuple(name.removesuffix(".py") for name in plain)


def known(kind: str, name: str, among: Iterable[str]) -> str:
    """Return `name` if it is one of `among`; else raise an error with the nearest names."""
    among = among if isinstance(among, Collection) else [*among]
    if name in among:
        return name
    among = sorted(among)
    near = nearest(shown(name), among)
    said = f"the choices are {list_some(among) or 'none'}"
    if near:
        said = f"did you mean {' or '.join(near)}?"
    sentence = f"no {kind} is called `{shown(name)}`: {said}"
    raise UsageError(sentence, key=kind, value=name, choices=among)


def list_some(names: list[str], most: int = SHOWN) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def nearest(name: str, among: list[str]) -> list[str]:
    """Return up to three of `among` that a wrong name may stand for, by its letters.

    A common word for one of them, such as `learning_rate` for lr, stands for this one alone.
    """
    words = {word: one for one in among for word in (*ALSO.get(one, ()), one)}
    best = get_close_matches(name.lower().replace("-", "_"), words, n=1, cutoff=0.85)
    if best and best[0] not in among:
        return [words[best[0]]]
    return get_close_matches(name, among, n=3, cutoff=0.5)


@contextmanager
def within(where: str) -> Iterator[None]:
    """Put before the text of a UsageError where the mistake is: a file, or a key of it."""
    try:
        yield
    except UsageError as problem:
        raise problem.restated(f"{where}: {problem}", where) from None


def followed_by(problem: UsageError, sentence: str) -> UsageError:
    """Return an error with one more sentence after its text."""
    end = "" if str(problem).endswith("?") else "."
    return problem.restated(f"{problem}{end} {sentence}")


def listed(value: Any) -> list[Any]:
    """Return a value as a list: a list as it is, None as an empty list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def name_family(files: Iterable[str]) -> str:
    """Return the name of the family of all methods that are made of these files."""
    return "+".join(sorted({*files}))


def shown(value: object) -> str:
    """Return a value for an error message: printable, and cut after 200 characters."""
    text = printable(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def shown_error(problem: Exception) -> str:
    """Return an error's type and message for a sentence, which goes on after it."""
    return shown(f"{type(problem).__name__}: {problem}").rstrip(".!")


def printable(text: str) -> str:
    """Return a text on one line, with all characters printable."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def in_words(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def is_refusal(problem: Exception) -> TypeGuard[OSError]:
    """Whether the machine refused to read or write a file; the file may be good."""
    return isinstance(problem, OSError) and errno.errorcode.get(problem.errno or 0) in REFUSALS


def lacks(problem: ModuleNotFoundError) -> str:
    """Return a sentence for a package that is not installed; raise for a part of fedgrid."""
    package = (problem.name or "").partition(".")[0]
    if package in ("", PACKAGE.name):
        raise problem
    return (
        f"fedgrid needs the package {package}, which is not installed: install fedgrid together "
        "with the packages that it needs, by pip without --no-deps"
    )
