"""The visual-fidelity study: `fedgrid.experiments.fidelity`."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from fedgrid import models
from fedgrid.commands import data
from fedgrid.encoders.autoencoder import FACTORS
from fedgrid.experiments.fidelity import greymaps, maps, networks, originals, scores
from fedgrid.experiments.fidelity.setting import (
    MAPS,
    OUTPUTS,
    Originals,
    check_setting,
    find_paths,
    read_setting,
)
from fedgrid.runtime.names import UsageError
from made import STUDY

QUICK = STUDY["scales"]["quick"]["fidelity"]
TINY = QUICK | {
    "images": {"digits": 6, "photographs": 5}, "size": 16, "model": "cnn", "epochs": 1,
    "judge": "cnn", "judge_epochs": 1, "batch": 4, "autoencoder_epochs": 1,
    "encoders": {"saliency": 2, "autoencoder": 1, "area": 1},
}  # fmt: skip
SEEDS = ["saliency/0", "saliency/1", "autoencoder/0", "area/0"]
LAYERS = [
    *[("saliency", layer, seed) for layer in ("input", "conv1") for seed in (0, 1)],
    *[(encoder, f"f{f}", 0) for encoder in ("autoencoder", "area") for f in FACTORS],
]
RANDOM = torch.Generator().manual_seed(0)
PHOTOGRAPH = torch.randint(0, 256, (4, 3, 16, 16), generator=RANDOM).byte()


def drawn(images: Tensor = PHOTOGRAPH) -> Originals:
    """Images of two classes as if they had been drawn."""
    grey = greymaps.finish(greymaps.luminance(images), images.shape[-1], "minmax")
    return Originals(images, torch.arange(len(images)) % 2, None, None, grey)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in TINY["images"]:
        data.main([name, "--out", str(folder / name)])
    return folder


def draw(folder: Path, decoded: Path, **changes) -> Path:
    """The originals of a tiny setting."""
    out = folder / "originals.npz"
    setting = TINY | changes
    inputs = [f"{name}={decoded / name}" for name in setting["images"]]
    originals.main([json.dumps(setting), "--inputs", *inputs, "--out", str(out)])
    return out


def encode(folder: Path, which: str, path: Path, **changes) -> Path:
    """The maps of an encoder and seed, such as `saliency/0`."""
    (encoder, seed), out = which.split("/"), folder / f"{which.replace('/', '')}.npz"
    maps.main([
        json.dumps(TINY | changes), "--encoder", encoder, "--seed", seed, "--device", "cpu",
        "--inputs", f"originals={path}", "--out", str(out),
    ])  # fmt: skip
    return out


def score(folder: Path, path: Path, files: dict[str, Path]) -> list[Path]:
    """The tables of scores and of examples."""
    tables = [folder / "scores.csv", folder / "examples.csv"]
    scores.main([
        json.dumps(TINY), "--inputs", f"originals={path}", "--device", "cpu",
        "--maps", *(f"{name}={file}" for name, file in files.items()),
        "--out", str(tables[0]), "--examples", str(tables[1]),
    ])  # fmt: skip
    return tables


def study(folder: Path, decoded: Path) -> dict[str, Path]:
    """All files of the tiny study, by name."""
    path = draw(folder, decoded)
    files = {which: encode(folder, which, path) for which in SEEDS}
    tables = score(folder, path, files)
    return {"originals": path, **files, "scores": tables[0], "examples": tables[1]}


@pytest.fixture(scope="module")
def made(tmp_path_factory, decoded) -> dict[str, Path]:
    return study(tmp_path_factory.mktemp("study"), decoded)


# --- normalisation ---------------------------------------------------------------------------


def test_minmax_by_hand():
    map = torch.tensor([[[2.0, 4], [3, 6]]])
    assert greymaps.minmax(map).tolist() == [[[0, 0.5], [0.25, 1]]]
    assert greymaps.finish(map, 2, "minmax").tolist() == [[[0, 128], [64, 255]]]


def test_moments_by_hand():
    # Mean 3 and deviation 1: 0.5 - 0.2 and 0.5 + 0.2. Then mean 1, deviation sqrt(24): 1 at 25
    # is 0.5 + 0.2 sqrt(24) = 1.48, which is clipped, and 0 is 0.5 - 0.2 / sqrt(24).
    torch.testing.assert_close(
        greymaps.moments(torch.tensor([[[2.0, 4], [4, 2]]])),
        torch.tensor([[[0.3, 0.7], [0.7, 0.3]]]),
    )
    one = torch.zeros(1, 5, 5)
    one[0, 2, 2] = 25
    scaled = greymaps.moments(one)[0]
    assert scaled[2, 2] == 1
    assert scaled[0, 0] == pytest.approx(0.5 - 0.2 / 24**0.5)


@pytest.mark.parametrize("contrast", greymaps.CONTRASTS)
def test_each_map_is_normalised_by_itself(contrast):
    two = torch.rand(2, 8, 8, generator=RANDOM) * torch.tensor([1.0, 50])[:, None, None]
    together = greymaps.CONTRASTS[contrast](two)
    alone = torch.cat([greymaps.CONTRASTS[contrast](one[None]) for one in two])
    assert torch.equal(together, alone)
    torch.testing.assert_close(
        greymaps.CONTRASTS[contrast](7 - 3 * two)[0].mean(), 1 - alone[0].mean()
    )


@pytest.mark.parametrize("contrast", greymaps.CONTRASTS)
@pytest.mark.parametrize("value", [0.0, -3.0, 1e6])
def test_a_constant_map_is_mid_grey(contrast, value):
    map = torch.full((1, 4, 4), value)
    map[0, 0, 0] += 1e-7 * value  # as rounding leaves it
    assert (greymaps.finish(map, 8, contrast) == 128).all()


def test_luminance_by_hand():
    x = torch.tensor([[100.0, 10], [20, 0], [50, 255]]).view(1, 3, 1, 2)
    expected = [0.299 * 100 + 0.587 * 20 + 0.114 * 50, 0.299 * 10 + 0.114 * 255]
    torch.testing.assert_close(greymaps.luminance(x), torch.tensor([[expected]]))


def test_statistics_are_those_of_the_images():
    scaled = PHOTOGRAPH.double() / 255
    expected = [scaled.mean((0, 2, 3)).tolist(), scaled.std((0, 2, 3), correction=0).tolist()]
    np.testing.assert_allclose(networks.statistics(PHOTOGRAPH), expected, rtol=1e-12)
    assert networks.statistics(torch.zeros(1, 1, 4, 4).byte())[1][0] > 0


# --- the setting -----------------------------------------------------------------------------


def without(field: str) -> dict:
    return {name: value for name, value in TINY.items() if name != field}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("{", "the setting is not JSON"),
        ([1], r"the setting: \[1\] is not `key: value` pairs"),
        (without("judge"), "the setting: the key `judge` is missing"),
        (TINY | {"lr": "much"}, "the setting: lr: 'much' is not a number"),
        (TINY | {"batch": 1}, "the setting: batch: 1 is less than the minimum of 3"),
        (TINY | {"size": 20}, "size: 20 is not a multiple of 8"),
        (TINY | {"judge_output": "logit"}, "judge_output: 'logit' is not one of features, logits"),
        (TINY | {"images": {"digit": 9}}, "no dataset is called `digit`: did you mean digits"),
        (TINY | {"images": {}}, "the setting has 0 images: give at least 8"),
        (TINY | {"encoders": {"area": 0}}, "encoders.area: 0 is less than the minimum of 1"),
        (TINY | {"weights": "imagenet"}, "no set of weights for cnn is called `imagenet`"),
    ],
)
def test_a_mistake_in_the_setting_is_one_sentence(setting, message):
    text = setting if isinstance(setting, str) else json.dumps(setting)
    with pytest.raises(UsageError, match=message) as caught:
        read_setting(text)
    assert "\n" not in str(caught.value)


def test_a_setting_of_the_study_is_valid():
    assert read_setting(json.dumps(QUICK)) == QUICK
    paper = {"model": "resnet18", "weights": "imagenet", "epochs": 0}
    check_setting(QUICK | paper)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "the input b is missing: give its path with b=PATH"),
        (["b"], "the input b is missing: give its path"),
        (["b=/none"], "the input b is missing: /none does not exist"),
        (["b=.", "b=."], "the input b is given twice"),
        (["b=.", "c=."], "no input is called `c`"),
    ],
)
def test_paths_are_those_wanted(texts, message):
    with pytest.raises(UsageError, match=message):
        find_paths(texts, ["b"])


# --- originals -------------------------------------------------------------------------------


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def test_originals_are_of_the_train_split(made, decoded):
    found = arrays(made["originals"])
    assert found["datasets"].tolist() == ["digits"] * 6 + ["photographs"] * 5
    assert [len(set(ids)) for ids in (found["ids"][:6], found["ids"][6:])] == [6, 5]
    images = np.load(decoded / "digits/train_images.npy")[found["ids"][:6]]
    enlarged = greymaps.resize(torch.from_numpy(images).float(), 16).round()
    np.testing.assert_array_equal(found["images"][:6], enlarged.expand(-1, 3, -1, -1))
    assert found["images"].dtype == found["grey"].dtype == np.uint8
    assert found["grey"].shape == (11, 16, 16)
    assert found["grey"].min((1, 2)).tolist() == [0] * 11
    assert found["grey"].max((1, 2)).tolist() == [255] * 11


def test_labels_number_the_classes_that_were_drawn(made, decoded):
    labels, found = arrays(made["originals"])["labels"], arrays(made["originals"])
    pairs = [
        (name, np.load(decoded / name / "train_labels.npy")[i])
        for name, i in zip(found["datasets"], found["ids"], strict=True)
    ]
    assert labels.tolist() == [sorted(set(pairs)).index(pair) for pair in pairs]
    assert originals.ranked([np.array([7, 2, 7]), np.array([2])]).tolist() == [1, 0, 1, 2]


def test_no_more_images_than_there_are(decoded, tmp_path):
    with pytest.raises(UsageError, match="182 images of photographs are more than the 181 in"):
        draw(tmp_path, decoded, images={"photographs": 182})


# --- maps ------------------------------------------------------------------------------------


class Hand(nn.Module):
    """A 1x1 convolution, a ReLU and a linear head over the mean of the map."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 2, 1), nn.Linear(2, 2)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[1.0, 0, 2], [0, -1, 0]])[..., None, None])
            self.conv.bias.zero_()
            self.head.weight.copy_(torch.tensor([[3.0, 5], [-8, 1]]))
            self.head.bias.zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.conv(x).relu().mean((2, 3))
        return features, self.head(features)


def test_saliency_maps_by_hand():
    # Images of two pixels. In the first, the convolution gives (1 + 2 = 3, -1) and (0, 2); features
    # are (1.5, 1), logits 9.5 and -11. The gradient of the first, 3/2 and 5/2, passes a ReLU where
    # its input is positive: at the input (3/2, 0, 3) and (0, -5/2, 0). In the second, only green
    # -4 counts: features (0, 2), logits 10 and 2, the gradient at the input (0, -5/2, 0) there.
    images = torch.zeros(2, 3, 1, 2)
    images[0, :, 0, 0], images[0, :, 0, 1] = torch.tensor([1.0, 1, 1]), torch.tensor([0.0, -2, 0])
    images[1, 1, 0, 1] = -4
    network = networks.Network(Hand().eval(), torch.zeros(3, 1, 1), torch.full((3, 1, 1), 1 / 255))
    at_input, at_conv1 = maps.guided(network, images)
    torch.testing.assert_close(at_input[:, 0], torch.tensor([[1.5, -2.5 / 3], [0, -2.5 / 3]]))
    # Gradient times activation at conv1: (3/2 * 3, 0) and (0, 5/2 * 2); then (0, 5/2 * 4).
    torch.testing.assert_close(at_conv1[:, 0], torch.tensor([[2.25, 2.5], [0, 5]]))


def test_the_gradient_is_of_the_predicted_classs_logit():
    from fedgrid.encoders.guided import guided_gradients

    network = networks.network(TINY, "model", drawn(), None, 0)
    model, x = network.model, network.input(PHOTOGRAPH)
    predicted = model(x)[1].argmax(1)
    both = [
        guided_gradients(model, model.state_dict(), x, y, ("label",))[1]["label"][-1].mean(1)
        for y in (predicted, 1 - predicted)
    ]
    at_input = maps.guided(network, PHOTOGRAPH)[0]
    torch.testing.assert_close(at_input, both[0])
    assert not torch.allclose(at_input, both[1])


def test_area_maps_by_hand():
    # Grey values 0, 1 and 3 of 4 in the quarters of an image, halved: the map's corners are those.
    grey = torch.tensor([[0, 40], [120, 160]]).repeat_interleave(8, 0).repeat_interleave(8, 1)
    image = grey.byte().expand(1, 3, 16, 16)
    found, _ = maps.area(TINY, drawn(image), None, 0)
    assert {name: map.shape for name, map in found.items()} == {
        "f2": (1, 8, 8), "f4": (1, 4, 4), "f8": (1, 2, 2),
    }  # fmt: skip
    torch.testing.assert_close(255 * found["f8"][0], torch.tensor([[0.0, 40], [120, 160]]))
    finished = greymaps.finish(found["f2"], 16, "minmax")[0]
    corners = [finished[i, j].item() for i in (0, -1) for j in (0, -1)]
    assert corners == [0, 64, 191, 255]


def test_latents_are_the_encoders_channel_means():
    found, _ = maps.autoencoder(TINY | {"autoencoder_epochs": 0}, drawn(), None, 0)
    assert [found[f"f{f}"].shape for f in FACTORS] == [(4, 16 // f, 16 // f) for f in FACTORS]
    trained, _ = maps.autoencoder(TINY, drawn(), None, 0)
    again, _ = maps.autoencoder(TINY, drawn(), None, 0)
    other, _ = maps.autoencoder(TINY, drawn(), None, 1)
    assert torch.equal(trained["f4"], again["f4"])
    assert not torch.allclose(trained["f4"], found["f4"])
    assert not torch.allclose(trained["f4"], other["f4"])


@pytest.mark.parametrize("encoder", maps.ENCODERS)
@pytest.mark.parametrize("chunk", [1, 3])
def test_maps_do_not_depend_on_the_chunks(encoder, chunk, monkeypatch):
    setting = TINY | {"weights": "none", "epochs": 0}
    whole = maps.ENCODERS[encoder](setting, drawn(), None, 0)
    monkeypatch.setattr(greymaps, "CHUNK", chunk)
    found = maps.ENCODERS[encoder](setting, drawn(), None, 0)
    torch.testing.assert_close(found, whole)


def test_maps_are_grey_and_as_large_as_the_originals(made):
    for which in SEEDS:
        found = arrays(made[which])
        encoder = which.split("/")[0]
        assert np.isfinite(found.pop("explained")).all() == (encoder == "autoencoder")
        assert tuple(found) == MAPS[encoder]
        for map in found.values():
            assert (map.dtype, map.shape) == (np.uint8, (11, 16, 16))
            contrasts = set(zip(map.min((1, 2)), map.max((1, 2)), strict=True))
            assert contrasts <= {(0, 255), (128, 128)}
    assert not np.array_equal(*(arrays(made[f"saliency/{seed}"])["input"] for seed in (0, 1)))


# --- networks --------------------------------------------------------------------------------


def published(tmp_path: Path, classes: int = 1000) -> Path:
    """Weights of a cnn with a classifier over `classes` classes."""
    model = models.build("cnn", (3, 16, 16), classes, seed=9)
    weights = {n.removeprefix("body."): w.contiguous() for n, w in model.state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_published_weights_keep_their_classifier_unless_there_are_epochs(tmp_path):
    path, setting = published(tmp_path), TINY | {"weights": "imagenet"}
    kept = networks.network(setting | {"epochs": 0}, "model", drawn(), path, 0)
    original = models.build("cnn", (3, 16, 16), 1000, seed=9).state_dict()
    assert all(torch.equal(w, original[n]) for n, w in kept.model.state_dict().items())
    assert not kept.model.training
    np.testing.assert_allclose(kept.mean.flatten(), [0.485, 0.456, 0.406])
    tuned = networks.network(setting | {"epochs": 1}, "model", drawn(), path, 0)
    assert tuned.model.head.out_features == 2
    assert not torch.equal(tuned.model.body[0].weight, kept.model.body[0].weight)


def test_batches_are_never_too_small_for_batchnorm():
    nine = drawn(PHOTOGRAPH.repeat(3, 1, 1, 1)[:9])
    sizes = [len(batch) for batch in networks.shuffled(TINY, 2, nine, np.random.default_rng(0))]
    assert sizes == [4, 4] * 2


def test_running_statistics_are_the_means_over_chunks(monkeypatch):
    monkeypatch.setattr(greymaps, "CHUNK", 2)
    norm = nn.BatchNorm2d(3)
    network = networks.Network(nn.Sequential(norm), torch.zeros(3, 1, 1), torch.ones(3, 1, 1))
    networks.calibrate(network, drawn())
    x = (PHOTOGRAPH / 255).view(2, 2, 3, 16, 16)
    torch.testing.assert_close(norm.running_mean, x.mean((0, 1, 3, 4)))
    torch.testing.assert_close(norm.running_var, x.var((1, 3, 4)).mean(0))


# --- scores ----------------------------------------------------------------------------------


def test_ssim_is_that_of_its_definition():
    # Wang et al. (2004), equation 13, with the window written out, at the one pixel it fits on.
    one, two = (np.random.default_rng(i).integers(0, 256, (11, 11)) for i in (0, 1))
    found = scores.compare(one[None].astype("u1"), two[None].astype("u1"))["ssim"][0]
    g = np.exp(-((np.arange(11) - 5) ** 2) / (2 * 1.5**2))
    window, (x, y) = np.outer(g, g) / g.sum() ** 2, (one / 255, two / 255)
    mean_x, mean_y = (window * x).sum(), (window * y).sum()
    var_x, var_y = (window * x**2).sum() - mean_x**2, (window * y**2).sum() - mean_y**2
    covariance = (window * x * y).sum() - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    expected = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    expected /= (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    assert found == pytest.approx(expected, rel=1e-9)


def test_euclidean_distance_and_cosine_by_hand():
    black = np.zeros((1, 16, 16), np.uint8)
    grey = black.copy()
    grey[0, 0, :2] = 153, 204  # 0.6 and 0.8
    assert scores.compare(grey, black)["euclidean"] == pytest.approx([1.0])
    rows = torch.tensor([[3.0, 4], [1, 0], [0, 0]]), torch.tensor([[4.0, 3], [-5, 0], [1, 1]])
    np.testing.assert_allclose(scores.cosine(*rows), [0.96, -1, 0], rtol=1e-12)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_the_judge_sees_three_equal_channels(output, chunk, monkeypatch):
    network = networks.network(TINY, "judge", drawn(), None, 0)
    monkeypatch.setattr(greymaps, "CHUNK", chunk)
    grey = drawn().grey
    with torch.no_grad():
        given = network.model(network.input(grey[:, None].expand(-1, 3, -1, -1)))
    found = scores.outputs(network, output, grey.numpy())
    torch.testing.assert_close(found, given[OUTPUTS.index(output)])


def test_every_image_has_a_row_for_every_map(made):
    table, found = pd.read_csv(made["scores"]), arrays(made["originals"])
    columns = "dataset image encoder layer seed ssim cosine euclidean explained"
    assert table.columns.tolist() == columns.split()
    expected = [
        (name, i, *layer)
        for name, i in zip(found["datasets"], found["ids"], strict=True)
        for layer in LAYERS
    ]
    assert [*table.iloc[:, :5].itertuples(index=False, name=None)] == expected
    explained = table.pop("explained")
    assert (explained.notna() == (table.encoder == "autoencoder")).all()
    assert table.notna().all(axis=None)
    assert table.ssim.between(-1, 1).all()
    assert table.cosine.between(-1, 1).all()


def test_examples_are_the_first_images_with_their_pictures(made):
    table, found = pd.read_csv(made["examples"]), arrays(made["originals"])
    expected = [
        (found["datasets"][i], found["ids"][i], *layer, i)
        for i in (0, 1, 2, 6, 7, 8)
        for layer in [("original", "grey", 0), *(one for one in LAYERS if one[2] == 0)]
    ]
    names = [*table.iloc[:, :5].itertuples(index=False, name=None)]
    assert names == [one[:5] for one in expected]
    for (*_, encoder, layer, _, i), uri in zip(expected, table.png, strict=True):
        path = made["originals"] if encoder == "original" else made[f"{encoder}/0"]
        np.testing.assert_array_equal(picture(uri), arrays(path)[layer][i])
    original = table[table.encoder == "original"]
    assert (original[["ssim", "cosine", "euclidean"]] == [1, 1, 0]).all(axis=None)


def picture(uri: str) -> np.ndarray:
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        assert image.mode == "L"
        return np.asarray(image)


def test_the_study_gives_the_same_bytes_twice(made, decoded, tmp_path):
    for name, path in study(tmp_path, decoded).items():
        assert path.read_bytes() == made[name].read_bytes(), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop("saliency/1"), "the file of maps saliency/1 is missing"),
        (lambda files: files.update({"area/1": files["area/0"]}), "no file of maps .* `area/1`"),
        (lambda files: files.update({"area/0": files["saliency/0"]}), "is damaged"),
        (lambda files: files.update({"area/0": Path("none")}), "none does not exist"),
    ],
)
def test_maps_must_be_those_of_the_setting(change, message, made, tmp_path):
    files = {which: made[which] for which in SEEDS}
    change(files)
    with pytest.raises(UsageError, match=message):
        score(tmp_path, made["originals"], files)
    assert not [*tmp_path.iterdir()]
