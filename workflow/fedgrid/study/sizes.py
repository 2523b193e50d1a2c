"""Measure the sizes of models, once for each model and shape of inputs.

The Snakefile does not import torch, so `checking/model.py` tries and measures a model in a process
of its own, which takes some seconds. The sizes are stored in the user's cache folder, by the
fingerprint of the model's code. A dry run measures and stores them, too. Those of the models in
fedgrid's studies are in SHIPPED, as far as their code is the one that was measured.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache

from fedgrid.runtime import cli, files, notes
from fedgrid.runtime.code import source
from fedgrid.runtime.hashes import hash_text
from fedgrid.runtime.places import PACKAGE

SHIPPED = PACKAGE / "models" / "sizes.json"  # `make sizes` writes it
UNKNOWN = {"weights": 100.0, "training": 0.0, "evaluation": 0.0}  # of a model that fails


@cache
def measure_sizes(model: str, inputs: str) -> dict[str, float]:
    """Return the MB of a model's weights, and of a sample in training and in evaluation.

    `inputs` are the shape, the number of classes and the number of tokens, as JSON. A warning tells
    of a model whose code fails, and the sizes are then UNKNOWN: the run itself says why it fails.
    """
    name = name_sizes(model, inputs)
    if name in (shipped := json.loads(SHIPPED.read_text())):
        return shipped[name]
    noted = notes.place_note(f"{name}.json")
    with suppress(OSError, ValueError):
        return json.loads(noted.read_text())
    command = [sys.executable, "-m", "fedgrid.checking.model", model, inputs]
    paths = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        cli.warn(
            f"the memory of the model {model} cannot be measured ({said}): its jobs ask for the "
            f"memory of a model of {UNKNOWN['weights']:.0f} MB"
        )
        return UNKNOWN
    with suppress(OSError), files.replacing(noted, sync=False) as temporary:
        temporary.write_text(done.stdout)
    return json.loads(done.stdout)


def name_sizes(model: str, inputs: str) -> str:
    """Return by which name the sizes of a model are noted: it has a hash of its code and inputs."""
    code = source.fingerprint(f"models.{model}", "models._size")
    return f"{model}-{hash_text(f'{code} {inputs}')}"
