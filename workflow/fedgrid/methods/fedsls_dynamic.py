"""FedSLS with R_k computed anew in every round, from the model that the server sent (section 3.4).

The options are those of `fedsls`.
"""

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid import encoder
from fedgrid.method import Client, Cohort, Memory, Method, relative

INDEPENDENT = True  # the saliency of an image must not depend on the others of its batch


def method(
    tau: float = 0.5,
    reading: str = "A",
    extra_root: bool = False,
    target: str = "label",
    layers: str = "main",
) -> Method:
    """tau in (0, 1] makes layer l count tau^(l-1)."""
    choice = encoder.Choice(tau, reading, extra_root, target, layers)

    def encode(client: Client) -> Memory:
        model, server = client.model, client.server
        found = client.total(lambda x, y: encoder.contributions(model, server, x, y, (target,)))
        main = encoder.main_path(client.model, found)
        stacked = tree_map(lambda one: one[..., None, :], encoder.stack(found))
        return {"saliency": choice.weights(stacked, main, (target,))[0]}

    def by_saliency(cohort: Cohort) -> Tensor:
        return relative(torch.stack([sent["saliency"] for sent in cohort.measured]))

    return Method(measure=encode, weigh=by_saliency)
