"""Hold a method of the engine against the same method as a plain loop, in float64."""

import json
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from conftest import PROTOCOL, Simulation, methods, simulate, tiny, uneven
from fedgrid.checking.plain import SETTING, SIZES
from fedgrid.engine.client_evaluation import evaluated_model
from fedgrid.engine.state import RunState
from fedgrid.federation.federation import Federation
from fedgrid.method import Method
from fedgrid.runtime.code import source
from oracles.base import Plain

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def run(method: Method, rounds: int = 3, data: Federation | None = None, **protocol) -> Simulation:
    """An engine and the run of a method after rounds of the backend loop."""
    made = simulate(method, "loop", data or uneven(SIZES), **SETTING | protocol)
    made.play(rounds)
    return made


def engine(method: Method, rounds: int = 3, data: Federation | None = None, **protocol) -> RunState:
    """The run of a method after rounds of the backend loop."""
    return run(method, rounds, data, **protocol).run


def loop(kind: type[Plain], name: str, keywords: dict, rounds: int = 3, **protocol) -> Plain:
    """A plain loop with the hyper-parameters of a method's file, after these rounds."""
    given = source.keywords(f"methods.{name}", "method") | keywords
    made = type(kind.__name__, (kind,), {"p": SimpleNamespace(**given)})
    plain = made(tiny, uneven(SIZES), PROTOCOL | SETTING | protocol, 7)
    plain.play(rounds)
    return plain


def own(found: Simulation, client: int) -> dict:
    """The model by which the engine evaluates a client that waits for its next round."""
    engine = found.engine
    return evaluated_model(engine.method, engine.population.idle_client(found.run, client))


def compare(found: Simulation, plain: Plain) -> None:
    """Hold the server's model, what it deploys, and clients' own models against a plain loop."""
    server = found.run.server
    expected = plain.model.state_dict()
    sizes = [p.numel() for p in plain.model.parameters()]
    names = [name for name, _ in plain.model.named_parameters()]

    def named(vector: Tensor) -> dict[str, Tensor]:
        parts = zip(names, vector.split(sizes), strict=True)
        return {n: part.view_as(expected[n]) for n, part in parts}

    public = found.engine.public(n for n in expected if n in server)
    served = expected | named(plain.served())
    torch.testing.assert_close(
        {n: server[n] for n in public}, {n: served[n] for n in public}, **CLOSE
    )
    if found.engine.method.deploy:
        deployed = found.engine.evaluation.deployed(found.run)
        served = named(plain.deployed())
        torch.testing.assert_close({n: deployed[n] for n in served}, served, rtol=1e-7, atol=1e-9)
    if hasattr(plain, "own"):
        for client in range(len(SIZES)):
            model, wanted = own(found, client), dict(plain.own(client))
            torch.testing.assert_close({n: model[n] for n in wanted}, wanted, **CLOSE)
    else:  # the method's own equations must have moved a model
        fields = {n: v for n, v in found.engine.protocol.items() if n != "rounds"}
        usual = _fedavg(found.run.round, json.dumps(fields))
        away = max(float((usual[n] - served[n]).abs().max()) for n in served)
        assert away > 1e-6 or found.engine.method == methods("fedavg")


@cache
def _fedavg(rounds: int, protocol: str) -> dict[str, Tensor]:
    """FedAvg's model after rounds of a protocol as JSON."""
    return engine(methods("fedavg"), rounds, **json.loads(protocol)).server
