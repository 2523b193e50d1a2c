"""Interpolate between the shared and the private branch of a finished run: accuracies on a grid.

    python -m fedgrid interpolation privatization-quick/digits/classes5/AaBb/seed0

Li et al. (arXiv 2107.11954), section 5.5. The run has two whole branches, such as the way AaBb.
With the shared and the private features h_s and h_p of a client, and the classifiers C_s and C_p,

    h = alpha h_s + (1 - alpha) h_p,    p = beta softmax(C_s(h)) + (1 - beta) softmax(C_p(h))

and the prediction is the largest p. The models are those at the end of the run: the server's, and
each client's own, which are read from the last state that `train` keeps beside its checkpoint. A
client that never took part has its initial private values.

Writes a .csv with a row for every alpha and beta: accuracy on a client's own test samples, as the
mean over clients, weighted by samples, and its standard deviation over clients; and the number of
clients with test samples.
"""

from pathlib import Path

from fedgrid.runtime import cli, records
from fedgrid.stages.interpolation import interpolate
from fedgrid.study.command import (
    Machine,
    add_machine,
    describe_work,
    find_inputs,
    resolve_run,
    run_parser,
)
from fedgrid.study.jobs import list_needed_stages, run_of_stage
from fedgrid.study.paths import RUN


def main(arguments: list[str] | None = None) -> records.Work:
    """Run the command."""
    parser = add_machine(run_parser(__doc__, "data", "partition", "weights", "metrics", "..."))
    parser.add_argument("--checkpoint", type=Path, help="of the run; default: under --results")
    asked = parser.parse_args(arguments)
    whole = resolve_run(asked, "train")
    paths = find_inputs(
        asked, whole, "metrics", "data", "partition", "weights", *list_needed_stages(whole)
    )
    run = run_of_stage("train", whole)
    name = RUN.format(**run["name"])
    out = asked.out or asked.results / "interpolation" / f"{name}.csv"
    checkpoint = asked.checkpoint or asked.results / "checkpoints/runs" / f"{name}.safetensors"
    machine = Machine(asked.device, "loop", asked.threads)
    interpolate(run, paths, checkpoint, asked.results, out, machine)
    return describe_work("interpolation", run, paths, out)


if __name__ == "__main__":
    cli.run(main)
