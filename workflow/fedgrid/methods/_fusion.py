"""AutoCS, AutoSA and AutoHS: learn how much of the private and the shared features to use.

Li et al. (arXiv 2107.11954), section 4.3. Every client has a shared and a private encoder, and a
shared and a private classifier (AaBb). Coefficients mix the features of both encoders, and the
outputs of both classifiers (`Fusion` in `models/_branches.py`). Clients train the coefficients, and
the server averages them like shared weights. Each evaluation records them.

The authors' code differs from the text, and `form: code` is its form: each of the two classifiers'
outputs is a mixture with weights of its own, the loss is the sum of two cross-entropies, and a
client predicts with the mean of the two probabilities. Its temperature is 1; the text's is 2. Its
AutoHS draws noise in evaluation, too (`autohs.py`).

One default is the code's and not the text's. Algorithm 1 of the text has one step a batch, which
trains both branches together, so that the shared branch alone, which is the server's model, is
never trained to work by itself. After every step the code takes a second step with the
cross-entropy of the shared branch alone. `shared_step` is this step, in both forms, and is on by
default; `shared_step: false` is Algorithm 1. The step moves the shared entries only. (With versions
of PyTorch before 2.0 the code's second step also moved the private entries, by their momentum.)
"""

from functools import partial
from itertools import product
from typing import Any

from fedgrid.method import Method, Server
from fedgrid.methods._partial import keep, two_losses
from fedgrid.models._branches import Fusion


def fuse(form: str, temperature: float, shared_step: bool, forgets: bool, **options: Any) -> Method:
    """Return one of the three methods."""
    code = form == "code"
    architecture = partial(Fusion, temperature=temperature, two_outputs=code, **options)
    return keep(architecture, whole=True, forgets=forgets) | Method(
        loss=two_losses if code else None,
        padded=True,
        train_served=shared_step,
        evaluate_server=coefficients,
    )


def coefficients(server: Server) -> dict[str, Any]:
    """Return the coefficients by name: alpha_0 and so on or, of a matrix, alpha_0_1."""
    found = {}
    for name in ("alpha", "beta"):
        values = server.entries[name]
        for place in product(*map(range, values.shape)):
            found["_".join(map(str, (name, *place)))] = values[place]
    return found
