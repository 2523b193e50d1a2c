"""FedSLS with R_k computed in every round, from the server's current model (section 3.4).

The options are those of `fedsls`.
"""

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.encoders import guided
from fedgrid.method import Client, Cohort, Memory, Method, relative

RANGES = {"tau": "(0, 1]"}
INDEPENDENT = True  # an image's saliency must not depend on other images of its batch


def method(
    tau: float = 0.5,
    reading: str = "A",
    extra_root: bool = False,
    target: str = "label",
    layers: str = "main",
) -> Method:
    """tau in (0, 1]: layer l is weighted by tau^(l-1)."""
    choice = guided.Choice(tau, reading, extra_root, target, layers)

    def encode(client: Client) -> Memory:
        network, server = client.architecture, client.server
        found = client.total(lambda x, y: guided.contributions(network, server, x, y, (target,)))
        main = guided.main_path(client.architecture, found)
        stacked = tree_map(lambda one: one[..., None, :], guided.stack(found))
        return {"saliency": choice.weights(stacked, main, (target,))[0]}

    def by_saliency(cohort: Cohort) -> Tensor:
        return relative(torch.stack([sent["saliency"] for sent in cohort.measured]))

    return Method(measure=encode, weigh=by_saliency, weigh_after_training=True)
