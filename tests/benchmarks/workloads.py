"""What is run: every workload's data, model and protocol, and how many rounds of it by default."""

from typing import Any

PEERS = ["plain", "tensors", "flower", "pfl"]
CIFAR = {"shape": (3, 32, 32), "samples": 50_000, "tests": 10_000, "clients": 100, "alpha": 0.1}
SGD = {"lr": 0.01, "momentum": 0.9, "recipe": "balanced"}
STEPS = {"local": 10, "local_unit": "steps"}

# `rounds` are those measured on a CPU and on a GPU; `precisions` the rows of fedgrid's engine;
# `base` is the contestant that all others are divided by and compared with; `judged` the precision
# in which the weights after a round are compared. A network with BatchNorm over single pixels is
# chaotic: in float32 any two orders of the same sums part, and so they do over hundreds of steps of
# any network. There a round is repeated in float64 for the comparison.
WORKLOADS: dict[str, dict[str, Any]] = {
    "A": CIFAR
    | {
        "title": "two-convolution CNN, batch 50",
        "protocol": SGD | STEPS | {"model": "fedavg_cnn", "batch": 50},
        "rounds": {"cpu": 1, "cuda": 50},
        "precisions": ["fp32", "bf16"],
        "profile": True,
    },
    "B": CIFAR
    | {
        "title": "ResNet-18 at 32x32, batch 16",
        "judged": "fp64",
        "protocol": SGD | STEPS | {"model": "resnet18", "batch": 16},
        "rounds": {"cpu": 1, "cuda": 50},
        "precisions": ["fp32"],
        "profile": True,
    },
    "C": CIFAR
    | {
        "title": "ResNet-18, batch 64, evaluation every 10 rounds",
        "judged": "fp64",
        "protocol": STEPS
        | {"model": "resnet18", "batch": 64, "lr": 0.01, "momentum": 0.0}
        | {"recipe": "classwise", "smallest_batch": 3},
        "evaluate_every": 10,
        "cpu": {"tests": 2_000, "evaluate_every": 2},  # a fifth of both
        "rounds": {"cpu": 2, "cuda": 50},
        "precisions": ["fp32"],
    },
    "D": CIFAR
    | {
        "title": "two-convolution CNN, 5 epochs, evaluation every round",
        "judged": "fp64",
        "alpha": 0.05,
        "protocol": SGD
        | {"model": "fedavg_cnn", "batch": 50, "local": 5, "local_unit": "epochs"}
        | {"lr_decay": 0.99, "weight_decay": 1e-5},
        "evaluate_every": 1,
        "rounds": {"cpu": 1, "cuda": 20},
        "precisions": ["fp32"],
    },
    "E": CIFAR
    | {
        "title": "overhead: a linear model of 650 weights, batch 16",
        "shape": (1, 8, 8),
        "samples": 10_000,
        "alpha": 1.0,
        "tests": 1_000,
        "protocol": SGD | STEPS | {"model": "linear", "batch": 16},
        "rounds": {"cpu": 20, "cuda": 50},
        "precisions": ["fp32"],
    },
    "F": {
        "title": "guided encoder, ResNet-18",
        "shape": (3, 32, 32),
        "tests": 0,
        "alpha": 1.0,
        "clients": 3,
        "samples": 120,
        "cuda": {"clients": 20, "samples": 2_000},
        "protocol": {"model": "resnet18", "recipe": "clientwise", "participation": 1.0},
        "rounds": {"cpu": 1, "cuda": 1},
        "precisions": ["fp32"],
        "kind": "encoder",
        "base": "textbook",
        "peers": ["textbook", "batched"],
    },
}


def read(row: str) -> tuple[str, str, bool]:
    """The contestant, the precision, and whether local steps are compiled, of a row's name."""
    name, *words = row.split()
    precisions = [word for word in words if word != "compiled"]
    return name, *(precisions or ["fp32"]), "compiled" in words


def find(name: str, device: str = "cpu") -> dict[str, Any]:
    """A workload with all its fields, at the size that suits the device."""
    neutral = {"kind": "rounds", "base": "plain", "peers": PEERS, "profile": False, "name": name}
    neutral |= {"evaluate_every": 10**9, "judged": "fp32"}
    found = neutral | WORKLOADS[name]
    return found | found.get(device, {})
