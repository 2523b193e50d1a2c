"""Train one run to its end: resume, link, go on or begin, and write its results."""

import logging
import math
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedgrid.runtime import cli, forced
from fedgrid.runtime.resolved import Run
from fedgrid.runtime.watch import trackers
from fedgrid.store.identity import hash_method_files, identify
from fedgrid.study.command import Machine
from fedgrid.study.jobs import is_state_read
from fedgrid.training import same_work
from fedgrid.training.same_work import ENDED, FINISHED

SAVE_EVERY = 120  # seconds between two checkpoints
KEEP_STATE_GB = 1.0  # a larger last state of a finished run is not kept, unless it is read

log = logging.getLogger(__name__)


def train(
    run: Run,
    paths: dict[str, Path],
    out: Path,
    checkpoint_path: Path,
    machine: Machine,
    save_every: float = SAVE_EVERY,
    home: Path | None = None,
    told: trackers.Asked = trackers.NOTHING,
) -> list[Path]:
    """Train a resolved run to its end; return the files that it wrote, none if it was finished.

    A run resumes from its checkpoint. If another process trains it already, such as a child of a
    killed parent, this one waits. A finished run is not trained again while the copy of its results
    beside the checkpoint exists. `home` is the folder of results in which runs of other names are
    looked for: if one of them is the same work, its results are linked. A forced run uses none of
    these.
    """
    from fedgrid.runtime import files
    from fedgrid.runtime.watch import tracked
    from fedgrid.runtime.watch.trackers import csv
    from fedgrid.training import checkpoint, results

    identity = identify("train", run, paths)
    key = identity.key
    kept = beside(checkpoint_path, FINISHED)
    with files.alone(checkpoint_path):
        written_to = (place / name for place in (out, kept) for name in results.FILES)
        ended_path = beside(checkpoint_path, ENDED)
        states = checkpoint_path, ended_path
        histories = map(checkpoint.history_of, states)
        files.sweep(*states, *histories, out / csv.RUNNING, *written_to)
        same_work.note(home, key, checkpoint_path)
        anew = begin_anew(out, checkpoint_path)
        others = [] if anew else same_work.find(home, key, checkpoint_path)
        copies = (beside(other, FINISHED) for other in others)
        if found := results.finished(out, kept, identity, copies):
            log.info("%s was finished before in %s, and is not trained again", out, found)
            written = [] if found == kept else results.link(out, kept, run)
        else:
            ended = ended_states(run, paths, checkpoint_path, None if anew else home)
            same_work.note(home, ended.key, checkpoint_path)
            saved = checkpoint.Saved(checkpoint_path, key, save_every, ended)
            rows = partial(tracked.Rows, told, out, run, key)
            last, history, whole, facts = run_rounds(run, paths, saved, machine, rows)
            with saved.safe(last, history):
                about = {"run": run, "key": key} | facts | {"code": identity.code}
                about["method_files"] = hash_method_files(run)
                written = results.write(out, whole, history, about)
                results.keep(out, kept)
            saved.end(last, history)
        csv.discard(out)
        checkpoint.discard(checkpoint_path)
        if not ended_path.exists():
            checkpoint.discard(ended_path)  # what a killed process has left of it
        forced.end(checkpoint_path)
    return written


def begin_anew(out: Path, checkpoint_path: Path) -> bool:
    """Return whether Snakemake forces this run; what it was trained to before is then deleted."""
    from fedgrid.training import checkpoint, results

    if not forced.is_forced("train", [out / name for name in results.FILES]):
        return False
    if not forced.has_begun(checkpoint_path):
        log.info("%s is forced, so it is trained from its first round", out)
        shutil.rmtree(beside(checkpoint_path, FINISHED), ignore_errors=True)
        checkpoint.discard(beside(checkpoint_path, ENDED))
        checkpoint.discard(checkpoint_path)
        forced.begin(checkpoint_path)
    return True


def beside(path: Path, end: str) -> Path:
    """Return a path beside a checkpoint's."""
    return path.with_name(f"{path.name}{end}")


def ended_states(run: Run, paths: dict[str, Path], path: Path, home: Path | None):
    """Return the last states of finished runs, in the results `home`, that this run can use."""
    from fedgrid.training.extension import Ended, without_length

    key = identify("train", without_length(run), paths).key
    others = same_work.find(home, key, path)
    limit = 1e9 * float(os.environ.get("FEDGRID_KEEP_STATE_GB", KEEP_STATE_GB))
    limit = math.inf if is_state_read(run["name"]) else limit
    return Ended(beside(path, ENDED), key, [beside(other, ENDED) for other in others], limit)


def run_rounds(run: Run, paths: dict[str, Path], saved, machine: Machine, tracked) -> tuple:
    """Return the last state, all evaluations, the state for the results, and facts on the run."""
    from fedgrid.engine.hooks.calling import settle
    from fedgrid.engine.hooks.state import Watch
    from fedgrid.runtime.watch import progress
    from fedgrid.training import results, rounds
    from fedgrid.training.build import build_engine

    stop = Interrupt()
    engine, start = build_engine(run, paths, machine)
    results.warn_of_clients(engine)
    protocol = run["protocol"]
    start, history = saved.begin(start, engine.device, protocol)
    rows, watch = tracked(history), Watch(engine)

    def check() -> None:
        settle(engine.method)
        watch.check()

    state, began = start, time.monotonic()
    with rows, progress.Rounds(start.round, protocol["rounds"]) as shown:
        for state in rounds.rounds(engine, start, history, watch):
            shown.step(history[-1])
            rows.send()
            saved.keep(state, history, stop.asked, check)
            if stop.asked:
                cli.fail(f"stopped after round {state.round}: the same command resumes from here")
    seconds = time.monotonic() - began
    facts = results.run_facts(engine, seconds, start.round, state, machine.threads)
    facts |= results.count_before(run, paths) if engine.operations is not None else {}
    model = engine.complete(engine.evaluation.deployed(state))
    return state, history, replace(state, server=model), facts


class Interrupt:
    """Handles SIGTERM: training stops after the current round."""

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, number, frame) -> None:
        """Request a stop after the current round."""
        self.asked = True
