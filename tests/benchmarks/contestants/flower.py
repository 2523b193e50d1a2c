"""(d) Flower's simulation: `run_simulation` with its FedAvg strategy, on one Ray actor.

Flower's nodes have ids of its own, so the strategy tells each sampled node which client it is to
be. The first server round warms the actor up; then all begins again from the initial weights and
the clock starts, so that neither the start of Ray nor the set-up of the data is measured.
"""

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes
from flwr.simulation import run_simulation
from tests.benchmarks.contestants import plain, tensors
from tests.benchmarks.task import Outcome, make

BACKEND = {
    "init_args": {"num_cpus": 1, "include_dashboard": False},
    "client_resources": {"num_cpus": 1, "num_gpus": 0},
}


class Strategy(FedAvg):
    """FedAvg over the task's cohorts; round 1 is the warm-up and its weights are thrown away."""

    def __init__(self, task, initial: ArrayRecord):
        super().__init__(fraction_evaluate=0.0)
        self.task, self.initial = task, initial

    def configure_train(self, server_round, arrays, config, grid):
        """A message to as many nodes as there are clients in the cohort."""
        number = max(server_round - 2, 0)
        cohort = range(len(self.task.plan[number].turns))
        population = len(self.task.federation.members)
        nodes, _ = sample_nodes(grid, population, len(cohort))  # waits until all are there
        return [
            Message(
                content=RecordDict(
                    {
                        "arrays": arrays,
                        "config": ConfigRecord({"round": number, "place": place}),
                    }
                ),
                message_type=MessageType.TRAIN,
                dst_node_id=node,
            )
            for place, node in zip(cohort, nodes, strict=True)
        ]

    def aggregate_train(self, server_round, replies):
        """The mean, or the initial weights after the warm-up; no client may have failed."""
        replies = list(replies)
        reasons = [reply.error.reason for reply in replies if reply.has_error()]
        if reasons or len(replies) < len(self.task.plan[max(server_round - 2, 0)].turns):
            raise RuntimeError(f"{len(replies)} replies, of which failed: {reasons}")
        arrays, metrics = super().aggregate_train(server_round, replies)
        return (self.initial if server_round == 1 else arrays), metrics


def client_app(key: tuple) -> ClientApp:
    """A client that trains as (c) does."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        from tests.benchmarks.contestants import flower

        return flower.reply(key, message)

    return app


def reply(key: tuple, message):
    """What a client sends back."""
    import torch

    torch.set_num_threads(1)
    task = make(*key)
    model, batches = worker(key)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
    config = message.content["config"]
    planned = task.plan[config["round"]]
    turn = planned.turns[config["place"]]
    loss = plain.train(task, model, batches(config["round"], config["place"], turn), planned.lr)
    metrics = MetricRecord({"num-examples": turn.samples, "loss": loss})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


KEPT = {}  # what an actor keeps between clients: its model and data


def worker(key: tuple):
    """The actor's model and (c)'s batches."""
    if key not in KEPT:
        task = make(*key)
        KEPT[key] = task.model(), tensors.prepare(task).args[1]
    return KEPT[key]


def prepare(task):
    """A simulation of its own for every repeat."""
    server, test_batches = task.model(), tensors.prepare(task).args[2]
    initial = ArrayRecord(task.initial)

    def play(rounds: int, clock) -> Outcome:
        accuracies, final = [], []

        def evaluate(server_round: int, arrays):
            if server_round == 1:
                clock.start()
            elif server_round > 1:
                if task.plan[server_round - 2].evaluated:
                    server.load_state_dict(arrays.to_torch_state_dict(), strict=False)
                    accuracies.append(plain.evaluate(server, test_batches(), task.device))
                if server_round == rounds + 1:
                    clock.stop()
                    final.append(arrays.to_torch_state_dict())

        app = ServerApp()

        @app.main()
        def main(grid, context):
            strategy = Strategy(task, initial)
            strategy.start(grid, initial, num_rounds=rounds + 1, evaluate_fn=evaluate)

        run_simulation(
            server_app=app,
            client_app=client_app(task.key),
            num_supernodes=len(task.federation.members),
            backend_config=BACKEND,
        )
        return Outcome(final[0], accuracies)

    return play
