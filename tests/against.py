"""Hold a method of the engine against the same method as a plain loop, in float64."""

import json
from functools import cache

import torch
from torch import Tensor

from conftest import PROTOCOL, Simulation, methods, simulate, tiny, uneven
from fedgrid.checking.plain import SETTING, SIZES, PlainLoop
from fedgrid.engine.state import RunState
from fedgrid.federation.federation import Federation
from fedgrid.method import Method

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def run(method: Method, rounds: int = 3, data: Federation | None = None, **protocol) -> Simulation:
    """An engine and the run of a method after rounds of the backend loop."""
    made = simulate(method, "loop", data or uneven(SIZES), **SETTING | protocol)
    made.play(rounds)
    return made


def engine(method: Method, rounds: int = 3, data: Federation | None = None, **protocol) -> RunState:
    """The run of a method after rounds of the backend loop."""
    return run(method, rounds, data, **protocol).run


def loop(
    plain: type[PlainLoop], rounds: int = 3, data: Federation | None = None, **protocol
) -> tuple[PlainLoop, dict[str, Tensor]]:
    """A plain loop after these rounds, and the entries of its server's model."""
    made = plain(tiny, data or uneven(SIZES), PROTOCOL | SETTING | protocol, 7)
    return made, dict(made.play(rounds))


def compare(plain: type[PlainLoop], method: Method, rounds: int = 3, **protocol) -> float:
    """Hold the server's models after some rounds against each other; return how far apart.

    A method's own equations must have moved the model, so it is held apart from FedAvg's, too.
    """
    found = engine(method, rounds, **protocol).server
    expected = loop(plain, rounds, **protocol)[1]
    torch.testing.assert_close(found, expected, **CLOSE)
    usual = _fedavg(rounds, json.dumps(protocol))
    assert max(float((usual[n] - w).abs().max()) for n, w in found.items()) > 1e-6
    return max(float((expected[n] - w).abs().max()) for n, w in found.items())


@cache
def _fedavg(rounds: int, protocol: str) -> dict[str, Tensor]:
    """FedAvg's model after rounds of a protocol as JSON."""
    return engine(methods("fedavg"), rounds, **json.loads(protocol)).server


def is_fedavg(method: Method, rtol: float = 0.0, atol: float = 0.0, weighed: str = "") -> None:
    """Hold the server's model against FedAvg's: to the last bit, or as near as is said.

    `weighed` is a method whose weights FedAvg gets.
    """
    usual = engine(methods(weighed or "fedavg")).server
    torch.testing.assert_close(engine(method).server, usual, rtol=rtol, atol=atol)
