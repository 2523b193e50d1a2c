"""Who gets which samples: draw a partition, hold samples out of training, and write it."""

import logging
from pathlib import Path

import numpy as np

from fedgrid.federation.client_names import find_names, write_names
from fedgrid.federation.holdout import give_tests, hold_out
from fedgrid.federation.members import Partition, write_partition
from fedgrid.federation.protocols import changed_protocol
from fedgrid.partitions import draw_partition
from fedgrid.runtime import cli
from fedgrid.runtime.resolved import Protocol, Run
from fedgrid.study.protocol import PROTOCOL

log = logging.getLogger(__name__)


def partition(run: Run, data: Path, out: Path) -> list[Path]:
    """Draw the partition of a resolved run over the decoded dataset `data`; return the files."""
    from fedgrid.federation.stored import open_data

    dataset = open_data(data)
    made = draw(run, dataset)
    write_partition(made, out)
    named = write_names(find_names(made, dataset.train_writers, dataset.writer_names), out)
    sizes = made.counts.sum(1)
    log.info("%s: sizes %d to %d, median %d", out, sizes.min(), sizes.max(), np.median(sizes))
    tell_idle(out, sizes.tolist(), run["protocol"])
    return [*named, out]


def draw(run: Run, data) -> Partition:
    """Return the partition of a resolved run, with the samples that are kept out of training."""
    protocol, names = run["protocol"], (run["dataset"], run["seed"])
    asked = protocol["clients"], protocol["recipe"]
    merge = protocol.get("merge", False)
    made = draw_partition(run["partition"], data, *asked, *names, merge=merge)
    if protocol["client_test_from"] == "writers":
        made = give_tests(made, data.train_writers, data.test_writers)
    held = run["dataset"], run["partition"], run["seed"]
    return hold_out(made, data.train_labels, len(data.test_labels), protocol, *held)


def tell_idle(out: Path, sizes: list[int], protocol: Protocol) -> None:
    """Warn of clients that never train.

    The workflow's partitions are shared by protocols with other batches. Then the default fields
    are taken, and the log alone says it; each run says it for its own fields.
    """
    from fedgrid.federation import schedule  # which imports PyTorch

    fields = changed_protocol(PROTOCOL, protocol)
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
