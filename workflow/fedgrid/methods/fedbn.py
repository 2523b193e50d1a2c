"""FedBN: BatchNorm stays at its client (Li, Jiang, Zhang, Kamp and Dou, ICLR 2021).

The server averages all entries but those of BatchNorm layers. Weights, biases and running
statistics of these stay at each client from one of its rounds to the next. There is no model of the
server: each client's own is evaluated.

The official code gives all clients the same weight; add `uniform` for that. With it, the server's
entries and the clients' own are equal to those of that code on the same batches, to 1e-14. It finds
the layers by `bn` in their names, here it is by their type.
"""

from fedgrid.method import Method, batch_norms

PRIVATE = True


def method() -> Method:
    """There is nothing to choose."""
    return Method(private=(batch_norms,))
