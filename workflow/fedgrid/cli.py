"""What every entry point does alike: its arguments, its log, and errors in one sentence."""

import argparse
import errno
import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from fedgrid import records, warm
from fedgrid.names import UsageError, printable

CHANGES_RESULTS = False
# Where originals are, or are downloaded to; `~` is left as it is where nobody is called that.
DATA = Path(os.path.expanduser(os.environ.get("FEDGRID_DATA", "data")))
# What the machine refuses, whatever the program: rights, space, names, broken disks.
REFUSALS = ("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EIO", "EISDIR", "ENOTDIR", "EEXIST")
REFUSALS += ("ENAMETOOLONG", "ELOOP", "EMFILE", "ENFILE", "ESTALE", "EBUSY")
SHOWN = {"level": logging.INFO, "format": "%(asctime)s %(message)s"}


class LogTo(argparse.Action):
    """Sends the log to a file from now on."""

    def __call__(self, parser, namespace, path, option=None):
        """As soon as the option is met, so that all that follows is in the file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).open("w").close()  # if that fails, it is told where the log has been so far
        logging.basicConfig(**SHOWN, force=True, filename=path, filemode="w")


def parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help keeps the paragraphs of the module's docstring."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--log", action=LogTo, metavar="FILE", help="write the log there")
    return made


def device(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The option that chooses the device."""
    made.add_argument(
        "--device", default=os.environ.get("FEDGRID_DEVICE", "auto"),
        choices=["auto", "cpu", "cuda"], help="auto takes a GPU if there is one",
    )  # fmt: skip
    return made


def to_terminal() -> bool:
    """Whether a person is watching: a bar moves then, and no lines are logged on the way."""
    return logs_to_stderr() and sys.stderr.isatty()


def run(main: Callable[[list[str] | None], None]) -> None:
    """Run an entry point: timestamped lines on stderr, and no traceback for a user's mistake.

    With --log the lines are in the file alone; an error is on stderr too, where a person sees it.
    """
    warm.hand_over()
    logging.basicConfig(**SHOWN, stream=sys.stderr)
    logging.captureWarnings(True)
    gc.disable()  # importing torch makes many objects and no garbage
    try:
        main(None)
        records.write()
    except (UsageError, KeyboardInterrupt) as problem:
        fail(f"error: {problem or 'interrupted'}")
    except Exception as problem:
        if sentence := refused(problem):
            fail(f"error: {sentence}")
        if not logs_to_stderr():
            logging.exception("a defect of fedgrid, or of its environment")
        raise
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # all is written; taking torch apart would take half a second


def refused(problem: Exception) -> str:
    """What the machine has refused, or nothing if this is no such problem."""
    if isinstance(problem, MemoryError):
        return f"this takes more memory than there is ({problem})"
    if isinstance(problem, OSError) and errno.errorcode.get(problem.errno) in REFUSALS:
        where = problem.filename2 or problem.filename or "a file"
        return f"{where} cannot be read or written ({problem.strerror}): mend that, and try again"
    return ""


def logs_to_stderr() -> bool:
    """Whether --log was not given."""
    return any(getattr(h, "stream", None) is sys.stderr for h in logging.getLogger().handlers)


def warn(sentence: str) -> None:
    """Log a warning and, with --log, say it on stderr too, where a person sees it."""
    sentence = printable(sentence)
    logging.warning(sentence)
    if not logs_to_stderr():
        print(f"warning: {sentence}", file=sys.stderr)


def fail(sentence: str) -> None:
    """End with a sentence on stderr and, with --log, in the log."""
    sentence = printable(sentence)
    if not logs_to_stderr():
        logging.error(sentence)
    sys.exit(sentence)
