"""Try a model once on zeros, as a run does, and print the memory that it takes.

    python -m fedgrid.checking.model cnn '{"shape": [3, 32, 32], "classes": 10, "tokens": 0}'

`study/sizes.py` asks for this while Snakemake plans, in a process of its own, because the Snakefile
does not import torch. What `models/_size.py` measures is printed as JSON. If the model fails, the
last line on stderr says in which file, and why.
"""

import json
import sys

from fedgrid import models
from fedgrid.models._size import measure
from fedgrid.runtime.names import UsageError


def main(name: str, inputs: str) -> None:
    about = json.loads(inputs)
    models.build(name, tuple(about["shape"]), about["classes"], tokens=about["tokens"])
    print(json.dumps(measure(name, **about)))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UsageError as problem:
        sys.exit(str(problem))
