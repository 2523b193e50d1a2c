"""Multi-Krum: the mean of the m clients with Krum's lowest scores (Blanchard et al., NeurIPS 2017).

The scores are those of `krum`, computed once. Of n clients of which f may send anything, m = n - f
unless it is given.
"""

from fedgrid.method import Method
from fedgrid.methods.krum import closest

RANGES = {"share": "[0, 0.5)", "m": "[0, inf)"}


def method(share: float = 0.2, m: int = 0) -> Method:
    """share: of the clients that may send anything; m: of how many the mean is, or 0.

    With m 1 it is Krum.
    """
    return closest(share, lambda n, f: min(m, n) or n - f)
