"""Accuracies between the shared and the private branch of a finished run, on a grid.

Li et al. (arXiv 2107.11954), section 5.5; the equations are in the help of the command. The models
are those at the end of the run, from the last state that is kept beside its checkpoint.
"""

import csv
import logging
from pathlib import Path

from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Run
from fedgrid.stages.train import beside, ended_states
from fedgrid.study.command import Machine
from fedgrid.training.same_work import FINISHED

# Every tenth, and more values near the ends, where the paper's figure of FEMNIST is finer. They
# cost little, so all datasets have the same grid.
GRID = (0, 0.01, 0.02, 0.05, *(tenth / 10 for tenth in range(1, 10)), 0.95, 0.98, 0.99, 1)

log = logging.getLogger(__name__)


def interpolate(
    run: Run,
    paths: dict[str, Path],
    checkpoint: Path,
    home: Path,
    out: Path,
    machine: Machine,
) -> None:
    """Write the table of a resolved run; the results `home` may have it under other names."""
    from fedgrid.training.build import build_engine

    inputs = {name: path for name, path in paths.items() if name != "metrics"}
    engine, _ = build_engine(run, inputs, machine)
    check_branches(run, engine)
    ended = ended_states(run, inputs, checkpoint, home)
    state = last_state(ended, last_round(paths["metrics"]), paths["metrics"], checkpoint)
    table = described(accuracies(engine, state))
    with files.replacing(out) as temporary:
        table.to_csv(temporary, index=False)
    best = table.loc[table["mean"].idxmax()]
    log.info("%s: %.4f at alpha %g, beta %g", out, best["mean"], best["alpha"], best["beta"])


def check_branches(run: Run, engine) -> None:
    """Refuse a run whose model has not two whole branches."""
    from fedgrid.models._branches import Branches

    model, name = engine.architecture.empty, run["name"]["method"]
    if not (isinstance(model, Branches) and model.is_double()):
        raise UsageError(
            f"method `{name}` has not two whole branches, a shared and a private one, between "
            "which one could interpolate: choose one that has, such as ssp with `split: 0`"
        )


def last_round(metrics: Path) -> int:
    """Return the last evaluated round of a finished run."""
    with files.whole(str(metrics)), metrics.open() as file:
        *_, last = csv.DictReader(file)
        return int(last["round"])


def last_state(ended, rounds: int, metrics: Path, checkpoint: Path):
    """Return the state of a run after its last round, its own or that of the same run's namesake.

    What the clients keep is read from disk when it is used.
    """
    from fedgrid.training import checkpoint as states
    from fedgrid.training.extension import rounds_of
    from fedgrid.training.sealed import UnusableError

    for path in (ended.own, *ended.others):
        if rounds_of(path, ended.key) != rounds:
            continue
        try:
            return states.read(path, ended.key, "cpu")[0]
        except UnusableError as problem:
            log.warning("%s %s: it is not used", path, problem)
    raise UsageError(
        f"the clients' models after round {rounds} of {metrics.parent} are not kept: raise "
        f"`keep_state_gb` in config.yaml, delete {metrics.parent} and "
        f"{beside(checkpoint, FINISHED)}, also of the same run under other names, and train it "
        "again"
    )


def accuracies(engine, state):
    """Return the share of right predictions by client, alpha and beta, and samples by client."""
    import torch

    from fedgrid.engine.state import fill, own_model

    model, found = engine.architecture.live.eval(), []
    for client in range(len(engine.federation.members)):
        memory = engine.population.memory(state, client)
        fill(model, own_model(state.server, memory))
        counted = engine.samples.total_client_test(
            client, lambda x, y: (right(engine.architecture, x, y), torch.tensor(len(y)))
        )
        if counted is not None:
            found.append(counted)
    if not found:
        raise UsageError(
            "no client has test samples of its own: raise the protocol's `client_test`, and train "
            "the run again"
        )
    correct, samples = map(torch.stack, zip(*found, strict=True))
    return (correct.cpu() / samples[:, None, None]).numpy(), samples.numpy()


def right(architecture, x, y):
    """Return the number of right predictions by alpha and beta, for one client's samples.

    The encoders are called once, and the classifiers once for every alpha: not for all at once,
    because BatchNorm may mix the inputs of a call.
    """
    import torch

    model, found = architecture.live, []
    beta = torch.tensor(GRID, dtype=torch.double, device=y.device)[:, None, None]
    with torch.no_grad(), architecture.precision():
        shared, own = model.encode(x)
        for alpha in GRID:
            mixed = alpha * shared + (1 - alpha) * own
            logits = model.classify(mixed, mixed)
            ours, theirs = (part.double().softmax(1) for part in logits)
            mean = beta * ours + (1 - beta) * theirs
            sane = ~mean.isnan().any(-1)
            found.append(((mean.argmax(-1) == y) & sane).sum(-1))
    return torch.stack(found)


def described(found):
    """Return the table of accuracies (clients, alphas, betas) with the clients' samples."""
    import numpy as np
    import pandas as pd

    shares, samples = found
    alpha, beta = np.meshgrid(GRID, GRID, indexing="ij")
    columns = {"alpha": alpha, "beta": beta, "mean": shares.mean(0)}
    columns["weighted"] = np.average(shares, axis=0, weights=samples)
    columns["std"] = shares.std(0)
    table = pd.DataFrame({name: values.ravel() for name, values in columns.items()})
    return table.assign(clients=len(samples))
