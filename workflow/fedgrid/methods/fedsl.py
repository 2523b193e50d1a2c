"""FedSL: FedSLS's ablation with conventional latent variables in saliency's place (ACM MM 2024).

R_k is the sum over the client's images of the norm of the channel-averaged latent of an autoencoder
that shrinks images f times (`autoencoder.py`). The paper does not say whose encoder: `encoder` is
"client" (trained by each client on its own images, the default), "pooled" (one, on all data) or
"area" (none: the grey image itself, averaged down).

Nor does it say how an autoencoder is trained. By default that is SGD for the protocol's
`pretrain_epochs`, which at the paper's protocol leaves it untrained; a protocol with
`autoencoder_fit` trains it until its reconstruction is as good as that says (`latents.py`).
"""

from torch import Tensor

from fedgrid import autoencoder
from fedgrid.method import Cohort, Method, relative
from fedgrid.names import UsageError

NEEDS = ("latents",)


def method(f: int = 2, encoder: str = "client") -> Method:
    """f in {2, 4, 8} is the down-sampling factor."""
    if f not in autoencoder.FACTORS or encoder not in autoencoder.ENCODERS:
        raise UsageError(
            f"fedsl: f is one of {autoencoder.FACTORS}, "
            f"encoder one of {autoencoder.ENCODERS}; not {f}, {encoder!r}"
        )
    choice = autoencoder.ENCODERS.index(encoder), autoencoder.FACTORS.index(f)

    def by_latents(cohort: Cohort) -> Tensor:
        return relative(cohort.artifacts["latents"]["norms"][choice][cohort.clients])

    return Method(weigh=by_latents)
