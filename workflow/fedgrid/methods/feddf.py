"""FedDF: the server learns from the mean of local models' logits (Lin et al., NeurIPS 2020).

After each round FedAvg's model is trained on the server's own samples, which have no labels
(`server_data` of the protocol). With z_k(x) the logits of the round's local models and z(x) those
of the model in training, the loss is

    KL(softmax(mean_k z_k(x)) || softmax(z(x)))

Adam takes `steps` steps on batches of shuffled epochs, with a learning rate that falls to 0 along a
cosine; as in the authors' code, the gradient is clipped to the norm 5. On the same batches the
server's model is equal to that of this code with its scheme `avg_logits`, to 1e-13, in a network
without BatchNorm. The default of the code is another scheme, the mean over teachers of the
divergences from each (`average="losses"`, to 1e-13 as well). That code takes up to 10,000 steps,
and ends early by the accuracy on validation data with labels, of which the server has none here.
All networks are in evaluation mode, so BatchNorm's running statistics stay FedAvg's.

A client that takes no step has no model, and does not teach.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedgrid.method import Aggregated, Method, Model
from fedgrid.runtime.names import UsageError

NEUTRAL = {"steps": 0}  # with which it is FedAvg
RANGES = {
    "steps": "[0, inf)",
    "lr": "(0, inf)",
    "batch": "[1, inf)",
    "average": ("logits", "losses"),
}

SERVER_DATA = True
ADDED = ("average",)
LARGEST = 5.0  # norm of a gradient


def method(
    steps: int = 500, lr: float = 0.001, batch: int = 128, average: str = "logits"
) -> Method:
    """steps: 0 is FedAvg; lr: at the first step; batch: samples of a step.

    average: what is averaged over teachers.
    """

    def distil(end: Aggregated) -> Model:
        trained = (end.cohort.steps > 0).nonzero()[:, 0].tolist()
        teachers = [end.local(position) for position in trained]
        names = [name for name, _ in end.architecture.named_parameters()]
        if end.cohort.deltas.keys() < {*names}:
            raise UsageError(
                "feddf: clients keep parameters for themselves, so that no local model works at "
                "the server: leave out the method with private parameters"
            )
        own = {name: end.model[name].clone().requires_grad_() for name in names}
        optimiser = torch.optim.Adam([*own.values()], lr)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
        for x in batches(end, steps, batch):
            optimiser.zero_grad()
            logits = functional_call(end.architecture, end.model | own, (x,))[1]
            target = TARGETS[average](teach(end, teachers, x))
            F.kl_div(logits.log_softmax(1), target, reduction="batchmean").backward()
            nn.utils.clip_grad_norm_([*own.values()], LARGEST)
            optimiser.step()
            falling.step()
        return {name: w.detach() for name, w in own.items()}

    return Method(refine=distil)


def batches(end: Aggregated, steps: int, batch: int) -> Iterator[Tensor]:
    """Yield so many batches of the server's samples, in shuffled epochs; UsageError without any."""
    if end.data is None:
        raise UsageError(
            "feddf: the server has no data of its own: set the protocol's `server_data`, the share "
            "of the training samples that it gets"
        )
    generator, done = torch.Generator().manual_seed(end.cohort.noise), 0
    while done < steps:
        order = torch.randperm(end.data.size, generator=generator).to(
            end.weights.device, non_blocking=True
        )
        for which in order.split(batch)[: steps - done]:
            yield end.data.inputs(which)
            done += 1


@torch.no_grad()
def teach(end: Aggregated, teachers: list[Model], x: Tensor) -> Tensor:
    """Return the teachers' logits (T, B, K)."""
    return torch.stack([functional_call(end.architecture, one, (x,))[1] for one in teachers])


# Probabilities (B, K) from logits (T, B, K). The mean of divergences from several distributions has
# the gradient of the divergence from their mean.
TARGETS: dict[str, Callable[[Tensor], Tensor]] = {
    "logits": lambda logits: logits.mean(0).softmax(1),
    "losses": lambda logits: logits.softmax(2).mean(0),
}
