"""Accuracies between the shared and the private branch of a finished run, on a grid.

Li et al. (arXiv 2107.11954), section 5.5; the equations are in the help of the command. The text
evaluates the clients of a round after local training (definition 3.3), the authors' code all
clients as they are (`fedps_inter.py`). Both begin with the state after the last round. It is kept
beside the run's checkpoint.
"""

import csv
import logging
from collections import ChainMap
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain
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
SAMPLES = 512  # at most so many test images are shown to all private models of a cohort
COHORTS = 5  # as many as a score of the paper has evaluations (section 5.3)
NO_TESTS = (
    "no client has test samples of its own: raise the protocol's `client_test`, and train the run "
    "again"
)

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
    if engine.federation.client_tests is None:
        raise UsageError(NO_TESTS)
    table = evaluate(engine, state)
    with files.replacing(out) as temporary:
        table.to_csv(temporary, index=False)
    best = table.loc[table["mean"].where(table["evaluate_clients"] == "cohort").idxmax()]
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


def evaluate(engine, state):
    """Return the table of the clients of `COHORTS` rounds, and that of all clients."""
    import pandas as pd

    images = engine.samples.federation.test_images
    some = images[:: -(-len(images) // SAMPLES)]
    cohorts = [see_cohort(engine, state, number, some) for number in range(COHORTS)]
    everyone = see(engine, partial(engine.evaluation.evaluate_all_clients, state), some[:0])
    _, logits = engine.architecture.forward_server(state.server, engine.samples.normalise(some))
    apart = [diverge(cohort, logits.double().softmax(1)) for cohort in cohorts if cohort]
    found = {"cohort": described(list(chain(*cohorts))), "all": described(everyone)}
    found["cohort"].loc[found["cohort"]["alpha"].isna(), "divergence"] = sum(apart) / len(apart)
    tables = [table.assign(evaluate_clients=name) for name, table in found.items()]
    return pd.concat(tables, ignore_index=True)


def see_cohort(engine, state, number: int, images):
    """Return what is measured of the clients of a round after the last one, trained from there."""
    begun = replace(state, round=state.round + number, memory=ChainMap({}, state.memory))

    def play() -> None:
        engine.round(begun, engine.evaluation.start_client_evaluation())

    return see(engine, play, images)


def see(engine, play: Callable, images) -> list:
    """Return what is measured of each client that `play` evaluates, as `measure_client` does."""
    network = deepcopy(engine.architecture.live).eval()  # a backend trains in `live` itself
    found: list = []

    def note(client):
        found.append(measure_client(engine, client, network, images))
        return {}

    engine.evaluation.method = replace(engine.method, evaluate=note)
    play()
    return found


def measure_client(engine, client, network, images):
    """Return sums over a client's test samples, and its private probabilities for the images."""
    import torch

    from fedgrid.engine.client_evaluation import evaluated_model
    from fedgrid.engine.state import fill

    fill(network, evaluated_model(engine.method, client))
    with torch.no_grad(), engine.architecture.precision():
        sums = client.test(partial(count, network))
        _, own = network.classify(*network.encode(engine.samples.normalise(images)))
    return *sums, own.double().softmax(1)


def count(network, x, y):
    """Return right predictions and losses by alpha and beta, and the number of samples.

    The last alpha stands for whole models: no features are mixed. The encoders are called once, and
    the classifiers once for every alpha: not for all at once, because BatchNorm may mix the inputs
    of a call.
    """
    import torch

    found, features = [], network.encode(x)
    beta = torch.tensor(GRID, dtype=torch.double, device=y.device)[:, None, None]
    mixed = [[alpha * features[0] + (1 - alpha) * features[1]] * 2 for alpha in GRID]
    for pair in [*mixed, features]:
        ours, theirs = (part.double().softmax(1) for part in network.classify(*pair))
        mean = beta * ours + (1 - beta) * theirs
        right = (mean.argmax(-1) == y) & ~mean.isnan().any(-1)
        loss = -mean[:, torch.arange(len(y), device=y.device), y].log()
        found.append(torch.stack([right.double().sum(-1), loss.sum(-1)]))
    return torch.stack(found, 1), torch.tensor(len(y))


def diverge(cohort, server):
    """Return by beta the divergence of the clients' private models from one model for all.

    It is the mean over clients and images of sum_y D_k(y) log(D_k(y) / h(y)), where D_k has the
    probabilities of a client's private model. The model h is between their mean and the server's.
    """
    import torch

    own = torch.stack([probabilities for *_, probabilities in cohort])
    between = (beta * server + (1 - beta) * own.mean(0) for beta in GRID)
    found = [torch.xlogy(own, own) - torch.xlogy(own, h) for h in between]
    return torch.stack([parts.sum(-1).mean() for parts in found]).cpu().numpy()


def described(found):
    """Return the table of what is measured of clients: a row for every alpha and beta.

    A row without alpha has mixtures of whole models.
    """
    import numpy as np
    import pandas as pd

    if not found:
        raise UsageError(NO_TESTS)
    sums, samples = (np.stack([each[i].cpu() for each in found]) for i in range(2))
    shares, losses = np.moveaxis(sums / samples[:, None, None, None], 1, 0)
    alpha, beta = np.meshgrid((*GRID, np.nan), GRID, indexing="ij")
    columns = {"alpha": alpha, "beta": beta, "mean": shares.mean(0)}
    columns["weighted"] = np.average(shares, axis=0, weights=samples)
    columns |= {"std": shares.std(0), "loss": losses.mean(0)}
    table = pd.DataFrame({name: values.ravel() for name, values in columns.items()})
    return table.assign(clients=len(samples), divergence=np.nan)
