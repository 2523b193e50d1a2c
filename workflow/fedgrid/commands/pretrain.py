"""Train the initial model on each client's own data, as FedSLS does before the first round.

    python -m fedgrid pretrain fedsls-quick/digits/dir0.1/fedsls/seed0

Writes the clients' models, client0.safetensors and so on, to the folder --out, or into an archive
if --out ends with .tar. Stopped and started again, it resumes with the next client, unless
Snakemake forces it. The federated training itself starts from the initial model.
"""

from pathlib import Path

from fedgrid.runtime import cli, files
from fedgrid.runtime.synced import synced
from fedgrid.stages.pretrain import pretrain
from fedgrid.study import command
from fedgrid.study.paths import input_paths


def main(arguments: list[str] | None = None) -> None:
    parser = command.add_machine(command.run_parser(__doc__, "data", "partition", "weights"))
    parser.add_argument("--checkpoint", type=Path, help="folder of unfinished work")
    asked = parser.parse_args(arguments)
    run = command.resolve_run(asked, "pretrain")
    paths = command.find_inputs(asked, run, "data", "partition", "weights")
    out = asked.out or asked.results / input_paths(run)["pretrain"]
    folder = asked.checkpoint or out.with_name(f".{out.name}.partial")
    with synced(folder), files.packed(out) as models:
        pretrain(run, paths, models, folder, command.choose_machine(asked))


if __name__ == "__main__":
    cli.run(main)
