"""Partition a dataset over clients, and write the samples of each client.

    python -m fedgrid partition fedsls-quick/digits/dir0.1/fedavg/seed0

The partition's name says which kind it is (`partitions/`); the protocol's recipe says how that
kind is drawn, and its `client_test` and `validation` which samples are kept out of training. With
`client_test_from: writers`, each client gets the test samples of its writers. If the data name
their clients, `<partition>.clients.csv` says which client of the run has which name. A warning says
how many clients have too few samples to train (`smallest_batch`).
"""

import logging
from pathlib import Path

import numpy as np

from fedgrid.federation.client_names import find_names, write_names
from fedgrid.federation.holdout import give_tests, hold_out
from fedgrid.federation.members import write_partition
from fedgrid.partitions import draw_partition
from fedgrid.runtime import cli, records
from fedgrid.study.command import find_inputs, resolve_run, run_parser, work_on
from fedgrid.study.paths import input_paths
from fedgrid.study.protocol import PROTOCOL

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
    named = write_names(find_names(made, data.train_writers, data.writer_names), out)
    sizes = made.counts.sum(1)
    log.info("%s: sizes %d to %d, median %d", out, sizes.min(), sizes.max(), np.median(sizes))
    tell_idle(out, sizes.tolist(), protocol)
    return work_on(run, paths, *named, out)


def tell_idle(out: Path, sizes: list[int], protocol: dict) -> None:
    """Warn of clients that never train.

    The workflow's partitions are shared by protocols with other batches. Then the default fields
    are taken, and the log alone says it; each run says it for its own fields.
    """
    from fedgrid.federation import schedule  # which imports PyTorch

    fields = PROTOCOL | protocol
    if not (idle := schedule.count_idle(sizes, fields)):
        return
    sentence = (
        f"{out}: {idle} of {len(sizes)} clients have too few training samples, and never train: "
        f"{schedule.describe_need(fields)}"
    )
    if "smallest_batch" in protocol:
        cli.warn(sentence)
    else:
        log.info("%s in a protocol with the default fields", sentence)


if __name__ == "__main__":
    cli.run(main)
