"""A model, a dataset and a partition are tried before they are used: `fedgrid check`."""

import logging
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedgrid.checking import parts, small
from fedgrid.checking.method import SIZES
from fedgrid.commands import check as command
from fedgrid.engine.state import RunState
from fedgrid.federation.members import Partition
from fedgrid.models import Classifier
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError
from made import GRID

pytestmark = pytest.mark.usefixtures("elsewhere")
DATA = small.uneven(SIZES)  # images (1, 6, 6) of three classes


class Unstacked(nn.Flatten):
    """A layer that no stack of clients can have, because it reads a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2.0 if x.sum().item() > 0 else 1.0)


def made(*layers, seed: int | None = 0) -> Classifier:
    torch.manual_seed(seed)
    body = nn.Sequential(*(layer() for layer in layers), nn.Linear(36, 4))
    return Classifier(body, 4, small.CLASSES)


def unmixed() -> nn.Module:
    return nn.BatchNorm2d(1, track_running_stats=False)


def judged(*layers, name: str = "mlp") -> list[str]:
    return [*parts.judge_model(name, partial(made, *layers), DATA)]


def test_a_right_model_has_no_problem():
    assert judged(nn.Flatten) == []
    plain = lambda seed=0: Classifier(nn.Flatten(), 36, small.CLASSES)  # noqa: E731
    assert not [one for one in parts.judge_model("mlp", plain, DATA) if "another seed" in one]
    assert [*parts.compare_backends(partial(made, nn.Flatten), DATA, {})] == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (lambda: judged(nn.Flatten, name="cnn"), "no convolutions: write `CONVOLUTIONS = False`"),
        (lambda: judged(unmixed, nn.Flatten), "write `INDEPENDENT = False`"),
        (
            lambda: [*parts.judge_model("mlp", lambda seed=0: made(nn.Flatten), DATA)],
            "another seed gives the same initial weights",
        ),
        (
            lambda: [*parts.judge_model("mlp", lambda seed=0: drawn_anew(), DATA)],
            "the same seed gives other initial weights",
        ),
        (
            lambda: [*parts.compare_backends(partial(made, Unstacked), DATA, {})],
            "a run of FedAvg fails: ",
        ),
    ],
)
def test_a_wrong_model_is_told(found, says):
    (sentence,) = found()
    assert says in sentence


def drawn_anew() -> Classifier:
    return made(nn.Flatten, seed=int(np.random.default_rng().integers(10**9)))


def npz(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.integers(0, 255, (12, 4, 4), np.uint8), np.arange(12) % 3
    np.savez("my.npz", x_train=x, y_train=y, x_test=x, y_test=y, clients_train=y)
    own_data.give({"datasets": {"my": {"npz": "my.npz"}}})
    source.forget()


def test_a_dataset_is_described_and_read_twice(monkeypatch, capsys):
    npz(0)
    command.main(["my"])
    said = capsys.readouterr().out
    for fact in ("uint8 (1, 4, 4)", "12 samples, 4 to 4 (median 4) of a class", "3, with 4 to 4"):
        assert fact in said
    decode = parts.decode

    def change(*given) -> None:
        decode(*given)
        npz(1)

    monkeypatch.setattr(parts, "decode", change)
    with pytest.raises(SystemExit):
        command.main(["my"])
    assert "problem: a second reading gives other samples" in capsys.readouterr().out


def test_other_work_of_the_process_is_logged_as_before():
    npz(0)
    rooms = [logging.getLogger(f"fedgrid.{room}") for room in ("engine", "stages")]
    before = [room.level for room in rooms]
    command.main(["my"])
    assert [room.level for room in rooms] == before


def test_a_partition_is_described_and_drawn_twice(monkeypatch, capsys):
    npz(0)
    command.main(["given", "--dataset", "my", "--protocol", "fedsls-quick-clients3"])
    said = capsys.readouterr().out
    assert "4 to 4 (median 4)" in said
    assert "1 to 1 (median 1)" in said
    one, counts = [np.arange(12)], np.array([[4, 4, 4]])
    right, wrong = Partition(one, counts), Partition([one[0][::-1]], counts + 1)
    drawn = iter([right, wrong, wrong, wrong])
    monkeypatch.setattr(parts, "draw", lambda run, data: next(drawn))
    names = {"protocol": "fedsls-quick", "dataset": "my", "partition": "iid"}
    run = GRID.resolve(names | {"method": "fedavg", "seed": 0})
    for says in ("a second draw with the same seed", "not every training sample"):
        (sentence,) = parts.check_partition("iid", run, Path()).problems
        assert sentence.startswith(says)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fedavg", "method"), ("fedprox-mu0.1", "method"), ("cnn", "model"), ("digits", "dataset"),
     ("dir0.1", "partition"), ("dir0.10", "partition")],
)  # fmt: skip
def test_a_name_says_what_it_is_of(name, kind):
    assert command.find_kind(name, GRID) == kind


def test_a_name_of_nothing_or_of_several_is_refused():
    with pytest.raises(UsageError, match=r"no method, model, dataset or partition .*mean cnn"):
        command.find_kind("cn", GRID)
    own_data.give({"datasets": {"moon": {"npz": "my.npz"}}})
    with pytest.raises(UsageError, match=r"moon is a method and dataset: say which .* --kind"):
        command.find_kind("moon", GRID)


def test_a_backend_that_gives_another_model_is_told(monkeypatch):
    torch.manual_seed(0)
    states = {"loop": torch.ones(1), "stacked": torch.zeros(1)}
    monkeypatch.setattr(parts, "play", lambda backend, *_: RunState({"w": states[backend]}, {}))
    (sentence,) = parts.compare_backends(made, DATA, {})
    assert "the backend stacked gives another model than loop" in sentence
