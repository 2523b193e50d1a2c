"""FedSLS: weigh clients by the norm of their saliency latent variables (ACM MM 2024).

R_k is encoded once, before the first round, by the client's pretrained model (encoders/guided.py).
A cohort's weights are R_k / sum R_k. The paper's equations leave open what the defaults decide:
`reading` A multiplies guided gradients with the activations as in equation 4, B takes them alone;
`extra_root` takes the outer root of equation 6 literally; `target` is the output that is
differentiated: the label's logit, the largest or the sum; `layers` are the convolutions of the
main path or all, which adds the side paths'.
"""

from torch import Tensor

from fedgrid.encoders import guided
from fedgrid.method import Cohort, Method, relative

RANGES = {"tau": "(0, 1]"}
NEEDS = ("saliency",)
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

    def by_saliency(cohort: Cohort) -> Tensor:
        saliency = cohort.artifacts["saliency"]
        return relative(choice.weights(saliency["contributions"], saliency["main"])[cohort.clients])

    return Method(weigh=by_saliency)
