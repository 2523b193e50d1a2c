"""Fetch a model's published weights and save them as .safetensors, its classifier as `head`.

    python -m fedgrid weights resnet18 --name imagenet --root data

The file is downloaded to --root/weights unless it is there. It is read only after its checksum,
which is part of torchvision's file name, has been verified.
"""

from pathlib import Path

from fedgrid.runtime import cli, records
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import known, registered
from fedgrid.stages.weights import convert


def main(arguments: list[str] | None = None) -> records.Work:
    parser = cli.parser(__doc__)
    parser.add_argument("model", help="a file of fedgrid/models, such as resnet18")
    parser.add_argument("--name", default="imagenet", help="which weights (default: imagenet)")
    parser.add_argument("--root", type=Path, default=cli.DATA, help="folder of downloads")
    parser.add_argument("--out", type=Path, help="default: results/weights/<model>-<name>")
    asked = parser.parse_args(arguments)
    contract.model(known("model", asked.model, registered("models")))
    published = source.literal(f"models.{asked.model}", "WEIGHTS", ())
    known(f"published set of weights for {asked.model}", asked.name, published)
    out = asked.out or Path(f"results/weights/{asked.model}-{asked.name}.safetensors")
    convert(published[asked.name], asked.root / "weights", out)
    return records.Work([out], code=["stages.weights", f"models.{asked.model}"])


if __name__ == "__main__":
    cli.run(main)
