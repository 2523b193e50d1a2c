"""Functions of a job's wildcards, which Snakemake calls for inputs, parameters and resources.

Arguments of commands are short ones on the command line, and long ones in a file.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from fedgrid.plan.configuration import Plan
from fedgrid.runtime import cli
from fedgrid.runtime.code import source

Asked = Callable[..., Any]  # a function of wildcards, and of what Snakemake adds by name
LONGEST = 30_000  # characters; the system allows 131,072 for a whole command


def asked(function: Asked) -> Asked:
    """Return a function that keeps its signature, which Snakemake looks up at every call.

    To find it anew takes a tenth of the time in which a large grid is planned.
    """
    function.__dict__["__signature__"] = signature(function)
    return function


def per_job(find: Callable[..., Any]) -> Callable[..., Asked]:
    """Let a function that is called without its `wildcards` return a function of them."""

    @wraps(find)
    def ask(*given: Any) -> Asked:
        return asked(lambda wildcards: find(*given, wildcards=wildcards))

    return ask


@per_job
def code_of(*modules: str, wildcards) -> str:
    """Return the hash of all code that can change a result of modules."""
    return source.fingerprint(*modules)


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
        f"{name}={Path(path[0]).parent if name == 'data' else path}"
        for name, path in input.items()
        if name != "first"  # it is found by its key
    ]
