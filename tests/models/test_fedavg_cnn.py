"""The two-convolution CNN: `fedgrid.models.fedavg_cnn`."""

import pytest
import torch

from fedgrid import models


@pytest.mark.parametrize(
    ("shape", "classes", "parameters"),
    [
        ((3, 32, 32), 10, 2_156_490),
        ((3, 32, 32), 100, 2_202_660),
        ((1, 28, 28), 10, 1_663_370),
    ],
)
def test_parameters_are_those_of_the_published_code(shape, classes, parameters):
    model = models.build("fedavg_cnn", shape, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    features, logits = model(torch.rand(2, *shape))
    assert features.shape == (2, 512)
    assert (features >= 0).all()
    assert logits.shape == (2, classes)


def test_it_takes_larger_images():
    model = models.build("fedavg_cnn", (3, 64, 64), 200)
    assert model.body[7].in_features == 16384
    assert model(torch.rand(1, 3, 64, 64))[1].shape == (1, 200)
