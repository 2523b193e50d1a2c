"""Functions of a job's wildcards, which Snakemake calls for inputs, parameters and resources."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from fedgrid.runtime.code import source

Asked = Callable[..., Any]  # a function of wildcards, and of what Snakemake adds by name


def asked(function: Asked) -> Asked:
    """Return a function that keeps its signature, which Snakemake looks up at every call.

    To find it anew takes a tenth of the time in which a large grid is planned.
    """
    function.__dict__["__signature__"] = signature(function)
    return function


def code_of(*modules: str) -> Asked:
    """Return the hash of all code that can change a result of modules, once a job is planned."""
    return asked(lambda wildcards: source.fingerprint(*modules))
