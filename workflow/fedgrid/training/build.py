"""Build the engine of a resolved run: device, data, model, method and results of other stages."""

from functools import reduce
from operator import or_
from pathlib import Path

import torch

from fedgrid import models
from fedgrid.engine import metrics
from fedgrid.engine.device import prepare
from fedgrid.engine.hooks import state
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.federation import array_files, conditions, schedule, seeds
from fedgrid.federation.federation import Federation, load_federation
from fedgrid.federation.protocols import changed_protocol, has_client_test, list_needed_stages
from fedgrid.method import Method
from fedgrid.partitions import EACH_WRITER
from fedgrid.runtime import files
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import UsageError, known, registered, shown
from fedgrid.runtime.resolved import Protocol, Run
from fedgrid.study.checks import check_allowed, check_cohort, check_population, needs_client_test
from fedgrid.study.command import Machine


def build_engine(run: Run, paths: dict[str, Path], machine: Machine) -> tuple[Engine, RunState]:
    """Return the engine of a run, and the state before its first round."""
    protocol = run["protocol"]
    where = prepare(machine.device, machine.threads, protocol["precision"])
    dtype = torch.float64 if protocol["precision"] == "fp64" else torch.float32
    data = conditions.with_flipped_labels(load_federation(run, paths, where, dtype), protocol)
    schedule.check_someone_trains([*map(len, data.members)], protocol)
    clients = len(data.members)
    if protocol.get("clients") == EACH_WRITER:
        check_counted(run, clients)
    artifacts = {
        name: read_artifact(name, paths[name], where, clients) for name in list_needed_stages(run)
    }
    build, method = architecture(run, paths, data), build_method(run)
    made = Engine(build, method, protocol, data, machine.backend, artifacts, machine.compile)
    if made.architecture.complete_server:
        metrics.check(protocol.get("metrics", ()), data.test_labels, data.counts.shape[1])
    return made, made.start(seeds.seed("model", *data.names))


def check_counted(run: Run, clients: int) -> None:
    """Refuse a number of clients that is known only now, as the plan refuses one that it knows."""
    protocol = changed_protocol(run["protocol"], {"clients": clients})
    check_population(f"protocol `{run['name']['protocol']}`", protocol, clients, run["dataset"])
    check_cohort(run["name"]["method"], run["method"], protocol, run["dataset"])


def architecture(run: Run, paths: dict[str, Path], data: Federation):
    """Return a function from a seed to the protocol's model with initial weights."""
    weights = run["protocol"]["weights"]
    file = None if weights == "none" else paths.get("weights") or Path(weights)
    shape = tuple(data.images.shape[1:])
    name, classes = run["protocol"]["model"], data.counts.shape[1]
    return lambda seed: models.build(name, shape, classes, file, seed, tokens=data.tokens)


def build_method(run: Run) -> Method:
    """Return the run's method: its files, combined; UsageError if it needs client tests."""
    made = reduce(or_, (build_part(*given) for given in run["method"].items()), Method())
    check_method(" with ".join(run["method"]), made, run.get("protocol", {}))
    return made


def check_method(name: str, made: Method, protocol: Protocol) -> None:
    """Refuse a method that the protocol, or one of its own functions, makes impossible."""
    of_clients = made.private or made.evaluate or made.personal or made.begin
    if of_clients and not has_client_test(protocol):
        raise UsageError(needs_client_test(name))
    if (made.forgets or made.resets) and not made.private:
        raise UsageError(
            f"method `{name}` takes away what private entries remember, and has none: combine it "
            "with a method with private entries, such as fedper"
        )
    check_choice(name, made, protocol)
    check_discreet(name, made, protocol)
    check_weights(name, made)
    if made.rate and protocol.get("optimiser", "sgd") != "sgd":
        raise UsageError(
            f"method `{name}` lets parameters rest, and Adam counts the steps of all together: set "
            "`optimiser: sgd`"
        )
    check_allowed(name, made.optimisers, protocol)
    if made.average_optimiser and protocol.get("optimiser_state") == "kept":
        raise UsageError(
            f"method `{name}` averages the clients' optimisers, and the protocol lets each client "
            "keep its own: set `optimiser_state: reset`"
        )
    if made.average_optimiser and protocol.get("optimiser", "sgd") == "sgd":
        check_momentum(name, protocol)
    if made.train_served and protocol.get("optimiser", "sgd") != "sgd":
        raise UsageError(
            f"method `{name}` takes a second step on each batch, which only SGD can do: set "
            "`optimiser: sgd`, or the method's `shared_step: false`"
        )


def check_choice(name: str, made: Method, protocol: Protocol) -> None:
    """Refuse a method that chooses clients if the protocol counts their rounds beforehand."""
    if made.choose and protocol.get("batches") == "continued":
        raise UsageError(
            f"method `{name}` chooses the clients of a round, and `batches: continued` must know "
            "those of all rounds beforehand: set `batches: fresh`"
        )


def check_discreet(name: str, made: Method, protocol: Protocol) -> None:
    """Refuse what would break the guarantee of a method for its clients, such as an epsilon."""
    if not made.discreet:
        return
    why = f"method `{name}` has a guarantee for clients that are drawn by lot and send changes only"
    for field in ("choose", "measure", "refine"):
        if getattr(made, field):
            raise UsageError(
                f"{why}, and one of its files has `{field}`, which learns more of them: leave that "
                "one out"
            )
    if made.average_optimiser:
        raise UsageError(f"{why}, and one of its files sends optimisers, too: leave that one out")
    if protocol.get("availability", "always") != "always":
        raise UsageError(
            f"{why}, and with availability {protocol['availability']} not all may be drawn: set "
            "`availability: always`"
        )
    if protocol.get("sampler") == "round" and protocol["participation"] < 1:
        raise UsageError(
            f"{why}, and with sampler round everybody knows beforehand who is drawn: set `sampler: "
            "seeded`"
        )


def check_momentum(name: str, protocol: Protocol) -> None:
    """Refuse averages of the momentum of SGD without momentum."""
    if not protocol.get("momentum"):
        raise UsageError(
            f"method `{name}` averages the clients' momentum, and the protocol's momentum is 0: "
            "set `momentum`, for example to 0.9"
        )


def check_weights(name: str, made: Method) -> None:
    """Refuse weights that an `aggregate` does not use."""
    unused = [field for field in ("weigh", "reweigh", "scale") if getattr(made, field)]
    if unused and not made.follows_weights:
        raise UsageError(
            f"method `{name}` has an `aggregate` that does not use the weights of clients, so that "
            f"its `{unused[0]}` would change no parameter: leave one of the two out or, if "
            "`aggregate` uses the weights that it is given, write `uses_weights=True` beside it"
        )


def build_part(name: str, keywords: dict) -> Method:
    """Return the method of a file; UsageError for a wrong value, or if the file's code fails."""
    module = f"methods.{known('method', name, registered('methods'))}"
    file = contract.imported(module)
    contract.check_ranges(source.file(module), name, keywords)
    made, again = (
        contract.called(module, "`method`", lambda: file.method(**keywords)) for _ in range(2)
    )
    if not isinstance(made, Method):
        raise UsageError(f"{source.file(module)}: `method` gives {shown(repr(made))}, no Method")
    if name := state.between(made, again):
        raise UsageError(
            f"{source.file(module)}: `method` gives functions with another `{name}` at each call: "
            "draw random numbers from `cohort.noise`, and keep nothing between two calls"
        )
    said = source.literal(module, "OPTIMISERS", contract.OPTIMISERS)
    if {*said} != {*made.optimisers}:
        raise UsageError(
            f"{source.file(module)}: the Method has `optimisers={made.optimisers}`, and OPTIMISERS "
            f"in the file is {(*said,)}: give both the same"
        )
    own = [name for name in ("private", "begin", "personal") if getattr(made, name)]
    if own and not source.literal(module, "PRIVATE", ()):
        raise UsageError(
            f"{source.file(module)}: the Method has `{own[0]}`, so clients have models of their "
            "own: write `PRIVATE = True` in the file, or the beginnings of the private names"
        )
    return made


# The arrays of a stage's file: type and shape; N is the number of clients, L any number of layers.
ARTIFACTS: dict[str, dict[str, tuple[str, tuple[int | str, ...]]]] = {
    "saliency": {"contributions": ("float64", (3, 2, 2, "N", "L")), "main": ("bool", ("L",))},
    "latents": {"norms": ("float64", (3, 3, "N"))},
}


def read_artifact(
    name: str, path: Path, device: torch.device, clients: int
) -> dict[str, torch.Tensor]:
    """Return the arrays that the stage `name` wrote for methods; UsageError if they do not fit."""
    with files.whole(str(path)):
        found = array_files.read_arrays(path, *ARTIFACTS[name])
        sizes = {"N": clients, "L": len(found.get("main", ()))}
        for key, (dtype, axes) in ARTIFACTS[name].items():
            shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
            if (str(found[key].dtype), found[key].shape) != (dtype, shape):
                raise ValueError(f"{key} is {found[key].dtype} {found[key].shape}, not {shape}")
    made = {key: torch.from_numpy(array) for key, array in found.items()}
    # What chooses layers is read by the CPU, which would wait for a GPU in each round.
    return {key: t if t.dtype == torch.bool else t.to(device) for key, t in made.items()}
