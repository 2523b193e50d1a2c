"""(a) fedgrid's engine: FedAvg with the backend that it would choose for the device.

Compiled, it is the stack on every device, because the loop compiles nothing.
"""

from tests.benchmarks.task import SEED, Outcome

from fedgrid.engine.round import Engine
from fedgrid.method import Method


def prepare(task, compiled: bool = False):
    """An engine over the task's federation."""
    chosen = {"backend": "stacked", "compile": "on"} if compiled else {}
    engine = Engine(task.build, Method(), task.protocol, task.federation, **chosen)

    def play(rounds: int, clock) -> Outcome:
        state, accuracies = engine.start(SEED), []
        with clock:
            for number in range(rounds):
                state = engine.round(state)
                if task.plan[number].evaluated:
                    accuracies.append(engine.evaluation.evaluate(state.server)["accuracy"])
        return Outcome(dict(engine.complete(state.server)), accuracies)

    return play
