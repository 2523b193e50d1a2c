"""What travels between the server and one client in a round, in bytes.

Down go the entries of the model that are trained or averaged, what `send` gives for the client, and
of `shared` what a client's functions read. Up go the same entries of the model, what `measure`
gives, and of the client's memory what a server's function reads. What is read is noted in the first
round of a process, by entries at the first level of a memory. Frozen parameters and entries that
stay at the client do not travel. Nothing is counted for compression or for names, nor for what
`choose`, `deploy` and `refine` learn of clients and of data in other ways.

A real system can send less. Of a table with a row for each client, as in FedPAC, it would send one
row, and where a method sends a model in place of the server's, as FedAMP does, only that one. What
comes up twice, in the model and in what the method measures or keeps, it would send once.
"""

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from fedgrid.engine.hooks.calling import Hook, hooks
from fedgrid.method import Memory, Method

ON_CLIENT = (
    *("begin", "loss", "penalty", "correct", "rate", "remember", "measure"),
    *("personal", "evaluate"),
)


def count_traffic(
    method: Method, model: Memory, shared: Memory, sent: Memory, kept: Memory, measured: Any
) -> dict[str, int]:
    """Return the bytes `down` to and `up` from one client.

    `model` has the entries that travel, `sent` what `send` gives for the client, `kept` its memory
    after the round and `measured` what it measures.
    """
    whole = count_bytes(model)
    tried = [hook for hook in hooks(method) if isinstance(hook, Hook)]
    down = {
        name for hook in tried if hook.name in ON_CLIENT for name in hook.read.get("shared", ())
    }
    others = [hook.read for hook in tried if hook.name not in ON_CLIENT]
    up = {name for read in others for of in ("memory", "before") for name in read.get(of, ())}
    return {
        "down": whole + count_bytes(sent) + count_bytes([shared.get(name) for name in down]),
        "up": whole + count_bytes(measured) + count_bytes([kept.get(name) for name in up]),
    }


def count_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a nested value."""
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
