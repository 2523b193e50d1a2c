"""(a) fedgrid's engine: FedAvg with the backend that it would choose for the device."""

from tests.benchmarks.task import SEED, Outcome

from fedgrid.engine.round import Engine
from fedgrid.method import Method


def prepare(task):
    """An engine over the task's federation."""
    engine = Engine(task.build, Method(), task.protocol, task.federation)

    def play(rounds: int, clock) -> Outcome:
        state, accuracies = engine.start(SEED), []
        with clock:
            for number in range(rounds):
                state = engine.round(state)
                if task.plan[number].evaluated:
                    accuracies.append(engine.evaluate(state.server)["accuracy"])
        return Outcome(dict(engine.complete(state.server)), accuracies)

    return play
