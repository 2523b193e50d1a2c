"""FedPer: the classifier stays at its client (Arivazhagan et al., arXiv:1912.00818, 2019).

Clients share all layers but the last, and the server averages these. Each client keeps its own
classifier from one of its rounds to the next; all classifiers start from the same weights.
"""

from fedgrid.method import Method

PRIVATE = ("head.",)  # so no model works at the server: each client's own is evaluated


def method() -> Method:
    """There is nothing to choose."""
    return Method(private=PRIVATE)
