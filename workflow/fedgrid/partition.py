"""Partition a dataset over clients, and write the samples of each client.

    python -m fedgrid.partition fedsls-quick/digits/dir0.1/fedavg/seed0

The partition's name says which kind it is (`partitions/`); the protocol's recipe says how that
kind is drawn, and its `client_test` and `validation` which samples are kept out of training. With
`client_test_from: writers`, each client gets the test samples of its writers.
"""

import logging

import numpy as np

from fedgrid.federation.holdout import give_tests, hold_out
from fedgrid.federation.members import write_partition
from fedgrid.partitions import draw_partition
from fedgrid.runtime import cli, records
from fedgrid.study.command import find_inputs, resolve_run, run_parser, work_on
from fedgrid.study.paths import input_paths

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> records.Work:
    """Run the command."""
    asked = run_parser(__doc__, "data").parse_args(arguments)
    run = resolve_run(asked, "partition")
    from fedgrid.federation.stored import open_data

    paths = find_inputs(asked, run, "data")
    data = open_data(paths["data"])
    protocol, names = run["protocol"], (run["dataset"], run["seed"])
    made = draw_partition(run["partition"], data, protocol["clients"], protocol["recipe"], *names)
    if protocol["client_test_from"] == "writers":
        made = give_tests(made, data.train_writers, data.test_writers)
    held = run["dataset"], run["partition"], run["seed"]
    made = hold_out(made, data.train_labels, len(data.test_labels), protocol, *held)
    out = asked.out or asked.results / input_paths(run)["partition"]
    write_partition(made, out)
    sizes = made.counts.sum(1)
    log.info("%s: sizes %d to %d, median %d", out, sizes.min(), sizes.max(), np.median(sizes))
    return work_on(run, paths, out)


if __name__ == "__main__":
    cli.run(main)
