"""Encode how salient each client's images are to its pretrained model: FedSLS's weights R_k.

    python -m fedgrid saliency fedsls-quick/digits/dir0.1/fedsls/seed0

Writes three files:

    --out.npz  the contribution of every layer, client and reading of the paper's equations, so
               that a method can choose its reading and tau without encoding again
    .csv       for people, by the default reading: R_k, R_k / n_k, the weight R_k / sum R, the
               effective number of clients 1 / sum_k a_k^2 over the population, and the share of
               each layer in R_k
    .json      seconds and machine of encoding (all readings and targets) and of pretraining

A warning names clients that hold most of the weight if they are few, and clients whose R_k is not
finite.
"""

from fedgrid.runtime import cli, files, records
from fedgrid.stages.saliency import encode
from fedgrid.study import command
from fedgrid.study.paths import input_paths


def main(arguments: list[str] | None = None) -> records.Work:
    parser = command.add_machine(command.run_parser(__doc__, "data", "partition", "pretrain"))
    asked = parser.parse_args(arguments)
    run = command.resolve_run(asked, "saliency")
    out = asked.out or asked.results / input_paths(run)["saliency"]
    paths = command.find_inputs(asked, run, "data", "partition", "pretrain")
    machine = command.Machine(asked.device, "loop", asked.threads)
    with files.unpacked(paths["pretrain"]) as models:
        encode(run, {**paths, "pretrain": models}, out, machine)
    written = [out, out.with_suffix(".csv"), out.with_suffix(".json")]
    return command.describe_work("saliency", run, paths, *written)


if __name__ == "__main__":
    cli.run(main)
