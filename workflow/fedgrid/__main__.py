"""Run a command of fedgrid: `fedgrid train ...`, or `python -m fedgrid train ...`."""

import os
import runpy
import sys

from fedgrid import __version__
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known, lacks, registered

USAGE = """usage: fedgrid STAGE ...

fedgrid turns federated-learning papers into Snakemake targets. Its stages, each of which says more
with `fedgrid STAGE --help`:
"""


def main() -> None:
    """Run the stage that the command line names, or list all stages."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        show(
            "\n".join(
                [USAGE, *(f"  {one:14} {source.summary(f'commands.{one}')}" for one in stages())]
            )
        )
    elif name == "--version":
        show(f"fedgrid {__version__}")
    else:
        start(name, arguments)


def show(text: str) -> None:
    """Print a text; a reader that has closed the pipe, such as `head`, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end


def stages() -> list[str]:
    """Return the names of the commands."""
    return registered("commands")


def start(name: str, arguments: list[str]) -> None:
    """Run a stage as `python -m` does; exit with a sentence if there is none of this name."""
    try:
        module = f"fedgrid.commands.{known('stage', name, stages())}"
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except UsageError as problem:
        sys.exit(f"error: {problem}")
    except ModuleNotFoundError as problem:
        sys.exit(f"error: {lacks(problem)}")


if __name__ == "__main__":
    main()
