"""Arguments of commands: short ones on the command line, long ones in a file."""

from pathlib import Path

from fedgrid.plan.asked import asked
from fedgrid.plan.configuration import Plan
from fedgrid.runtime import cli

LONGEST = 30_000  # characters; the system allows 131,072 for a whole command


def write_in_file(plan: Plan, words: list[str]) -> str:
    return str(cli.write_arguments(words, Path("results/grids"), plan.snakemake.will_run))


def shorten(plan: Plan, given: str | list[str]) -> str | list[str]:
    """Return a word or words for a command line; `@` and a file of them if they are too long."""
    words = [given] if isinstance(given, str) else given
    return given if sum(map(len, words)) <= LONGEST else f"@{write_in_file(plan, words)}"


@asked
def name_inputs(wildcards, input) -> list[str]:
    """Return the inputs of a job as NAME=PATH; a dataset is given by its folder."""
    return [
        f"{name}={Path(path).parent if name == 'data' else path}"
        for name, path in input.items()
        if name != "first"  # it is found by its key
    ]
