"""FedAU: weigh clients by an online estimate of their participation (Wang & Ji, ICLR 2024).

For every client, the server averages the intervals between participations, each cut at K rounds. As
in the official code, an interval counts only after the next participation, the sum is divided by
the population (not the cohort), and sample counts are not used.
"""

from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Start

RANGES = {"cutoff": "[1, inf)"}


def method(cutoff: int = 50) -> Method:
    """cutoff K >= 1: a longer interval is recorded as K. 1 is FedAvg of equal, tiny steps."""

    def never(start: Start) -> Memory:
        like = next(iter(start.server.values()))
        return {f"fedau_{name}": like.new_zeros(start.population) for name in ("wait", "sum", "n")}

    def by_interval(cohort: Cohort) -> Tensor:
        total, intervals = (cohort.shared[f"fedau_{name}"] for name in ("sum", "n"))
        mean = torch.where(intervals > 0, total / intervals.clamp(min=1), 1)
        return mean[cohort.clients] / cohort.population

    def count(cohort: Cohort, update: Model) -> Memory:
        wait, total, intervals = (cohort.shared[f"fedau_{name}"] for name in ("wait", "sum", "n"))
        here = torch.zeros_like(wait).index_fill(0, cohort.clients, 1).bool()
        wait = wait + 1
        ends = here | (wait >= cutoff)
        total, intervals = total + torch.where(ends, wait, 0), intervals + ends
        return {"fedau_wait": wait * ~ends, "fedau_sum": total, "fedau_n": intervals}

    given: dict[str, Any] = {"any_sum": True, "uses_deltas": False}
    return Method(weigh=by_interval, shared=never, share=count, **given)
