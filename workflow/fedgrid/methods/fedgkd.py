"""FedGKD: distil from the mean of the server's last models (Yao et al., 2021).

Yao, Pan, Dai, Wan, Ding, Yu, Jin, Xu and Sun, "FedGKD: Towards Heterogeneous Federated Learning via
Global Knowledge Distillation" (arXiv:2107.00051; IEEE Transactions on Computers 2024). From the
second round on, clients add beta tau^2 KL(teacher || client) to the loss. The teacher has the mean
parameters of the last `models` models that the server aggregated, the present one included, and
the BatchNorm statistics of the present one. The authors' code averages these, too, and has a loss
on logits as an option; its variant FedGKD-VOTE, which weighs several teachers, is not here. With
one model this is `fedavg_kd` after the first round.
"""

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Start, Step
from fedgrid.methods import _distillation

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)", "models": "[1, inf)"}


def method(beta: float = 0.1, tau: float = 0.5, models: int = 5) -> Method:
    """beta weighs the divergence, 0 is FedAvg; tau is the temperature of both models."""

    def none(start: Start) -> Memory:
        zeros = start.zeros()
        past = {n: w.expand(models - 1, *w.shape) for n, w in zeros.items()}
        return {"fedgkd_past": past, "fedgkd": {"sum": zeros, "number": start.sizes.new_zeros(())}}

    def with_sent(cohort: Cohort, update: Model) -> Memory:
        past, number = cohort.shared["fedgkd_past"], cohort.shared["fedgkd"]["number"]
        if models > 1:
            new = {n: torch.cat([w[1:], cohort.server[n][None]]) for n, w in past.items()}
            later = number > 0  # the first model was not aggregated
            past = {n: torch.where(later, new[n], w) for n, w in past.items()}
        total = {n: w.sum(0) for n, w in past.items()}
        return {"fedgkd_past": past, "fedgkd": {"sum": total, "number": number + 1}}

    def penalty(step: Step) -> Tensor:
        total, aggregated = (step.shared["fedgkd"][name] for name in ("sum", "number"))
        number = aggregated.clamp(min=1, max=models)
        mean = {n: (step.server[n] + w) / number for n, w in total.items()}
        every = torch.ones_like(step.logits, dtype=torch.bool)
        _, logits = step.forward(step.server | mean, step.x)
        target = _distillation.teacher(logits, every, tau)
        later = (aggregated > 0).to(step.logits)
        return beta * later * _distillation.divergence(step, target, every, tau)

    return Method(penalty=penalty, padded=True, shared=none, share=with_sent, uses_deltas=False)
