"""What saliency costs: `fedgrid.experiments.costs` and the product `resources`."""

import json

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fedgrid import models
from fedgrid.experiments import costs
from fedgrid.report.fedsls import resources
from fedgrid.runtime.names import UsageError

SETTING = {"model": "resnet18", "dataset": "cifar10", "images": 1000, "chunk": 64}


class Tiny(nn.Module):
    """A grouped convolution, one beside the main path, and a classifier."""

    side_paths = ("side",)

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 6, 3, groups=2)
        self.side = nn.Conv2d(4, 6, (1, 2), stride=2)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.first(x).relu().mean((2, 3)) + self.side(x).mean((2, 3))
        return features, self.head(features)


def frame(rows: list[tuple], model: str = "resnet18", dataset: str = "cifar10") -> pd.DataFrame:
    return pd.DataFrame([(model, dataset, *row) for row in rows], columns=costs.COLUMNS)


def counted(model: str, shape: tuple[int, ...], classes: int) -> pd.DataFrame:
    return frame(costs.counted(models.build(model, shape, classes).eval(), shape))


TOOK = {
    "forward pass": {"seconds": 2, "cpu_seconds": 2, "peak_memory": 3e6},
    "encoder, one target": {"seconds": 5, "cpu_seconds": 4, "peak_memory": 7e6},
}
MEASURED = [
    ("measured", "machine", "exact_peak", 1, ""),
    *(("measured", layer, name, v, "") for layer, all in TOOK.items() for name, v in all.items()),
]


@pytest.fixture(scope="module")
def resnet() -> pd.DataFrame:
    """The costs of ResNet-18 on CIFAR-10's images, with made measurements."""
    described = costs.described(SETTING, (3, 32, 32), 10, 50_000)
    return pd.concat([frame(described + MEASURED), counted("resnet18", (3, 32, 32), 10)])


def figure(value: float | str, unit: str = "MB", images: int = 1000) -> dict:
    return {"quantity": "a figure", "value": value, "unit": unit, "images": images}


def study(*figures: dict, dataset: str = "cifar10") -> dict:
    resources = {"model": "resnet18", "dataset": dataset, "figures": list(figures)}
    return {"published": {"resources": resources}}


# --- counted ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "shape", "classes", "millions"),
    [
        ("resnet18", (3, 32, 32), 10, 37.02),
        ("resnet18", (3, 32, 32), 1000, 37.52),
        ("resnet18", (3, 224, 224), 1000, 1814.07),  # torchvision's page says 1.81 G
        ("resnet50", (3, 64, 64), 200, 334.05),
        ("resnet50", (3, 64, 64), 1000, 335.7),
    ],
)
def test_multiply_accumulates_of_the_resnets(model, shape, classes, millions):
    found = resources.count_macs(counted(model, shape, classes)) / 1e6
    assert resources.agrees_in_print(found, millions)


def test_a_model_counted_by_hand():
    # Images 4x5x7; 6x3x5 from 2 of 4 channels by 3x3, and 6x3x3 from 4 channels by 1x2.
    table = frame(costs.counted(Tiny().eval(), (4, 5, 7)))
    found = table.set_index(["layer", "name"])["value"]
    assert found["first#0"].to_dict() == {
        **{"channels": 6, "height": 3, "width": 5, "elements": 90, "input_elements": 140},
        "macs": 90 * 2 * 3 * 3,
    }
    assert found["side#1", "elements"] == 54
    assert found["side#1", "macs"] == 54 * 4 * 1 * 2
    assert found["head"].to_dict() == {"elements": 5, "macs": 30}
    assert resources.count_macs(table) == 1620 + 432 + 30
    kinds = table.drop_duplicates("layer").set_index("layer")["kind"].to_dict()
    assert kinds == {"first#0": "main", "side#1": "side", "head": "linear"}


def test_layers_of_resnet18_in_mb_for_a_thousand_images(resnet):
    size = 4 * 1000 * resources.list_convolutions(resnet, side=False)["elements"] / 1e6
    expected = [65.536, *[16.384] * 4, *[8.192] * 4, *[4.096] * 4, *[2.048] * 4]
    assert size.tolist() == pytest.approx(expected)
    both = resources.list_convolutions(resnet, side=True)
    side = [name for name in both.index if "downsample" in name]
    assert (4e-3 * both.loc[side, "elements"]).tolist() == pytest.approx([8.192, 4.096, 2.048])
    assert [int(name.partition("#")[2]) for name in both.index] == list(range(20))


def test_a_model_that_cannot_take_the_images_is_refused():
    model = models.build("resnet18", (3, 32, 32), 10).eval()
    with pytest.raises(UsageError, match="images of digits, 1x8x8"):
        costs.counted(model, (1, 8, 8), "digits")


# --- the paper's figures ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "printed", "same"),
    [
        *((11.757, 11.76, True), (11.764, 11.76, True), (11.766, 11.76, False)),
        *((11.754, 11.76, False), (11.8, 11.76, False), (11.755, 11.76, True)),
        *((37.02, 37, True), (37.6, 37, False), (36.5, 37, True), (4454.4, 4469, False)),
        *((11.72, "11.70", False), (11.72, 11.7, True), (2.96, "3.0", True)),
    ],
)
def test_agreement_is_to_half_a_unit_of_the_last_printed_digit(value, printed, same):
    assert resources.agrees_in_print(value, printed) == same


def drawn(table: pd.DataFrame, *figures: dict) -> list[dict]:
    drawn = resources.draw(table, study(*figures), "quick")
    return drawn[drawn["published"].notna()].to_dict("records")


def test_a_figure_is_reproduced_by_the_nearest_reading(resnet):
    (row,) = drawn(resnet, figure(11.76))
    assert row["verdict"] == "reproduces"
    assert row["value"] == pytest.approx((3 * 32 * 32 + 10) * 4 * 1000 / 2**20, abs=1e-4)
    assert row["unit"] == "MiB"
    assert "input and class scores" in row["formula"]
    assert row["difference"] == pytest.approx(11.7569 - 11.76, abs=1e-4)


def test_a_figure_that_no_reading_gives_says_the_nearest(resnet):
    (row,) = drawn(resnet, figure(89.38))
    assert row["verdict"] == "no reading reproduces it"
    assert row["value"] == pytest.approx(89.088)
    assert "inputs of all convolutions, with side paths, 2 bytes" in row["formula"]


def test_a_figure_may_be_a_multiple_of_another(resnet):
    small, large, same = drawn(resnet, figure(89.38), figure(4469, images=50_000), figure(89.38))
    assert small["verdict"] == same["verdict"] == "no reading reproduces it"
    assert large["verdict"].endswith("it is 50 x the paper's 89.38 MB")


def test_operations_are_those_of_a_forward_pass(resnet):
    one, both, neither = drawn(resnet, *(figure(value, "GFLOPs") for value in (37, 74, 90)))
    assert (one["verdict"], one["formula"]) == ("reproduces", "MACs of a forward pass")
    assert both["formula"] == "multiplications and additions of a forward pass"
    assert neither["verdict"] == "no reading reproduces it"


def test_a_figure_in_another_unit_is_refused(resnet):
    with pytest.raises(UsageError, match="unit of a published figure"):
        drawn(resnet, figure(1, "MIB"))


# --- our own accounting ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "images", "value"),
    [
        *(("latents, first layer", 1000, 65.536), ("channel means, first layer", 1000, 1.024)),
        *(
            ("latents, first layer", 50_000, 3276.8),
            ("latents / channel means, first layer", 0, 64),
        ),
        ("latents, all layers, main path", 1000, 188.416),
        ("latents, all layers, with side paths", 1000, 202.752),
        ("channel means, all layers, main path", 1000, 2.384),
        ("channel means, all layers, with side paths", 1000, 2.468),
        ("latents / channel means, all layers, main path", 0, 79.0336),
        *(("operations, forward pass", 1, 37.0166), ("operations, forward pass", 1000, 37.0166)),
        *(("time, encoder, one target", 1000, 5), ("time, encoder, one target", 50_000, 250)),
        ("time / that of a forward pass, encoder, one target", 1000, 2.5),
        *(("processor time, encoder, one target", 1000, 4), ("peak memory, forward pass", 1000, 3)),
        ("peak memory, encoder, one target", 1000, 7),
    ],
)
def test_our_own_accounting(quantity, images, value, resnet):
    table = resources.draw(resnet, {}, "quick")
    rows = table[(table["quantity"] == quantity) & (table["images"].fillna(0) == images)]
    assert rows["value"].tolist() == [pytest.approx(value)]


def test_people_are_told_the_scale_and_what_is_extrapolated(resnet, tmp_path):
    table = resources.draw(resnet, study(figure(11.76), figure(89.38)), "quick")
    table.to_csv(tmp_path / "table.csv", index=False)
    for made in (table, pd.read_csv(tmp_path / "table.csv")):
        assert "1,000 random images of the size of cifar10 with resnet18" in resources.caption(made)
        assert "quick scale" in resources.caption(made)
        assert "gives 1 of the paper's 2 figures" in resources.caption(made)
        wide = resources.wide(made)
        assert wide.loc["paper: a figure", "published"].tolist() == ["11.76 MB", "89.38 MB"]
        times = wide.loc["time, encoder, one target"].set_index("images")
        assert times.loc["50,000", ["ours", "formula"]].tolist() == ["250 s", "extrapolated"]
        assert "nan" not in wide.to_string().lower()


# --- measured --------------------------------------------------------------------------------


@pytest.fixture
def exact() -> None:
    if not costs.Process().exact:
        pytest.skip("this system does not let a process reset its high-water mark")


def test_peak_memory_is_of_the_work_alone_whatever_was_before(exact):
    def peak(megabytes: int) -> float:
        work = lambda x, y: torch.ones(len(x) * megabytes * 250_000).sum()  # noqa: E731
        return costs.metered(work, torch.zeros(4), torch.zeros(4), chunk=4).peak_memory / 1e6

    expected = [160, 40, 80, 40, 160]
    assert [peak(size // 4) for size in expected] == pytest.approx(expected, abs=5)


def test_without_a_mark_to_reset_the_peak_is_at_least_that_much(monkeypatch, tmp_path, resnet):
    monkeypatch.setattr(costs, "RESET", tmp_path / "missing" / "clear_refs")
    meter = costs.Process()
    assert not meter.exact
    assert meter.above() >= 0
    inexact = resnet["value"].mask(resnet["name"] == "exact_peak", 0)
    table = resources.draw(resnet.assign(value=inexact), {}, "quick")
    (formula,) = table.loc[table["quantity"] == "peak memory, encoder, one target", "formula"]
    assert formula == "at least, measured, 64 images at a time"


# --- the command -----------------------------------------------------------------------------


def test_the_command_writes_all_rows_and_the_counted_ones_are_always_the_same(tmp_path):
    setting = json.dumps({"model": "cnn", "dataset": "digits", "images": 10, "chunk": 4})
    tables = []
    for name in ("a.csv", "b.csv"):
        costs.main([setting, "--device", "cpu", "--out", str(tmp_path / name)])
        tables.append(pd.read_csv(tmp_path / name))
    counted = [table[table["kind"] != "measured"] for table in tables]
    pd.testing.assert_frame_equal(*counted)
    assert list(tables[0]) == costs.COLUMNS
    assert tables[0]["value"].notna().all()
    drawn = resources.draw(tables[0], study(figure(11.76)), "quick")
    assert {"encoder, one target", "encoder, all targets"} < set(tables[0]["layer"])
    assert (drawn["value"] >= 0).all()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "resnt18"}, "no model is called `resnt18`: did you mean resnet18"),
        ({"dataset": "cifar"}, "no dataset is called `cifar`: did you mean cifar10"),
        ({"chunks": 4}, "the setting: no key is called `chunks`: did you mean chunk?"),
        ({"images": 0}, "the setting: images: 0 is less than the minimum of 1"),
        ({"images": True}, "the setting: images: True is not a whole number"),
        ({"chunk": "4"}, "the setting: chunk: '4' is not a whole number"),
        ({"model": 18}, "the setting: model: 18 is not text"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(changed, words, tmp_path):
    with pytest.raises(UsageError, match="^" + words.replace("?", r"\?")):
        costs.main([json.dumps(SETTING | changed), "--out", str(tmp_path / "costs.csv")])
    assert not list(tmp_path.iterdir())
