"""What a run's protocol and method ask for: fields that a method changes, tests, earlier stages."""

from collections.abc import Mapping
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.resolved import Protocol, Run


def effective_protocol(run: Run) -> Protocol:
    """Return a run's protocol with the values of the fields that its method changes."""
    return changed_protocol(run["protocol"], run.get("own", {}))


def changed_protocol(protocol: Protocol, fields: Mapping[str, Any]) -> Protocol:
    """Return a protocol with other values of these fields."""
    changed: Any = {**protocol, **fields}
    return changed


def has_client_test(protocol: Mapping[str, Any]) -> bool:
    """Whether a protocol gives clients test samples of their own."""
    of_writers = protocol.get("client_test_from") == "writers"
    return of_writers or bool(protocol.get("client_test"))


def list_method_modules(run: Run) -> list[str]:
    """Return the modules of the run's method."""
    return [f"methods.{part}" for part in run["method"]]


def list_needed_stages(run: Run) -> list[str]:
    """Return the stages that the run's method names in `NEEDS`."""
    return sorted(
        {need for part in list_method_modules(run) for need in source.literal(part, "NEEDS", ())}
    )
