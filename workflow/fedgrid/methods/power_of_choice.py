"""Power of choice: of d candidates, those with the largest loss take part (Cho et al., 2022).

Cho, Wang and Joshi (AISTATS 2022), pow-d. The server draws d clients without replacement, with
probabilities in proportion to their samples. Each says the mean loss of the server's model on its
training data, and the m clients with the largest take part, where m is the size of the protocol's
cohort. All clients of a round weigh the same, as in the paper.

If d is at most m, all that are drawn would take part: this is refused, unless all clients do in any
case. Clients with too few samples for a batch are not drawn.

The placebo `power_of_choice_random` draws the m clients from the candidates by lot.
"""

import torch
from torch import Tensor

from fedgrid.method import Candidates, Method
from fedgrid.methods import uniform
from fedgrid.methods.qfedavg import mean_loss
from fedgrid.runtime.names import UsageError

RANGES = {"d": "[1, inf)"}


def method(d: int = 20) -> Method:
    """d: the number of candidates, above the number of clients that take part in a round."""

    def choose(candidates: Candidates) -> Tensor:
        drawn = draw(candidates, d)
        clients = map(candidates.client, drawn.tolist())
        losses = torch.stack([mean_loss(client, client.model) for client in clients])
        best = losses.topk(min(len(candidates.drawn), len(drawn))).indices
        return drawn[best]

    return Method(choose=choose, weigh=uniform.method().weigh)


def draw(candidates: Candidates, d: int) -> Tensor:
    """Return the ids of the candidates, in the order in which they are drawn."""
    sizes, taking = (candidates.sizes * candidates.trains).double().cpu(), len(candidates.drawn)
    there = int((sizes > 0).sum())
    if d <= taking < there:
        raise UsageError(
            f"d is {d}, and {taking} clients take part in a round, so all candidates would: set d "
            f"to more than {taking}"
        )
    number = min(max(d, taking), there)
    generator = torch.Generator().manual_seed(candidates.noise)
    found = torch.multinomial(sizes, number, replacement=False, generator=generator)
    return found.to(candidates.drawn)
