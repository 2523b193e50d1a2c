"""Interpolate between the shared and the private branch of a finished run: accuracies on a grid.

    python -m fedgrid interpolation privatization-quick/digits/classes5/AaBb/seed0

Li et al. (arXiv 2107.11954), section 5.5. The run has two whole branches, such as the way AaBb.
With the shared and the private features h_s and h_p of a client, and the classifiers C_s and C_p,

    h = alpha h_s + (1 - alpha) h_p,    p = beta softmax(C_s(h)) + (1 - beta) softmax(C_p(h))

and the prediction is the largest p. The models begin with the state after the last round: the
server's model, and what each client keeps. `train` keeps this state beside its checkpoint.
`evaluate_clients` says who is evaluated, as in a protocol:

    cohort   the clients of the next five rounds, after local training (definition 3.3 of the text).
             Each of these rounds begins with the last state.
    all      all clients without local training, as in the authors' code. A client that never took
             part has its initial private values.

Writes a .csv with a row for each of them and for every alpha and beta: accuracy on a client's own
test samples, as the mean over clients, weighted by samples, and its standard deviation over
clients; the mean over clients of the cross-entropy; and the number of clients with test samples, of
all five rounds. In the rows without alpha whole models are mixed: p is of C_s(h_s) and C_p(h_p).
These rows have a divergence, if the clients are those of rounds. It is Kullback and Leibler's, from
the probabilities that private models give to some of the test images to one model for all, in mean
over clients, images and rounds. That model has the weight beta for the server's model and 1 - beta
for the mean of the private ones.
"""

from pathlib import Path

from fedgrid.federation.protocols import list_needed_stages
from fedgrid.runtime import cli, records
from fedgrid.runtime.synced import synced
from fedgrid.stages.interpolation import interpolate
from fedgrid.study import command
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import RUN


def main(arguments: list[str] | None = None) -> records.Work:
    parser = command.add_machine(
        command.run_parser(__doc__, "data", "partition", "weights", "metrics", "...")
    )
    parser.add_argument("--checkpoint", type=Path, help="of the run; default: under --results")
    asked = parser.parse_args(arguments)
    whole = command.resolve_run(asked, "train")
    paths = command.find_inputs(
        asked, whole, "metrics", "data", "partition", "weights", *list_needed_stages(whole)
    )
    run = run_of_stage("train", whole)
    name = RUN.format(**run["name"])
    out = asked.out or asked.results / "interpolation" / f"{name}.csv"
    checkpoint = asked.checkpoint or asked.results / "checkpoints/runs" / f"{name}.safetensors"
    machine = command.Machine(asked.device, "loop", asked.threads)
    with synced(checkpoint):
        interpolate(run, paths, checkpoint, asked.results, out, machine)
    return command.describe_work("interpolation", run, paths, out)


if __name__ == "__main__":
    cli.run(main)
