"""Try a model once on zeros, as a run does, and print the memory that it takes.

    python -m fedgrid.checking.model cnn '{"shape": [3, 32, 32], "classes": 10, "tokens": 0}'
    python -m fedgrid.checking.model

`study/sizes.py` asks for this while Snakemake plans, in a process of its own, because the Snakefile
does not import torch. What `models/_size.py` measures is printed as JSON. If the model fails, the
last line on stderr says in which file, and why. The second command (`make sizes`) measures the
models of all studies, and writes models/sizes.json, so that planning need not.
"""

import json
import sys

from fedgrid import models
from fedgrid.models._size import measure
from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError
from fedgrid.study import sizes
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.jobs import write_inputs


def try_model(name: str, inputs: str) -> dict[str, float]:
    about = json.loads(inputs)
    models.build(name, tuple(about["shape"]), about["classes"], tokens=about["tokens"])
    return measure(name, **about)


def list_used(everything: Grid) -> list[tuple[str, str]]:
    """Return the models of the runs of all studies, each with the inputs of a dataset."""
    used = {
        (run["protocol"], run["dataset"])
        for name, study in everything.studies.items()
        for scale, about in study["scales"].items()
        for grid in about["grids"]
        for run in everything.runs(name, scale, grid)
    }
    found = ((everything.protocol(name)["model"], write_inputs(data)) for name, data in used)
    return sorted({*found})


def write_shipped() -> None:
    every = list_used(read_grid())
    found = {sizes.name_sizes(*one): try_model(*one) for one in every}
    with files.replacing(sizes.SHIPPED) as temporary:
        temporary.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    try:
        if sys.argv[1:]:
            print(json.dumps(try_model(*sys.argv[1:])))
        else:
            write_shipped()
    except UsageError as problem:
        sys.exit(str(problem))
