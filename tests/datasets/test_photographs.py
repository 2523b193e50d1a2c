"""scikit-image's own photographs as a dataset: `fedgrid.datasets.photographs`."""

import numpy as np
import pytest

from fedgrid import datasets
from fedgrid.datasets import photographs
from fedgrid.runtime.names import UsageError


@pytest.fixture(scope="module")
def split(tmp_path_factory) -> datasets.Split:
    return datasets.load("photographs", tmp_path_factory.mktemp("empty"))


def test_they_load_the_same_twice_without_a_file(split, tmp_path):
    for one, other in zip(split, datasets.load("photographs", tmp_path), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not [*tmp_path.iterdir()]
    assert set(split.train_labels) == set(split.test_labels) == set(range(4))


def test_the_constants_are_those_of_the_train_images(split):
    scaled = split.train_images / 255
    measured = [scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))]
    standard = datasets.module("photographs").STATISTICS["standard"]
    np.testing.assert_allclose(measured, standard, atol=1e-8)


def test_patches_are_the_photographs_tiles_every_fifth_held_out(split):
    from skimage import data

    chelsea = data.chelsea()  # 300 x 451: four rows of seven
    tiles = [
        chelsea[64 * row : 64 * row + 64, 64 * column : 64 * column + 64].transpose(2, 0, 1)
        for row in range(4)
        for column in range(7)
    ]
    cats = [part[labels == 1] for part, labels in (split[:2], split[2:4])]
    np.testing.assert_array_equal(cats[1], tiles[4::5])
    np.testing.assert_array_equal(cats[0], [t for i, t in enumerate(tiles) if i % 5 != 4])


def test_no_patch_is_flat(split):
    assert min(image.std() for image in np.concatenate([split[0], split[2]])) > 1


def test_a_photograph_that_is_gone_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(photographs, "PHOTOGRAPHS", ("astronaut", "nobody"))
    with pytest.raises(UsageError, match=r"nobody\.png cannot be read"):
        photographs.load(tmp_path)
