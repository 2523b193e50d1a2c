"""What the saliency stage says of its weights, and what batches do to them: `fedgrid saliency`."""

from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from fedgrid import datasets, models
from fedgrid.commands import data, partition
from fedgrid.encoders import guided
from fedgrid.federation import augment, schedule
from fedgrid.stages import saliency
from fedgrid.study.command import Machine
from fedgrid.study.paths import input_paths
from fedgrid.study.protocol import AXES
from made import GRID

# Every protocol whose model has BatchNorm.
NORMALISED = [
    name
    for name in GRID.protocols
    if GRID.protocol(name)["model"] in ("resnet8", "resnet18", "resnet50", "mobilenet")
]


def described(saliencies: list[float], sizes: list[int] | None = None) -> pd.DataFrame:
    """The table of the stage for clients of these R_k, all of a single layer."""
    contributions = torch.zeros(3, 2, 2, len(saliencies), 1, dtype=torch.float64)
    contributions[..., 0] = torch.tensor(saliencies, dtype=torch.float64)
    sizes = torch.tensor(sizes or [1] * len(saliencies))
    return saliency.describe(contributions, torch.tensor([True]), ["conv"], sizes)


# --- the warning -----------------------------------------------------------------------------


def doubts(table) -> str:
    """What a table is warned of; "" if there is nothing."""
    with mock.patch.object(saliency.cli, "warn") as warn:
        saliency.warn_of_doubts(Path("s.npz"), table)
    return warn.call_args.args[0] if warn.called else ""


def test_a_few_clients_with_most_of_the_weight_are_named():
    found = [0.05] * 100
    found[12], found[48], found[77] = 7.0, 43.0, 21.0
    said = doubts(described(found, [1] * 77 + [2] + [1] * 22))
    assert "56.7% of all weight is with client 48 of 100" in said
    found[12], found[48] = 25.0, 23.0
    said = doubts(described(found, [1] * 77 + [2] + [1] * 22))
    assert "with clients 12 and 48 of 100: R_k / n_k is 25 and 23 there" in said
    assert "the median is 0.05" in said


@pytest.mark.parametrize(
    "saliencies",
    [
        [1.0] * 100,
        [9.0] * 11 + [0.001] * 89,  # six of a hundred are not a few
        [1.0] * 20,
        [4.0, 4.0] + [0.1] * 18,  # nor are two of twenty
        [1.0, 1.0, 1.0],
    ],
)
def test_weights_that_many_clients_share_raise_no_doubts(saliencies):
    assert doubts(described(saliencies)) == ""


def test_one_client_of_a_few_can_hold_most_of_the_weight():
    assert "99.0% of all weight is with client 1 of 2" in doubts(described([1, 99]))


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_clients_whose_saliency_is_not_finite_are_named(lost):
    said = doubts(described([1.0, lost, 1.0, lost]))
    assert "R_k is not finite for clients 1 and 3: their pretraining diverged" in said


def test_a_federation_without_any_saliency_is_named():
    assert "R_k is 0 for every client" in doubts(described([0.0, 0.0]))


def test_the_stage_says_it_where_a_person_sees_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run, paths = prepared(tmp_path)
    found = torch.ones(3, 2, 2, run["protocol"]["clients"], 2, dtype=torch.float64)
    found[..., 3, :] = 1e6
    monkeypatch.setattr(saliency, "encoded", lambda engine, folder: (found, ["a", "b"]))
    saliency.encode(run, paths, tmp_path / "s.npz", Machine("cpu", "loop"))
    assert "of all weight is with client 3 of 20" in capsys.readouterr().err
    assert np.load(tmp_path / "s.npz")["flops"] > 0


def prepared(folder) -> tuple[dict, dict]:
    """A run of the quick scale with data and partition; its pretrained models are not there."""
    name = "fedsls-quick/digits/dir0.1/fedsls/seed0"
    data.main(["digits"])
    partition.main([name])
    run = GRID.resolve(dict(zip(AXES, name.replace("seed", "").split("/"), strict=True)))
    paths = {one: folder / "results" / path for one, path in input_paths(run).items()}
    paths["pretrain"].mkdir(parents=True)
    (paths["pretrain"] / "seconds.txt").write_text("1.0\n")
    return run, paths


# --- batches whose BatchNorm statistics are of a handful of values ------------------------------


@pytest.mark.parametrize("name", NORMALISED)
def test_no_protocol_with_batchnorm_trains_on_a_handful_of_images(name):
    protocol = GRID.protocol(name) | {"local": 2, "local_unit": "epochs"}
    for samples in range(1, 140):
        sizes = [len(b) for b in schedule.batches(samples, protocol, np.random.default_rng(0))]
        assert min(sizes, default=8) >= 8, samples
        assert bool(sizes) == (samples >= 8)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    """72 normalised 32x32 images of one class."""
    split = datasets.load("synthetic", None)
    chosen = torch.from_numpy(split.train_images[split.train_labels == 0][:72])
    return augment.normalise(chosen, torch.tensor(0.5), torch.tensor(0.23))


@pytest.mark.parametrize("rest", [3, 4])
def test_a_small_last_batch_does_not_ruin_the_saliency(rest, images):
    """Of ResNet-18 at 32x32, whose last maps are single pixels; the images encoded are the same."""
    whole, more = (mean_saliency(pretrained(images[: 64 + n]), images[:32]) for n in (0, rest))
    assert more / whole == pytest.approx(1, rel=0.5)


def pretrained(images: torch.Tensor) -> models.Classifier:
    """ResNet-18 after an epoch on these images, in the batches of FedSLS's protocol."""
    protocol = GRID.protocol("fedsls") | {"local": 1, "local_unit": "epochs"}
    model = models.build("resnet18", (3, 32, 32), 10, None, 0).train()
    optimiser = torch.optim.SGD(model.parameters(), protocol["lr"])
    for batch in schedule.batches(len(images), protocol, np.random.default_rng(0)):
        optimiser.zero_grad()
        F.cross_entropy(model(images[batch])[1], torch.zeros(len(batch), dtype=int)).backward()
        optimiser.step()
    return model.eval()


def mean_saliency(model: models.Classifier, images: torch.Tensor) -> float:
    """The mean saliency of the images, by the default reading."""
    labels = torch.zeros(len(images), dtype=int)
    found = guided.contributions(model, dict(model.state_dict()), images, labels, ("label",))
    stacked = guided.stack(found)[..., None, :]
    main = torch.ones(len(found), dtype=bool)
    return float(guided.Choice().weights(stacked, main, ("label",))) / len(images)
