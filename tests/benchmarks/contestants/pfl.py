"""(e) pfl-research: FederatedAveraging on its SimulatedBackend, in one process.

Its first central iteration evaluates every user before and after training, whatever is asked; so
that iteration is the warm-up, and the clock starts when the initial weights are back. It averages
parameters and leaves BatchNorm's running statistics as the last client had them: parameters alone
are compared.
"""

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import HyperParam, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from tests.benchmarks.contestants import plain, tensors
from tests.benchmarks.task import Outcome
from torch import nn

NEVER = 10**9


class Adapted(nn.Module):
    """The task's model with the two methods that pfl asks for."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def loss(self, x, y):
        """What is minimised."""
        self.train()
        return F.cross_entropy(self.model(x)[1], y)

    @torch.no_grad()
    def metrics(self, x, y):
        """Of the evaluation in the warm-up."""
        self.eval()
        return {"loss": Weighted(F.cross_entropy(self.model(x)[1], y).item() * len(y), len(y))}


class Scheduled(PyTorchTensorDataset):
    """A user's data in the order that the task has planned."""

    def __init__(self, images, labels, turn, user_id: str):
        super().__init__((images, labels), user_id=user_id)
        self.turn = turn

    def __len__(self):
        return self.turn.samples

    def iter(self, batch_size):
        """The batches of all local steps."""
        images, labels = self.raw_data
        for index in self.turn.batches:
            yield images[index], labels[index]


class Rate(HyperParam):
    """The learning rate of the round."""

    def __init__(self, task):
        self.task, self.number = task, 0

    def value(self) -> float:
        """That of now."""
        return self.task.plan[self.number].lr


class Watch(TrainingProcessCallback):
    """Goes back to the initial weights after the warm-up, starts the clock, and evaluates."""

    def __init__(self, task, rounds: int, clock, rate: Rate, test_batches):
        self.task, self.rounds, self.clock, self.rate = task, rounds, clock, rate
        self.test_batches, self.accuracies = test_batches, []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Between two rounds."""
        adapted = model.pytorch_model
        if central_iteration == 0:
            adapted.model.load_state_dict(self.task.initial, strict=False)
            self.clock.start()
            return False, Metrics()
        if self.task.plan[central_iteration - 1].evaluated:
            found = plain.evaluate(adapted.model, self.test_batches(), self.task.device)
            self.accuracies.append(found)
        if central_iteration == self.rounds:
            self.clock.stop()
        self.rate.number = min(central_iteration, self.rounds - 1)
        return False, Metrics()


def prepare(task):
    """pfl's model, backend and algorithm."""
    images, labels = task.inputs(), task.federation.labels
    test_batches = tensors.prepare(task).args[2]

    def play(rounds: int, clock) -> Outcome:
        model = PyTorchModel(
            Adapted(task.model()),
            lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, **task.sgd),
            None,
        )
        model._central_optimizer = torch.optim.SGD(model.pytorch_model.parameters(), lr=1.0)
        users = iter([(r, p) for r in (0, *range(rounds)) for p in places(task, r)])
        data = FederatedDataset(
            lambda user: Scheduled(images, labels, task.plan[user[0]].turns[user[1]], str(user)),
            lambda: next(users),
        )
        rate = Rate(task)
        watch = Watch(task, rounds, clock, rate, test_batches)
        np.random.seed(0)
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds + 1,
                evaluation_frequency=NEVER,
                train_cohort_size=len(task.plan[0].turns),
                val_cohort_size=0,
            ),
            SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
            model,
            NNTrainHyperParams(
                local_num_epochs=1,
                local_learning_rate=rate,
                local_batch_size=task.protocol["batch"],
            ),
            callbacks=[watch],
        )
        state = dict(model.pytorch_model.model.named_parameters())
        return Outcome(state, watch.accuracies)

    return play


def places(task, number: int) -> range:
    """The cohort's places in a round."""
    return range(len(task.plan[number].turns))
