"""Models that read tokens, in both backends: `fedgrid.models`, `fedgrid.engine.backends`."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call

from conftest import TOKEN_MODELS, assert_same, methods, simulate, spoken
from fedgrid import models
from fedgrid.engine import backends, recurrent
from fedgrid.engine.state import state_of
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.runtime.names import UsageError

TOKENS = 7
PLAIN = {"augment": [], "local_unit": "epochs"}


def built(seed: int, name: str = "char_lstm_small") -> Classifier:
    return models.build(name, (5,), TOKENS, seed=seed, tokens=TOKENS)


def wrapped(layer: nn.Module, width: int) -> Classifier:
    """A model of a layer that gives (outputs, state)."""

    class Outputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0].mean(1)

    return Classifier(nn.Sequential(nn.Embedding(TOKENS, 3), Outputs()), width, TOKENS)


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_a_model_gives_features_and_logits_of_sequences_of_any_length(name):
    model = built(0, name).eval()
    for length in (1, 4):
        features, logits = model(torch.randint(0, TOKENS, (2, length)))
        assert features.shape == (2, model.head.in_features)
        torch.testing.assert_close(logits, model.head(features))
    assert all(weight.is_floating_point() for weight in model.state_dict().values())


def test_char_lstm_has_as_many_parameters_as_the_papers():
    model = models.build("char_lstm", (80,), 81, tokens=81)
    assert sum(weight.numel() for weight in model.parameters()) == 820_185


def test_two_layers_are_the_function_of_one_lstm_of_two_layers():
    model = built(0).eval()
    both = nn.LSTM(8, 64, 2, batch_first=True)
    both.load_state_dict(
        {
            f"{name.removesuffix('l0')}l{number - 1}": weight
            for number in (1, 2)
            for name, weight in getattr(model.body, f"lstm{number}").state_dict().items()
        }
    )
    x = torch.randint(0, TOKENS, (3, 5))
    expected = both(model.body.embedding(x))[0][:, -1]
    torch.testing.assert_close(model(x)[0], expected)


def test_the_heads_weights_are_small_and_the_others_pytorchs():
    model = models.build("char_lstm", (80,), 81, tokens=81)
    assert model.head.weight.std().item() == pytest.approx(0.01, rel=0.03)
    assert not model.head.bias.any()
    bound = 256**-0.5  # PyTorch draws LSTMs uniformly below it, and embeddings from N(0, 1)
    assert 0.99 * bound < model.body.lstm1.weight_ih_l0.max() <= bound
    assert model.body.embedding.weight.std().item() == pytest.approx(1, rel=0.1)


def test_a_model_with_other_weights_is_called_with_them():
    """As the engine does in evaluations."""
    one, other = built(1).eval(), built(2).eval()
    x = torch.randint(0, TOKENS, (3, 5))
    for module in (one, built(3).eval().to("meta")):
        found = functional_call(module, state_of(other), (x,))[1]
        torch.testing.assert_close(found, other(x)[1], rtol=0, atol=0)


# --- both backends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        built,
        lambda seed: wrapped(nn.LSTM(3, 4, batch_first=True, bias=False), 4),
        lambda seed: wrapped(nn.LSTM(3, 4, num_layers=2), 4),  # over the batch, as it is misread
    ],
    ids=["two modules", "without bias", "two layers"],
)
def test_an_lstm_trains_alike_in_both_backends(build):
    def seeded(seed: int) -> Classifier:
        torch.manual_seed(seed)
        return build(seed).double()

    sizes = (3, 6, 4, 0)
    runs = [
        simulate(
            *(Method(), backend, spoken(sizes), seeded),
            **PLAIN | {"clients": len(sizes), "smallest_batch": 3, "lr": 0.5},
        ).play(2)
        for backend in ("loop", "stacked")
    ]
    assert_same(*runs, rtol=1e-9, atol=1e-10)
    assert (runs[0].server["head.weight"] - seeded(7).head.weight).abs().max() > 1e-3


def test_an_unrolled_lstm_is_torchs_with_its_states():
    layer = nn.LSTM(3, 4, num_layers=2).double()
    x, state = torch.randn(5, 2, 3).double(), torch.randn(2, 2, 2, 4).double().unbind()
    given = (True, 2, 0.0, True, False, False)
    found = recurrent.unrolled(x, state, layer._flat_weights, *given)
    outputs, states = layer(x, state)
    torch.testing.assert_close(found, (outputs, *states))


@pytest.mark.parametrize("name", ["fedavg", "moon"])  # MOON calls the network with other weights
def test_the_stack_does_not_move_the_weights_of_a_recurrent_layer(name, monkeypatch):
    """On a GPU torch moves them into one piece of memory, and tensors under vmap have none."""

    def moves(layer):
        raise AssertionError("moved")

    def made(seed: int) -> Classifier:
        return built(seed).double()

    options = PLAIN | {"clients": 2, "smallest_batch": 3}
    run = simulate(methods(name), "stacked", spoken((3, 4)), made, **options)
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", moves)
    run.play(1)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (nn.GRU(3, 4), r"body.1.layer` \(GRU\(3, 4\)\)"),
        (nn.LSTM(3, 2, bidirectional=True), "bidirectional=True"),
        (nn.LSTM(3, 5, proj_size=4), "proj_size=4"),
    ],
)
def test_the_stack_refuses_a_recurrent_layer_that_it_cannot_map(layer, said):
    start = partial(simulate, Method(), federation=spoken((3, 4)), **PLAIN | {"clients": 2})
    make = partial(wrapped, layer, 4)
    with pytest.raises(UsageError, match=f"stacked cannot train .*{said}.*--backend loop"):
        start("stacked", build=lambda seed: make().double())
    loop = start("loop", build=lambda seed: make().double())
    before = loop.run.server["head.weight"].clone()
    assert not torch.equal(loop.play().server["head.weight"], before)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_best_backend_for_a_recurrent_model_is_the_loop(device):
    assert backends.best(built(0), torch.device(device)) == "loop"
    assert backends.best(wrapped(nn.GRU(3, 4), 4), torch.device(device)) == "loop"
