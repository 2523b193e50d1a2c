"""What a resolved run is made of. It is JSON: a job gets it as such, and stores it in its summary.

`schemas/protocol.schema.yaml` declares the fields of a protocol.
"""

from typing import Any, Literal, NotRequired, TypedDict

Axis = Literal["protocol", "dataset", "partition", "method", "seed"]
Named = Literal["protocol", "dataset", "partition", "method"]  # the axes whose values are names
Fields = dict[str, Any]  # some fields of a protocol, or hyper-parameters of a method, by name
Protocol = Fields  # all fields of a protocol: schemas/protocol.schema.yaml
MethodParts = dict[str, Fields]  # the files of a method, each with all its hyper-parameters


class Names(TypedDict):
    protocol: str
    dataset: str
    partition: str
    method: str
    seed: int


class Run(TypedDict):
    """A run in which every name is replaced by what it stands for.

    The run of a stage has only those fields of the protocol that the stage depends on.
    """

    name: Names
    protocol: Protocol
    cells: NotRequired[dict[str, str]]  # folders of what all methods of the protocol share
    dataset: str
    data: NotRequired[str]  # of data of one's own: a hash of their options and their content
    partition: str
    method: MethodParts
    own: NotRequired[Fields]  # fields of the protocol that the method changes
    seed: int
