"""Whether contestants did the same work, and what their repeats come to.

Weights are compared after a round. Training amplifies rounding: in float32 the stack and the loop
are 1e-4 apart after a round of A with three clients, and 0.1 after ten, with other orders of the
same sums. After fifty they are about as far from each other as from the initial weights. So of the
measured rounds it is only asked how far they went.
"""

from statistics import median

import torch

# How far a contestant may end from the base, relative to the way from the initial weights.
# Float32 rounds differently in another order of sums, and training amplifies it; bfloat16 has
# eight bits and TF32 eleven, so that their rows only show that the same was learned. pfl-research
# averages in float32 whatever the model's precision is.
TOLERANCE = {"fp64": 1e-9, "pfl fp64": 1e-4, "fp32": 1e-3, "tf32": 0.1, "bf16": 0.2}
WAY = 0.5, 2.0  # the least and most of the base's way in the measured rounds; doing nothing is 0
ACCURACY = 0.002  # images in a thousand that may be classified otherwise, in fp32


def distance(state: dict, base: dict, initial: dict | None) -> float:
    """|state - base| / |base - initial|, the largest of parameters and running statistics.

    Entries that a contestant does not have at all are left out.
    """
    found = []
    for running in (False, True):
        names = shared(state, base, running)
        if names:
            ours, theirs, start = (flat(of, names) for of in (state, base, initial))
            found.append(float((ours - theirs).norm() / (theirs - start).norm()))
    return max(found)


def is_done(state: dict, base: dict, initial: dict | None) -> bool:
    """Whether the parameters are about as far from the initial ones as the base's, wherever."""
    names = shared(state, base)
    ours, theirs, start = (flat(of, names) for of in (state, base, initial))
    least, most = WAY
    return least <= float((ours - start).norm() / (theirs - start).norm()) <= most


def shared(state: dict, base: dict, running: bool = False) -> list[str]:
    """The parameters, or the running statistics, that both have."""
    return [n for n in base if n in state and n.rpartition(".")[2].startswith("running") == running]


def flat(state: dict | None, names: list[str]) -> torch.Tensor:
    """Its entries in one float64 vector; 0 if there is no state."""
    if state is None:
        return torch.zeros(1, dtype=torch.float64)
    return torch.cat([state[name].double().flatten() for name in names])


def judged(answer: dict, base: dict, initial: dict | None, precision: str, who: str = "") -> dict:
    """Whether a contestant ends where the base does, and how far from it."""
    tolerance = TOLERANCE.get(f"{who} {precision}", TOLERANCE[precision])
    far = distance(answer["state"], base["state"], initial)
    whole = all(name in answer["state"] for name in base["state"])
    pairs = zip(answer["accuracies"], base["accuracies"], strict=True)
    apart = max((abs(a - b) for a, b in pairs), default=0.0)
    judge_accuracies = whole and precision not in ("bf16", "tf32")
    same = far <= tolerance and (apart <= ACCURACY or not judge_accuracies)
    return {
        "judged": precision,
        "difference": far,
        "tolerance": tolerance,
        "counts": bool(same),
        "compared": "all" if whole else "parameters",
    }


def summed_up(answers: list[dict], base: list[dict]) -> dict:
    """Medians, spreads and how many times faster than the base, in wall and processor seconds."""
    row = {"repeats": len(answers)}
    for clock in ("wall", "cpu"):
        seconds = [answer[clock] for answer in answers]
        row |= {
            f"{clock}_median": median(seconds),
            f"{clock}_min": min(seconds),
            f"{clock}_max": max(seconds),
            f"{clock}_times_faster": median(answer[clock] for answer in base) / median(seconds),
        }
    return row
