"""Where the engine's time goes: forward and loss, backward, the optimiser's step, and the rest.

The functions that a backend calls for these parts are wrapped with clocks while one repeat is run.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

# Where each part is done. A part that no function of these does any more is a mistake here.
PARTS = {
    "forward": ("torch.nn.Module.__call__", "fedgrid.engine.optimisers.local_loss"),
    "backward": ("torch.autograd.grad", "torch.autograd.backward"),
    "step": ("fedgrid.engine.optimisers.Optimiser.step",),
}


class Parts:
    """Seconds of each part; what is called within a part is that part's."""

    def __init__(self, wait: Callable[[], None]):
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.wait, self.inside = wait, False

    def timed(self, part: str, function: Callable) -> Callable:
        """The function with its time added to the part."""

        def call(*arguments, **keywords):
            if self.inside:
                return function(*arguments, **keywords)
            self.inside = True
            self.wait()
            began = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self.wait()
                self.seconds[part] += time.perf_counter() - began
                self.inside = False

        return call


@contextmanager
def watched(wait: Callable[[], None]):
    """While it is on, the parts' seconds are counted."""
    import pkgutil

    parts = Parts(wait)
    with ExitStack() as stack:
        for part, places in PARTS.items():
            for place in places:
                owner, _, name = place.rpartition(".")
                owner = pkgutil.resolve_name(owner)
                wrapped = parts.timed(part, getattr(owner, name))
                stack.enter_context(patch.object(owner, name, method(wrapped)))
        yield parts


def method(function: Callable) -> Callable:
    """A function that also works as a method when it is put into a class."""
    return lambda *arguments, **keywords: function(*arguments, **keywords)


def shares(play: Callable, rounds: int, clock) -> dict[str, float]:
    """Shares of a repeat's wall time, by part; `outside` is what no part is."""
    with watched(clock._wait) as parts:
        play(rounds, clock)
    if missing := [name for name, seconds in parts.seconds.items() if not seconds]:
        raise LookupError(f"PARTS in {__file__} names no function that does {missing}")
    found = {name: seconds / clock.wall for name, seconds in parts.seconds.items()}
    return found | {"outside": 1 - sum(found.values())}
