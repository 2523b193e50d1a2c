"""Write the features of a test set by the model of a finished run: what its last layer is given.

    python -m fedgrid features fedsls-quick/digits/dir0.1/fedavg/seed0 --out features.npz
    python -m fedgrid features privatization-quick/digits/classes5/aB/seed0 --client 3

Writes an .npz for t-SNE and the like: `features` (n, D) float32, `labels` (n,) and `predicted`
(n,), the class that the model predicts, of each sample of the dataset's test set, in its order; and
`class_names`, if the classes have names. The model is the server's last one, or with --client the
one by which this client is evaluated after the last round.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from fedgrid.federation.protocols import list_needed_stages
from fedgrid.runtime import cli, files, records
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Run
from fedgrid.study.command import find_inputs, resolve_run, run_parser
from fedgrid.study.jobs import stage_modules
from fedgrid.study.paths import RUN


def main(arguments: list[str] | None = None) -> records.Work:
    parser = run_parser(__doc__, "data", "metrics", "...")
    parser.add_argument("--client", type=int, help="use the model of this client, from 0 on")
    asked = parser.parse_args(arguments)
    run = resolve_run(asked, "train")
    wanted = ("partition", "weights", *list_needed_stages(run)) if asked.client is not None else ()
    paths = find_inputs(asked, run, "metrics", "data", *wanted)
    finished = paths.pop("metrics").parent
    out = asked.out or asked.results / "features" / f"{RUN.format(**run['name'])}.npz"
    write_features(asked, run, paths, finished, out)
    read = [finished / "model.safetensors", paths["data"] / "meta.json"]
    return records.Work([out], read, code=["engine.prediction", *stage_modules("train", run)])


def write_features(
    asked: argparse.Namespace, run: Run, paths: dict[str, Path], finished: Path, out: Path
) -> None:
    import numpy as np

    from fedgrid.engine import prediction
    from fedgrid.federation.stored import open_data
    from fedgrid.notebook.result import find_models, read_result
    from fedgrid.training.build import build_method

    find, data = partial(find_models, run, paths, asked.results), open_data(paths["data"])
    result = read_result(finished, build_method(run), paths, find)
    if asked.client is None and result.private:
        raise UsageError(
            f"the server of {finished} has no complete model, because clients keep a part of it: "
            "name a client, such as --client 0"
        )
    model = result.model if asked.client is None else result.client_model(asked.client)
    features, logits = prediction.forward(model, result.inputs, data.test_images)
    predicted = prediction.classes(logits.softmax(1))
    arrays: dict[str, Any] = {"features": features.numpy(), "predicted": predicted.numpy()}
    arrays["labels"] = np.array(data.test_labels)
    if data.class_names:
        arrays["class_names"] = np.array(data.class_names)
    with files.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


if __name__ == "__main__":
    cli.run(main)
