"""What every entry point does alike: its arguments, its log, and errors in one sentence."""

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from fedgrid.names import UsageError

CHANGES_RESULTS = False
DATA = Path(os.environ.get("FEDGRID_DATA", "data"))  # where originals are, or are downloaded to


def parser(description: str) -> argparse.ArgumentParser:
    """A parser whose help keeps the paragraphs of the module's docstring."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(main: Callable[[list[str] | None], None]) -> None:
    """Run an entry point: timestamped lines on stderr, and no traceback for a user's mistake."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    gc.disable()  # importing torch makes many objects and no garbage
    try:
        main(None)
    except UsageError as problem:
        sys.exit(f"error: {problem}")
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # all is written; taking torch apart would take half a second
