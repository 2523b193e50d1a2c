"""What all commands have in common: arguments, log, and errors in one sentence."""

import argparse
import gc
import io
import logging
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from fedgrid.runtime import files, records, warm
from fedgrid.runtime.hashes import hash_text
from fedgrid.runtime.names import UsageError, is_refusal, lacks, printable
from fedgrid.runtime.places import OWN, PACKAGE, relative
from fedgrid.runtime.required import describe_old_packages

# The folder of original data and downloads. `~name` is kept as it is if there is no such user.
DATA = Path(os.path.expanduser(os.environ.get("FEDGRID_DATA", "data")))
SHOWN: dict[str, Any] = {
    "level": logging.INFO,
    "format": "%(asctime)s %(message)s",
    "datefmt": "%F %T",
}
CLOSED = 141  # the exit status of a program whose output nobody reads any more, as a shell says it
DEVICES = ("auto", "cpu", "cuda")


class LogTo(argparse.Action):
    """Send the log to a file from now on."""

    def __call__(self, parser: Any, namespace: Any, path: Any, option: str | None = None) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).open("w").close()  # an error of this line goes to the log used so far
        logging.basicConfig(**SHOWN, force=True, filename=path, filemode="w", encoding="utf-8")


class ArgumentParser(argparse.ArgumentParser):
    """A parser for which `@FILE` stands for the lines of a file, one argument in each."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else args
        words = [word for text in given for word in read_arguments(text)]
        return argparse.ArgumentParser.parse_known_args(self, words, namespace)


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser whose help keeps the paragraphs of the module's docstring."""
    shown = argparse.RawDescriptionHelpFormatter
    made = ArgumentParser(program(), description=description, formatter_class=shown)
    made.add_argument("--log", action=LogTo, metavar="FILE", help="write the log there")
    return made


def write_arguments(words: list[str], folder: Path, write: bool = True) -> Path:
    """Write arguments into a file whose name is of its content, one in a line; return its path.

    A command in a shell can have about a hundred thousand characters, and a grid may need more. No
    argument may have a line break. Without `write` the path alone is returned.
    """
    text = "".join(f"{word}\n" for word in words)
    path = folder / f"{hash_text(text, 16)}.txt"
    if write and not path.exists():
        with files.replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return path


def read_arguments(word: str) -> list[str]:
    """Return the arguments in FILE for a word that is `@FILE`, and any other word by itself."""
    if not word.startswith("@"):
        return [word]
    try:
        return Path(word[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"{printable(word)!r} stands for the arguments in a file, which cannot be read "
            f"({problem}): give the path of a text file with one argument in each line"
        ) from None


def program() -> str | None:
    """Return what help calls this process: `fedgrid train`, or `python -m MODULE`."""
    name = spec.name if (spec := sys.modules["__main__"].__spec__) else ""
    package, _, command = name.partition(".commands.")
    if package != PACKAGE.name and not name.startswith(f"{PACKAGE.name}."):
        return None
    return f"{package} {command}" if command else f"python -m {name}"


def device(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument(
        "--device", default=os.environ.get("FEDGRID_DEVICE", "auto"),
        choices=DEVICES, help="auto takes a GPU if there is one",
    )  # fmt: skip
    return made


class Fitted(logging.Formatter):
    """Break the lines of the log between words where the terminal ends."""

    def format(self, record: logging.LogRecord) -> str:
        width, lines = shutil.get_terminal_size().columns, super().format(record).splitlines()
        fill = partial(textwrap.fill, width=width, subsequent_indent="  ")
        fill = partial(fill, break_long_words=False, break_on_hyphens=False)
        return "\n".join(map(fill, lines))


def to_terminal() -> bool:
    """Whether stderr is a terminal: progress is then a bar instead of log lines."""
    return logs_to_stderr() and sys.stderr.isatty()


def run(main: Callable[[list[str] | None], records.Work | None]) -> None:
    """Run a command: timestamped lines on stderr, and no traceback for a user's mistake.

    If `main` returns a `Work`, a record is written beside its results. With --log, the log goes to
    the file only; an error is printed on stderr too.
    """
    os.environ["MPLBACKEND"] = "agg"  # figures are files, whatever a notebook has set for its own
    warm.hand_over()
    logging.basicConfig(**SHOWN, stream=sys.stderr)
    if sys.stderr.isatty():
        logging.getLogger().handlers[0].setFormatter(Fitted("%(asctime)s %(message)s", "%T"))
    logging.captureWarnings(True)
    gc.disable()  # importing torch makes many objects and no garbage
    try:
        with fresh_state(), printing():
            if work := main(None):
                records.write(work)
    except (UsageError, KeyboardInterrupt) as problem:
        fail(f"error: {str(problem) or 'interrupted'}")
    except Exception as problem:
        if sentence := refused(problem):
            fail(f"error: {sentence}")
        if not logs_to_stderr():
            logging.exception(f"error: {blamed(problem)}")
        raise
    logging.shutdown()
    os._exit(0)  # everything is written; a normal exit of torch takes half a second


@contextmanager
def printing() -> Iterator[None]:
    """Print `?` for a letter that the terminal lacks; end quietly if nobody reads any more."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        sys.exit(CLOSED)


def fresh_state() -> AbstractContextManager[None]:
    """Return what gives a command that computes the state of a new process (`process.py`)."""
    if "torch" not in sys.modules:
        return nullcontext()
    from fedgrid.runtime import process

    return process.fresh_state()


def refused(problem: Exception) -> str:
    """Return a sentence for an error of the machine or of old packages, or "" for any other."""
    if isinstance(problem, ModuleNotFoundError):
        return lacks(problem)
    if isinstance(problem, MemoryError):
        return f"not enough memory ({problem})"
    if is_refusal(problem):
        where = problem.filename2 or problem.filename or "a file"
        return f"{where} cannot be read or written ({problem.strerror}): fix that, and try again"
    return describe_old_packages()


def blamed(problem: Exception) -> str:
    """Return whose mistake an unexpected error may be: the last file of OWN that it passed."""
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        path = relative(Path(frame.filename))
        if path and path.parts[0] in OWN:
            what = f"{type(problem).__name__}: {printable(str(problem))}"
            return (
                f"{path}, line {frame.lineno}, fails with {what}: correct the "
                "file if it is yours, or if you have edited it; otherwise this is a defect of "
                "fedgrid"
            )
    return "a defect of fedgrid, or of its environment"


def logs_to_stderr() -> bool:
    """Whether --log was not given."""
    return any(getattr(h, "stream", None) is sys.stderr for h in logging.getLogger().handlers)


def warn(sentence: str) -> None:
    """Log a warning and, with --log, print it on stderr too."""
    sentence = printable(sentence)
    logging.warning(sentence)
    if not logs_to_stderr():
        print(f"warning: {sentence}", file=sys.stderr)


def fail(sentence: str) -> None:
    """End with a sentence on stderr and, with --log, also in the log."""
    sentence = printable(sentence)
    if not logs_to_stderr():
        logging.error(sentence)
    sys.exit(sentence)
