"""AutoCS: cross-stitch, a weight for each pair of classifier and encoder (`_fusion.py`).

The coefficients alpha are a matrix: alpha_0_0 and alpha_0_1 mix the shared and the private features
for the shared classifier, alpha_1_0 and alpha_1_1 for the private one.
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
    return _fusion.fuse(form, temperature, shared_step, forgets, matrix=True)
