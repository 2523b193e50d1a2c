"""(b) A sequential loop as paper repositories write it.

A deepcopy of the server's model per client, a DataLoader over a Subset of a TensorDataset, which
holds the images normalised beforehand, torch.optim.SGD, and state dicts averaged by samples.
"""

import copy
from functools import partial

import torch
import torch.nn.functional as F
from tests.benchmarks.task import Outcome
from torch.utils.data import DataLoader, Subset, TensorDataset

EVALUATION_BATCH = 100


def prepare(task):
    """The loop over DataLoaders."""
    data = TensorDataset(task.inputs(), task.federation.labels.cpu())
    tests = TensorDataset(task.test_inputs(), task.federation.test_labels.cpu())
    members = [torch.from_numpy(ids) for ids in task.federation.members]
    positions = [
        [
            [torch.searchsorted(members[turn.client], batch).tolist() for batch in turn.batches]
            for turn in planned.turns
        ]
        for planned in task.plan
    ]  # in each client's own subset

    def batches(number: int, place: int, turn):
        subset = Subset(data, task.federation.members[turn.client])
        return DataLoader(subset, batch_sampler=positions[number][place])

    def test_batches():
        return DataLoader(tests, batch_size=EVALUATION_BATCH)

    return partial(federate, task, batches, test_batches)


def federate(task, batches, test_batches, rounds: int, clock) -> Outcome:
    """FedAvg over `batches(round, place in the cohort, turn)` of every client."""
    server, accuracies = task.model(), []
    with clock:
        for number, planned in enumerate(task.plan[:rounds]):
            states = []
            for place, turn in enumerate(planned.turns):
                model = copy.deepcopy(server)
                train(task, model, batches(number, place, turn), planned.lr)
                states.append(model.state_dict())
            mean = average(states, [turn.samples for turn in planned.turns])
            server.load_state_dict(mean, strict=False)  # without BatchNorm's counters
            if planned.evaluated:
                accuracies.append(evaluate(server, test_batches(), task.device))
    return Outcome(server.state_dict(), accuracies)


def train(task, model, batches, lr: float) -> float:
    """One client's local steps; its summed loss."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, **task.sgd)
    model.train()
    total = 0.0
    for x, y in batches:
        x, y = x.to(task.device), y.to(task.device)
        optimiser.zero_grad()
        _, logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total


def average(states: list[dict], sizes: list[int]) -> dict:
    """The mean of state dicts, weighted by samples."""
    total = sum(sizes)
    mean = {name: tensor * (sizes[0] / total) for name, tensor in states[0].items()}
    for state, size in zip(states[1:], sizes[1:], strict=True):
        for name in mean:
            mean[name] += state[name] * (size / total)
    return mean


@torch.no_grad()
def evaluate(model, batches, device) -> float:
    """Accuracy on the test set."""
    model.eval()
    correct = samples = 0
    for x, y in batches:
        _, logits = model(x.to(device))
        correct += (logits.argmax(1) == y.to(device)).sum().item()
        samples += len(y)
    return correct / samples
