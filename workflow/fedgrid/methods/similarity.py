"""Observe how similar each client's model is to the server's; no training is changed.

The similarity is the cosine between all parameters of the local model after local training and all
parameters of the new server's model, as in figure 1 of client contribution normalisation
(arXiv:2411.06352, 2024). The column `similarity0` is that of client 0, and so on.
"""

import torch
import torch.nn.functional as F

from fedgrid.method import Aggregated, Memory, Method, Model

FEW = 16  # clients that have a column


def method() -> Method:
    """There is nothing to choose."""

    def similarities(end: Aggregated) -> Memory:
        deltas, found = end.cohort.deltas, {}
        new = flat({name: end.model[name] for name in deltas})
        for c, client in enumerate(end.cohort.clients.tolist()):
            if client < FEW:
                local = {name: end.server[name] - delta[c] for name, delta in deltas.items()}
                found[f"similarity{client}"] = F.cosine_similarity(flat(local), new, dim=0)
        return found

    return Method(observe=similarities)


def flat(model: Model) -> torch.Tensor:
    """Return all entries of a model in one vector."""
    return torch.cat([tensor.flatten() for tensor in model.values()])
