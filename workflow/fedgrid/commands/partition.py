"""Partition a dataset over clients, and write the samples of each client.

    python -m fedgrid partition fedsls-quick/digits/dir0.1/fedavg/seed0

The partition's name says which kind it is (`partitions/`); the protocol's recipe says how that
kind is drawn, and its `client_test` and `validation` which samples are kept out of training. With
`client_test_from: writers`, each client gets the test samples of its writers. If the data name
their clients, `<partition>.clients.csv` says which client of the run has which name. A warning says
how many clients have too few samples to train (`smallest_batch`).
"""

from fedgrid.runtime import cli, records
from fedgrid.stages.partition import partition
from fedgrid.study.command import describe_work, find_inputs, resolve_run, run_parser
from fedgrid.study.paths import input_paths


def main(arguments: list[str] | None = None) -> records.Work:
    asked = run_parser(__doc__, "data").parse_args(arguments)
    run = resolve_run(asked, "partition")
    paths = find_inputs(asked, run, "data")
    out = asked.out or asked.results / input_paths(run)["partition"]
    return describe_work("partition", run, paths, *partition(run, paths["data"], out))


if __name__ == "__main__":
    cli.run(main)
