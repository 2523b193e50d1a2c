"""AutoHS: hard selection, soft attention with Gumbel noise on its coefficients (`_fusion.py`).

In training, noise is drawn once per batch. The text's weights are then the softmax of the noisy
coefficients. The code's are 1 for the larger one and 0 for the other, with the gradient of the
softmax. The text does not say whether clients are evaluated with noise. The form "text" evaluates
them without it, so that their weights are soft. The authors' code draws noise in evaluation, too,
for each batch, and so does the form "code": there a client predicts with one branch or the other.
"""

from fedgrid.method import Method
from fedgrid.methods import _fusion

RANGES = {"temperature": "(0, inf)", "form": ("text", "code")}
PRIVATE = ("private.",)
SPLITS = True  # the model must name its blocks
MODELS_KEPT = 1  # models per client


def method(
    temperature: float = 2.0,
    form: str = "text",
    shared_step: bool = True,
    forgets: bool = False,
) -> Method:
    """temperature: of the softmax; form: "text" or "code"; shared_step: the code's second
    step of each batch, which Algorithm 1 of the text lacks (`_fusion.py`).

    forgets: the placebo, which draws private entries anew whenever their client takes part.
    """
    return _fusion.fuse(
        form,
        temperature,
        shared_step,
        forgets,
        matrix=False,
        noise=True,
        hard=form == "code",
    )
