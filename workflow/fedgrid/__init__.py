"""Federated-learning papers as Snakemake targets.

In a notebook: `fedgrid.run("fedprox", dataset="digits", rounds=5, mu=0.1)`.
"""

import sys
from typing import Any

__version__ = "0.1.0"
# Where the names are that a notebook needs. Importing the package imports none of them, because the
# Snakefile and every job import it.
FOUND_IN = dict.fromkeys(("run", "load_method", "list_names", "Result"), "fedgrid.notebook.api")
FOUND_IN |= dict.fromkeys(("Method", "Step", "Client", "Cohort"), "fedgrid.method")
FOUND_IN |= {"UsageError": "fedgrid.runtime.names", "SNAKEFILE": "fedgrid.runtime.places"}
__all__ = ["__version__", *FOUND_IN]


def __dir__() -> list[str]:
    """Return the names that a notebook completes."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import what a notebook asks for; UsageError if a package is missing or too old."""
    from importlib import import_module

    if name not in FOUND_IN:
        raise AttributeError(f"module 'fedgrid' has no attribute '{name}'")
    try:
        if FOUND_IN[name] not in sys.modules:
            import_module("fedgrid.runtime.required").refuse_old_packages()
        return getattr(import_module(FOUND_IN[name]), name)
    except ModuleNotFoundError as problem:
        from fedgrid.runtime.names import UsageError, lacks

        raise UsageError(lacks(problem)) from None
