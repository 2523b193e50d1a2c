"""FedNTD, FedLMD and their kin, worked out by hand."""

import math

import pytest
import torch

from conftest import make_step, methods
from fedgrid.methods import _distillation

# Two samples, four classes. The client has 6, 3, 2 and 1 samples of them, 3 on average: class 0 is
# its only majority (class 1 has as many as the average, not more).
COUNTS = [6, 3, 2, 1]
LOCAL = [[2.0, 1.0, 0.0, -1.0], [0.5, 0.0, 1.5, -0.5]]
SERVER = [[1.0, 0.0, 2.0, 0.5], [0.0, 1.0, -1.0, 0.5]]
TRUE = [0, 2]


def t(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def step(true=TRUE, counts=COUNTS, **fields):
    """A step whose server's model gives SERVER."""
    logits = t(LOCAL)
    return make_step(
        **{"logits": logits, "features": logits, "y": torch.tensor(true), "x": None},
        **{"counts": torch.tensor(counts), "forward": lambda state, x: (None, t(SERVER))},
        **fields,
    )


def softmax(logits: list[float], kept: list[int], tau: float) -> dict[int, float]:
    """Probabilities over the classes kept."""
    powers = {k: math.exp(logits[k] / tau) for k in kept}
    return {k: power / sum(powers.values()) for k, power in powers.items()}


def expected(teachers, students, tau: float) -> float:
    """tau^2 times the mean of sum_k p_k (log p_k - log q_k)."""
    each = [
        sum(p * (math.log(p) - math.log(student[k])) for k, p in teacher.items())
        for teacher, student in zip(teachers, students, strict=True)
    ]
    return tau**2 * sum(each) / len(each)


def students(kept: list[list[int]], tau: float) -> list[dict[int, float]]:
    return [softmax(logits, classes, tau) for logits, classes in zip(LOCAL, kept, strict=True)]


def teachers(kept: list[list[int]], tau: float) -> list[dict[int, float]]:
    return [softmax(logits, classes, tau) for logits, classes in zip(SERVER, kept, strict=True)]


EVERY = [[0, 1, 2, 3], [0, 1, 2, 3]]
BUT_TRUE = [[1, 2, 3], [0, 1, 3]]
MINORITY = [[1, 2, 3], [1, 3]]  # but the true class: class 0 is a majority, class 2 true


@pytest.mark.parametrize("tau", [1.0, 2.5])
@pytest.mark.parametrize(
    ("name", "teacher", "student"),
    [
        ("fedavg_kd", EVERY, EVERY),
        ("fedntd", BUT_TRUE, BUT_TRUE),
        ("fedlmd", MINORITY, BUT_TRUE),
    ],
)
def test_the_divergence_from_the_servers_model(name, teacher, student, tau):
    found = methods(name, beta=0.7, tau=tau).penalty(step())
    assert float(found) == pytest.approx(
        0.7 * expected(teachers(teacher, tau), students(student, tau), tau)
    )


@pytest.mark.parametrize("tau", [1.0, 2.5])
@pytest.mark.parametrize(
    ("name", "keywords", "targets"),
    [
        ("fedntd_tf", {}, [dict.fromkeys([1, 2, 3], 1 / 3), dict.fromkeys([0, 1, 3], 1 / 3)]),
        # 1 / (4 - 1) for each of the minority classes but the true one: the second sums to 2/3.
        ("fedlmd_tf", {}, [dict.fromkeys([1, 2, 3], 1 / 3), dict.fromkeys([1, 3], 1 / 3)]),
        (
            "fedlmd_tf",
            {"exact": True},
            [dict.fromkeys([1, 2, 3], 1 / 3), dict.fromkeys([1, 3], 1 / 2)],
        ),
    ],
)
def test_the_divergence_from_a_uniform_target(name, keywords, targets, tau):
    found = methods(name, beta=2.0, tau=tau, **keywords).penalty(step())
    assert float(found) == pytest.approx(2 * expected(targets, students(BUT_TRUE, tau), tau))


def test_a_class_with_as_many_samples_as_the_average_is_no_majority():
    assert _distillation.majority(step()).tolist() == [True, False, False, False]
    assert _distillation.majority(step(counts=[3, 3, 3, 3])).tolist() == [False] * 4


@pytest.mark.parametrize("name", ["fedlmd", "fedlmd_tf"])
def test_a_sample_whose_teacher_keeps_no_class_contributes_nothing(name):
    # All classes but 3 are majorities, and 3 is the true class of both samples.
    made = step(true=[3, 3], counts=[5, 5, 5, 1])
    assert float(methods(name).penalty(made)) == 0


@pytest.mark.parametrize("name", ["fedavg_kd", "fedntd", "fedntd_tf", "fedlmd", "fedlmd_tf"])
def test_gradients_are_finite_and_leave_masked_classes_alone(name):
    logits = t(LOCAL).requires_grad_()
    made = step()
    object.__setattr__(made, "logits", logits)
    methods(name).penalty(made).backward()
    assert torch.isfinite(logits.grad).all()
    if name != "fedavg_kd":
        assert logits.grad[[0, 1], TRUE].abs().max() == 0


@pytest.mark.parametrize(("number", "like"), [(0, "fedlmd_tf"), (2, "fedlmd_tf"), (3, "fedlmd")])
def test_fedlmd_switches_from_teacher_free(number, like):
    made = step(shared={"fedlmd_round": t(number)})
    found = methods("fedlmd", switch=3).penalty(made)
    assert float(found) == pytest.approx(float(methods(like).penalty(step())))


def test_label_smoothing():
    # (1 - mu) of the mass on the true class and mu / K on every class.
    log_q = t(LOCAL).log_softmax(1)
    target = torch.full((2, 4), 0.1 / 4, dtype=torch.float64)
    target[[0, 1], TRUE] += 0.9
    found = methods("fedavg_ls", mu=0.1).loss(step())
    assert float(found) == pytest.approx(float(-(target * log_q).sum(1).mean()))


@pytest.mark.parametrize(
    ("by", "factors"), [("presence", [1, 1, 0.5, 1]), ("count", [1, 0.75, 0.5, 0.625])]
)
def test_fedrs_restrains_missing_classes(by, factors):
    made = step(counts=[8, 4, 0, 2])
    log_q = (t(LOCAL) * t(factors)).log_softmax(1)
    found = methods("fedrs", alpha=0.5, by=by).loss(made)
    assert float(found) == pytest.approx(float(-log_q[[0, 1], TRUE].mean()))
