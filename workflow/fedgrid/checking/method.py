"""Try a method on a federation so small that it takes seconds, and say what is wrong with it.

Each trial plays some rounds in double precision, with momentum, weight decay and clients of
different sizes, one of which is empty. What may go wrong: the backends disagree, or padding counts;
a run is not repeatable; a resumed run is another one; a client's position in the round is taken for
its number; a mean is given where sums are added up; a tensor is made on the CPU where others are on
a GPU; neutral hyper-parameters do not give FedAvg.
"""

import copy
import math
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from operator import or_
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fedgrid.checking import small
from fedgrid.checking.order import turn_order
from fedgrid.checking.simulated_gpu import CPU, simulated_gpu
from fedgrid.engine import samples
from fedgrid.engine.hooks.arguments import tensors
from fedgrid.engine.hooks.calling import IN_STEP, file_and_line, hooks
from fedgrid.engine.hooks.hints import hint
from fedgrid.engine.hooks.state import Watch
from fedgrid.engine.hooks.trial import describe_idle
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState, own_model
from fedgrid.engine.traffic import count_bytes
from fedgrid.federation.federation import Pool
from fedgrid.federation.protocols import changed_protocol
from fedgrid.method import Memory, Method, Model
from fedgrid.models import Classifier
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, in_words, shown_error
from fedgrid.runtime.places import PACKAGE
from fedgrid.runtime.resolved import MethodParts, Protocol
from fedgrid.study.protocol import PROTOCOL
from fedgrid.training.build import build_part, check_method

FILES = frozenset((PACKAGE / "methods", PACKAGE / "models"))  # in which a line is the one at fault
ROUNDS = 2
MANY = 6  # rounds of a run that is resumed in each; some mistakes begin late
SIZES = (2, 9, 4, 0, 10)  # an empty client, one with less than a batch, and padded batches
FEW = 2  # samples in a small chunk
LITTLE = 0.3  # of a model; what clients keep less of is not described
ROUNDING = 1e-9  # relative
CLOSE = 1e-6  # relative; both backends add the same numbers in another order
SETTING: dict[str, Any] = {
    **{"clients": len(SIZES), "participation": 0.8, "rounds": ROUNDS, "local": 1},
    **{"local_unit": "epochs", "batch": 4, "smallest_batch": 2, "lr": 0.05, "momentum": 0.9},
    **{"weight_decay": 0.01, "precision": "fp64", "client_test": 0.2},
}
EFFECTIVE = (  # functions that change models; the others give columns, or what these read
    *("choose", "begin", "loss", "penalty", "correct", "rate", "remember", "send", "weigh"),
    *("reweigh", "scale", "aggregate", "server", "share", "refine", "deploy", "personal"),
)
SMALL_CHUNKS = (
    "a run in which `total` and `test` call their function with fewer samples at once (it must "
    "give a sum over samples, not a mean)"
)
OTHER_ORDER = (
    "a run in which the server has the clients of a round in another order (a client's number is "
    "in `cohort.clients`, and is not its position)"
)
LONGER = (
    "the beginning of a run of more rounds (a method that reads the number of rounds says so in "
    "its file, with `ROUNDS = True`)"
)
STACKED = "a run in the backend stacked, which pads batches,"
PARTS = "server", "shared", "memory"  # of a run, in which another is compared with it
# Few methods are exactly FedAvg with momentum or weight decay.
PLAIN: dict[str, Any] = {"momentum": 0.0, "weight_decay": 0.0, "optimiser": "sgd"}


@dataclass
class Findings:
    hooks: list[tuple[str, str, str]] = field(default_factory=list)  # field, place, what it gives
    facts: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check(parts: MethodParts) -> Findings:
    trial, findings = Trial(parts), Findings()
    try:
        first, state = trial.play("loop")
    except Exception as problem:
        return Findings(problems=[describe_problem(problem)])
    findings.hooks = [
        (hook.name, file_and_line(hook.function), hook.gave) for hook in hooks(first.method)
    ]
    findings.facts = describe(first) | describe_memory(state, parts)
    if places := [place for place, t in leaves(state).items() if not t.isfinite().all()]:
        said = f"after {ROUNDS} rounds {places[0]} has numbers that are not finite"
        findings.problems.append(said)
        return findings
    if idle := [*trial.without_effect()]:
        findings.facts["no effect"] = f"a run is the same without {in_words(idle)}"
    if trial.draws:
        findings.facts["random numbers"] = "the network draws some, so backends are not compared"
    if not any(map(read_neutral, parts)):
        findings.facts["FedAvg"] = "not compared: the file has no NEUTRAL hyper-parameters"
    findings.problems.extend(trial.compare(state))
    return findings


def describe(engine: Engine) -> dict[str, str]:
    """Return what travels in a round, by direction: in bytes, and relative to FedAvg's model."""
    model = count_bytes(dict(network_for(engine.method)(0).state_dict()))
    ways = {"down": "to a client", "up": "from a client"}
    sent = {words: engine.traffic[way] for way, words in ways.items()}
    return {
        words: f"{number / model:.2f} times the model, {number:,} bytes of the tiny network here"
        for words, number in sent.items()
    }


def network_for(method: Method) -> Callable[[int], Classifier]:
    """Return what makes the network: without BatchNorm if nothing but changes may leave clients."""
    return partial(small.tiny, norms=not method.discreet)


def describe_memory(state: RunState, parts: MethodParts) -> dict[str, str]:
    """Return what clients keep, relative to their model, if they or the files say that they do."""
    kept = max((count_kept(state.server, memory) for memory in state.memory.values()), default=0.0)
    said = sum(source.literal(f"methods.{part}", "MODELS_KEPT", 0) for part in parts)
    if max(kept, said) < LITTLE:
        return {}
    file = f"MODELS_KEPT = {said}" if said else "no MODELS_KEPT"
    return {"kept by a client": f"{kept:.2f} times its model, and the file says {file}"}


def count_kept(server: Model, memory: Memory) -> float:
    """Return the size of what a client keeps, relative to that of its model."""
    return count_bytes(memory) / count_bytes(own_model(server, memory))


class Trial:
    """Plays rounds of one method, and compares them with others that must be equal."""

    def __init__(self, parts: MethodParts):
        self.parts, self.draws = parts, False
        self.without: dict[str, Any] = {}  # a function of the method that a trial leaves out
        self.seen: list[Any] = []  # the evaluation at the end of the last run, one after the other

    def setting(self, **fields: Any) -> Protocol:
        """Return the protocol of a trial: an optimiser for which the method's equations hold."""
        method = self.method(self.parts)
        own: dict[str, Any] = {"optimiser": method.optimisers[0]} if method.optimisers else {}
        own |= {} if own.get("optimiser") == "sgd" else {"momentum": 0.0}
        return changed_protocol(PROTOCOL, SETTING | own | fields)

    @staticmethod
    def method(parts: MethodParts) -> Method:
        return reduce(or_, (build_part(*given) for given in parts.items()), Method())

    def engine(
        self, backend: str, parts: MethodParts, protocol: Protocol, device: torch.device
    ) -> Engine:
        """Return a new engine on the device, with results of other stages at random."""
        method = replace(self.method(parts), **self.without)
        check_method(" with ".join(parts), method, protocol)
        data = small.uneven(SIZES)
        ids = torch.arange(len(data.labels))
        tests = Pool(data.images, data.labels, ids, [*SIZES])
        own = ids.numpy()[::5] if says(parts, "SERVER_DATA") else ids.numpy()[:0]
        data = replace(data, client_tests=tests, server=own.copy())
        needed: dict[str, Any] = {}
        for part in parts:
            needed |= small.artifacts(part, len(SIZES))
        data, needed = small.move_federation(data, device), small.move(needed, device)
        return Engine(network_for(method), method, protocol, data, backend, needed)

    def play(
        self,
        backend: str,
        parts: MethodParts | None = None,
        resumed: bool = False,
        turned: bool = False,
        until: int = ROUNDS,
        device: torch.device = CPU,
        **fields: Any,
    ) -> tuple[Engine, RunState]:
        """Return engine and run after the rounds `until` one; all are played by one engine.

        If it is `resumed`, a new engine plays each round, with files of methods that are imported
        anew, as another process would do. If it is `turned`, the server has the clients of a round
        in the opposite order.
        """
        protocol, parts = self.setting(**fields), parts or self.parts
        engine = self.engine(backend, parts, protocol, device)
        if turned:
            turn_order(engine.method)
        state = engine.start(0)
        watch = Watch(engine)
        for _ in range(until):
            if resumed:
                with imported_anew():
                    engine = self.engine(backend, parts, protocol, device)
                engine.start(0)
                watch, state = Watch(engine), copy.deepcopy(state)
            state = engine.round(state)
            watch.check()
        self.draws = self.draws or drew_numbers()
        evaluation = engine.evaluation
        clients = evaluation.evaluate_all_clients(state).results(evaluation.deployed(state))
        self.seen = tree_leaves((clients, evaluation.evaluate_server(state)))
        return engine, state

    def play_on_gpu(self) -> RunState:
        """Return the run after all rounds on a GPU that needs none, with its tensors on the CPU."""
        with simulated_gpu() as gpu:
            state = self.play("loop", device=gpu)[1]
            parts = {name: getattr(state, name) for name in PARTS}
            return replace(state, **small.move(parts, CPU))

    def play_in_small_chunks(self) -> RunState:
        """Return the run after all rounds if a client's data come a few samples at a time."""
        with patch.object(samples, "CHUNK", FEW):
            return self.play("loop")[1]

    def without_effect(self) -> Iterator[str]:
        """Yield the functions without which the server's models and all evaluations are the same.

        `self.seen` has the evaluation of the method with all of them.
        """
        seen, made = self.seen, self.method(self.parts)
        for name in filter(partial(getattr, made), EFFECTIVE):
            try:
                with patch.object(self, "without", {name: None}):
                    self.play("loop")
            except Exception:  # another function needs what it gives
                continue
            if len(self.seen) == len(seen) and all(map(near, self.seen, seen)):
                yield f"`{name}`"

    def compare(self, state: RunState) -> Iterator[str]:
        trials: list[tuple[str, Callable[[], RunState], float]] = [
            ("a second run of the same seed", lambda: self.play("loop")[1], 0.0),
            (SMALL_CHUNKS, self.play_in_small_chunks, CLOSE),
            (OTHER_ORDER, lambda: self.play("loop", turned=True)[1], CLOSE),
        ]
        if not says(self.parts, "ROUNDS"):
            trials += [(LONGER, lambda: self.play("loop", rounds=ROUNDS + 1)[1], 0.0)]
        if not self.draws:
            trials += [(STACKED, lambda: self.play("stacked")[1], CLOSE)]
            trials += [("a run on a simulated GPU", self.play_on_gpu, CLOSE)]
        for name, play, tolerance in trials:
            yield from self.differ(name, "the first run", state, play, tolerance)
        yield from self.compare_resumed()
        yield from self.compare_with_fedavg()

    def compare_resumed(self) -> Iterator[str]:
        """Yield a sentence if a longer run fails, or is another one when it is resumed.

        Then name the functions that change no local step, from its first round to its last.
        """
        longer: dict[str, Any] = {"until": MANY, "rounds": MANY}
        try:
            engine, state = self.play("loop", **longer)
        except Exception as problem:
            yield f"a run of {MANY} rounds fails: {describe_problem(problem)}"
            return
        yield from self.differ(
            "a run that is stopped after each round and resumed", "one that is not", state,
            lambda: self.play("loop", resumed=True, **longer)[1], 0.0,
        )  # fmt: skip
        yield from (describe_idle(hook) for hook in hooks(engine.method, *IN_STEP) if hook.idle)

    def compare_with_fedavg(self) -> Iterator[str]:
        """Yield a sentence if the method with its neutral hyper-parameters is not FedAvg.

        Of a combined method, files without such hyper-parameters stay on both sides.
        """
        values = {part: read_neutral(part) for part in self.parts}
        if not any(values.values()):
            return
        neutral = {part: given | values[part] for part, given in self.parts.items()}
        rest = {part: given for part, given in self.parts.items() if not values[part]}
        expected = RunState(self.play("loop", rest or {"fedavg": {}}, **PLAIN)[1].server, {})
        yield from self.differ(
            "a run with NEUTRAL hyper-parameters", " with ".join(rest) or "FedAvg", expected,
            lambda: RunState(self.play("loop", neutral, **PLAIN)[1].server, {}), CLOSE,
        )  # fmt: skip

    def differ(
        self, name: str, other: str, expected: RunState, play: Callable[[], RunState], within: float
    ) -> Iterator[str]:
        """Yield a sentence if a run fails, or is not the expected one."""
        try:
            found = play()
        except Exception as problem:
            yield f"{name} fails: {describe_problem(problem)}"
            return
        if place := difference(found, expected, within):
            yield f"{name} is not {other}: they differ in {place}"


@contextmanager
def imported_anew() -> Iterator[None]:
    """While it is on, the files of methods are imported anew, as by another process."""
    with patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.startswith("fedgrid.methods.")]:
            del sys.modules[name]
        yield


def describe_problem(problem: Exception) -> str:
    """Return what failed in words, with the last line of the package that was at work."""
    if isinstance(problem, UsageError):
        return str(problem)
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if not FILES.isdisjoint(Path(frame.filename).parents)]
    where = (own or frames)[-1]
    place = f"{Path(where.filename).name}, line {where.lineno}"
    return f"{place}: {shown_error(problem)}{hint(problem, ())}"


def near(one: Any, other: Any) -> bool:
    """Whether two values are the same, or numbers that differ by rounding."""
    both_floats = isinstance(one, float) and isinstance(other, float)
    return str(one) == str(other) or (both_floats and math.isclose(one, other, rel_tol=ROUNDING))


def drew_numbers() -> bool:
    """Whether torch's random numbers were used since they were seeded: by dropout, for example."""
    unused = torch.Generator().manual_seed(torch.initial_seed())
    return not torch.equal(unused.get_state(), torch.get_rng_state())


def says(parts: MethodParts, constant: str) -> bool:
    return any(source.literal(f"methods.{part}", constant, False) for part in parts)


def read_neutral(part: str) -> dict[str, Any]:
    """Return the hyper-parameters with which a file's method is FedAvg; empty if it has none."""
    return dict(source.literal(f"methods.{part}", "NEUTRAL", ()))


def difference(found: RunState, expected: RunState, tolerance: float) -> str:
    """Return where two runs differ by more than the relative tolerance; empty if nowhere."""
    ours, theirs = leaves(found), leaves(expected)
    for place in sorted(ours.keys() ^ theirs.keys()):
        return f"{place}, which one of them lacks"
    for place, tensor in theirs.items():
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        apart = (ours[place] - tensor).abs().max() if tensor.numel() else torch.zeros(())
        if not float(apart) <= tolerance * max(largest, CLOSE):
            return f"{place}, by {float(apart):.2g} where the largest number is {largest:.2g}"
    return ""


def leaves(state: RunState) -> dict[str, Tensor]:
    """Return all tensors of a run by their place, as numbers of double precision."""
    every = (tensors(dict(getattr(state, part)), part) for part in PARTS)
    return {place: leaf.double() for place, leaf in chain.from_iterable(every)}
