"""FedSL: ablation of FedSLS with conventional latents instead of saliency (ACM MM 2024).

R_k is the sum over the client's images of the norm of the channel-averaged latent of an autoencoder
that shrinks images f times (`encoders/autoencoder.py`). The paper does not say whose encoder this
is: `encoder` is "client" (each client trains its own on its images, the default), "pooled" (one for
all data) or "area" (none: the grey image itself, averaged down).

The paper does not say how an autoencoder is trained either. The default is SGD for the protocol's
`pretrain_epochs`, which leaves it untrained at the paper's protocol. With `autoencoder_fit`
it is trained until it explains that share of the variance (`latents.py`).
"""

from torch import Tensor

from fedgrid.encoders import autoencoder
from fedgrid.method import Cohort, Method, relative
from fedgrid.runtime.names import UsageError

RANGES = {"encoder": ("client", "pooled", "area")}
NEEDS = ("latents",)


def method(f: int = 2, encoder: str = "client") -> Method:
    """f in {2, 4, 8} is the down-sampling factor."""
    if f not in autoencoder.FACTORS:
        raise UsageError(f"fedsl: f is {f}: set it to one of {autoencoder.FACTORS}")
    choice = autoencoder.ENCODERS.index(encoder), autoencoder.FACTORS.index(f)

    def by_latents(cohort: Cohort) -> Tensor:
        return relative(cohort.artifacts["latents"]["norms"][choice][cohort.clients])

    return Method(weigh=by_latents)
