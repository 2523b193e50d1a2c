"""How well the autoencoders of FedSL are trained: `fedgrid latents` with and without a fit."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import made
from conftest import federated
from fedgrid.encoders import autoencoder
from fedgrid.federation import federation, schedule, seeds
from fedgrid.stages import latents
from fedgrid.study import protocol
from fedgrid.study.command import Machine
from fedgrid.study.protocol import STAGES

SIZES = (1, 2, 5, 10, 0)
PROTOCOL = protocol.PROTOCOL | {"clients": len(SIZES), "batch": 4, "momentum": 0.9, "lr": 0.1}
FLOPS = [f"flops/encoder=client/f={f}" for f in autoencoder.FACTORS]


def gradients(images: int) -> torch.Tensor:
    """Images (B, 1, 8, 8) that run from dark to bright in some direction: easy to compress."""
    across, down = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="xy")
    angle = torch.rand(images, 1, 1, 1) * 2 * torch.pi
    return (127.5 + 90 * (angle.cos() * across + angle.sin() * down)).round().byte()


@pytest.fixture(autouse=True)
def data(monkeypatch):
    """A federation of five clients, one of them empty, in place of files."""
    clients = [(gradients(n), torch.zeros(n, dtype=int)) for n in SIZES]
    made = federated(clients, 2, scale=4)
    single = {"mean": made.mean.float() + 0.5, "std": made.std.float()}  # values from -2 to 2
    made = replace(made, **single)
    monkeypatch.setattr(federation, "load_federation", lambda *_: made)
    return made


def encoded(folder: Path, **protocol) -> dict[str, np.ndarray]:
    """What the stage writes."""
    out = folder / "latents.npz"
    latents.encode({"protocol": PROTOCOL | protocol}, {}, out, Machine("cpu"))
    with np.load(out) as file:
        return dict(file)


def written_out(data, f: int, k: int) -> float:
    """The norm of a client's latents after the protocol's epochs of SGD."""
    torch.manual_seed(seeds.seed("latents", *data.names, f))
    model = autoencoder.autoencoder(1, f)
    optimiser = torch.optim.SGD(model.parameters(), lr=PROTOCOL["lr"], momentum=0.9)
    x = (data.images[data.members[k]] / 255 - data.mean) / data.std
    rng = seeds.generator("latents", *data.names, f, k)
    for chosen in schedule.split(rng.permutation(len(x)), 4, PROTOCOL["smallest_batch"]):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x[chosen]), x[chosen]).backward()
        optimiser.step()
    with torch.no_grad():
        return float(autoencoder.norms(model[0](x)))


def test_by_default_an_autoencoder_gets_the_epochs_of_sgd(data, tmp_path):
    found = encoded(tmp_path)
    assert set(found) == {"norms", "factors", *FLOPS}
    assert 0 < found[FLOPS[0]] < found[FLOPS[1]]  # more layers, each with a quarter of the pixels
    expected = [[written_out(data, f, k) for k in (2, 3)] for f in (2, 4, 8)]
    assert found["norms"][0][:, 2:4].tolist() == expected


def test_a_fit_goes_on_until_the_share_is_explained(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    before, found = encoded(tmp_path), encoded(tmp_path, autoencoder_fit=0.8)
    assert found["explained"].shape == found["norms"].shape == (3, 3, len(SIZES))
    assert all(np.isnan(found[name]) for name in FLOPS)  # how many steps it took is not known
    assert (found["explained"][:2] >= 0.8).all()
    assert np.isnan(found["explained"][2]).all()  # plain averaging has no decoder
    own = found["norms"][0, :, :-1]
    assert (own != before["norms"][0, :, :-1]).all()
    assert (found["norms"][2] == before["norms"][2]).all()
    assert f"f = 8: explained by a client's autoencoder: {found['explained'][0, 2].min():.3f}" in (
        caplog.text
    )
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_fit_that_cannot_be_reached_ends_and_is_named(data, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(autoencoder, "LIMIT", 20)
    monkeypatch.setattr(autoencoder, "BETWEEN", 10)
    steps, descend = [], autoencoder.descend
    monkeypatch.setattr(autoencoder, "descend", lambda *a: (steps.append(len(a[2])), descend(*a)))
    found = encoded(tmp_path, autoencoder_fit=0.99999)
    assert len(steps) == 3 * 20 * 5  # three factors, four clients with images and all together
    (said,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "after 20 steps" in said
    assert "autoencoder_fit, which is 0.99999" in said
    for i, f in enumerate((2, 4, 8)):
        for k in range(4):
            assert f"f = {f}, client {k} ({found['explained'][0, i, k]:.3f})" in said
        assert f"f = {f}, pooled ({found['explained'][1, i, 0]:.3f})" in said
    assert "client 4" not in said  # it has no images, so there is nothing to explain
    assert np.isfinite(found["norms"]).all()


def test_a_fit_trains_on_whatever_a_client_has(data, tmp_path, monkeypatch):
    monkeypatch.setattr(autoencoder, "LIMIT", 1)
    with_eight = encoded(tmp_path, autoencoder_fit=0.99999, smallest_batch=8)
    with_one = encoded(tmp_path, autoencoder_fit=0.99999, smallest_batch=1)
    assert (with_eight["norms"] == with_one["norms"]).all()
    assert (encoded(tmp_path)["norms"][0, :, :2] != with_one["norms"][0, :, :2]).all()


def test_it_is_looked_at_after_epochs_and_seldom(monkeypatch):
    looks = []

    def explained() -> float:
        looks.append(len(looks))
        return 0.3 * len(looks)

    model, x = autoencoder.autoencoder(1, 2), torch.rand(2, 1, 8, 8)
    assert autoencoder.fit(model, [x] * 20, explained, share=0.8, between=4) == pytest.approx(0.9)
    assert len(looks) == 3
    assert autoencoder.fit(model, [x] * 3, lambda: 0.25, share=0.8, between=4) == 0.25


def test_the_share_written_out():
    x = torch.rand(5, 3, 4, 8) + torch.tensor([0.0, 1, 5])[:, None, None]
    distance = x - x.mean((0, 2, 3), keepdim=True)
    found = autoencoder.variance(autoencoder.moments(x), pixels=5 * 4 * 8)
    torch.testing.assert_close(
        float(found), float(distance.double().square().sum()), rtol=1e-6, atol=0
    )
    twice = nn.Sequential(nn.Identity(), nn.Identity())
    assert autoencoder.error(twice, x) == 0
    halved = nn.Upsample(scale_factor=1)
    halved.forward = lambda x: x / 2
    torch.testing.assert_close(
        float(autoencoder.error(halved, x)), float((x / 2).double().square().sum())
    )


def test_nothing_but_the_latents_depends_on_the_fit():
    assert [stage for stage, fields in STAGES.items() if "autoencoder_fit" in fields] == ["latents"]


def test_the_papers_study_has_a_protocol_that_fits():
    everything = made.GRID
    fitted, default = everything.protocol("fedsls-fitted"), everything.protocol("fedsls")
    assert fitted == default | {"autoencoder_fit": 0.8}
    assert default["autoencoder_fit"] == 0
    assert "fedsls-fitted" in everything.studies["fedsls"]["main"]
