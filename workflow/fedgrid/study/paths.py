"""The paths of a run's files, relative to results/."""

from fedgrid.runtime import source
from fedgrid.study.protocol import SHARED

RUN = "{protocol}/{dataset}/{partition}/{method}/seed{seed}"
CELL = "{protocol}/{dataset}/{partition}/seed{seed}"  # what all methods of a seed share
PARTITION = "{dataset}/{partition}/{recipe}-{clients}/seed{seed}"  # what all protocols share
# Files of runs that are collected into one table each (`collect.py`).
COLLECTED = {
    "runs": f"runs/{RUN}/metrics.csv",
    "predictions": f"runs/{RUN}/predictions.csv",
    "seconds": f"runs/{RUN}/summary.json",
    "settings": f"runs/{RUN}/summary.json",
    "partition": f"partition/{PARTITION}.npz",
    "saliency": f"saliency/{CELL}.csv",
    "encoding": f"saliency/{CELL}.json",
}
# Fields of a protocol that become columns of these tables.
SUMMED = ("rounds", "metric", "tail", "participation", "sampler", *SHARED)
INPUTS = ("data", "weights", "partition", "pretrain", "saliency", "latents")  # of stages


def collected_path(kind: str, run: dict, protocol: dict) -> str:
    """Where a run, or what it shares with others, leaves what is collected as `kind`."""
    return COLLECTED[kind].format(**run, **{field: protocol[field] for field in SHARED})


def collecting_stage(kind: str) -> str:
    """The stage that leaves the files that are collected as `kind`."""
    folder, _, _ = COLLECTED[kind].partition("/")
    return "train" if folder == "runs" else folder


def input_paths(run: dict) -> dict[str, str]:
    """Return the paths of a resolved run's inputs, relative to results/, by stage."""
    protocol, names = run["protocol"], run["name"]
    cell = CELL.format(**names)
    partition = PARTITION.format(**names, **{field: protocol[field] for field in SHARED})
    paths = {
        "data": f"data/{run['dataset']}",
        "partition": f"partition/{partition}.npz",
        "pretrain": f"pretrain/{cell}",
        "saliency": f"saliency/{cell}.npz",
        "latents": f"latents/{cell}.npz",
    }
    model, weights = protocol.get("model", "cnn"), protocol.get("weights", "none")
    if weights in source.literal(f"models.{model}", "WEIGHTS", ()):
        paths["weights"] = f"weights/{model}-{weights}.safetensors"
    return paths
