"""Methods whose clients have models of their own: what their plain loops do not show."""

from dataclasses import replace

import pytest
import torch

from against import CLOSE, SIZES, loop, own, run
from conftest import PROTOCOL, make_step, methods, tiny
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError, registered
from fedgrid.training.build import check_method
from oracles import personal
from oracles.base import Plain


def test_without_epochs_fine_tuning_changes_nothing():
    found = run(methods("finetuned", epochs=0))
    torch.testing.assert_close(own(found, 1), found.run.server, rtol=0, atol=0)


def test_fine_tuning_reaches_the_head_that_fedbabu_never_trains():
    found = run(methods("fedbabu") | methods("finetuned", part="head"))
    model, server = own(found, 1), found.run.server
    assert not torch.equal(model["head.weight"], server["head.weight"])
    assert torch.equal(model["body.5.weight"], server["body.5.weight"])


NETWORKS = [name for name in registered("methods") if methods(name).architecture]


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_method_adds_to_a_network_has_the_precision_of_the_run(name):
    """A network is made in single precision, and gets that of the run later."""
    keywords = {"alpha": 0.3} if name == "apfl" else {}
    made = []
    for kind in (torch.nn.Module.float, torch.nn.Module.double):
        network = kind(tiny(0).float())
        torch.manual_seed(0)
        made.append(methods(name, **keywords).architecture(network).double().state_dict())
    torch.testing.assert_close(*made, rtol=0, atol=0)


def test_in_that_form_alpha_is_cut_at_once():
    """The starting weight of all clients is nearly 0, and leaves 0..1 with a high rate."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "lr": 1.0, "lr_decay": 1.0}
    found = run(methods("apfl", alpha=0.01, adaptive=True, form="code"), **plain)
    kept = torch.stack([memory["private"]["alpha"] for memory in found.run.memory.values()])
    assert ((kept >= 0) & (kept <= 1)).all()
    assert (kept == 0).any()


def test_the_weight_of_apfl_is_cut():
    """With a learning rate of 5, weights of 0.3 leave 0..1 at once."""
    found = run(methods("apfl", alpha=0.3, adaptive=True), lr=5.0, momentum=0.0)
    kept = torch.stack([memory["private"]["alpha"] for memory in found.run.memory.values()])
    assert ((kept < 0) | (kept > 1)).any()
    used = torch.stack([own(found, client)["alpha"] for client in range(len(SIZES))])
    assert ((used >= 0) & (used <= 1)).all()


def test_without_a_part_of_its_own_the_mixture_is_the_shared_model():
    found = run(methods("apfl", alpha=0.0))
    x = torch.randn(3, 1, 6, 6).double()
    network, model = found.engine.architecture, own(found, 1)
    mixture = {n: found.run.server[n] for n in network.served}
    statistics = {n: model[f"private.{n}"] for n in network.statistics if n in mixture}
    expected = network.forward_server(mixture | statistics, x)[1]
    torch.testing.assert_close(network.forward(model, x)[1], expected, **CLOSE)


@pytest.mark.parametrize("kernel", ["plain", "squared"])
def test_knnper(kernel):
    options = {"lam": 0.3, "k": 4, "capacity": 12, "kernel": kernel, "scale": 0.5}
    found, plain = run(methods("knnper", **options)), loop(Plain, "knnper", options)
    network, model = found.engine.architecture, plain.model.eval()
    x = torch.cat([plain.samples(client)[0] for client in range(len(SIZES))])
    for client in range(len(SIZES)):
        expected = personal.recalled(model, plain.samples(client), x, plain.p)
        logits = network.forward(own(found, client), x)[1]
        torch.testing.assert_close(logits.softmax(1), expected, **CLOSE)
    logits = network.forward_server(found.run.server, x)[1]
    torch.testing.assert_close(logits, model(x)[1].detach(), **CLOSE)


def test_knnper_stores_as_many_samples_as_there_is_room():
    found = run(methods("knnper", capacity=5, k=9))
    stores = [own(found, client)["store.classes"] for client in range(len(SIZES))]
    assert [int(rows.sum()) for rows in stores] == [min(5, n) for n in SIZES]
    engine = found.engine
    client = replace(engine.population.idle_client(found.run, 1), total=lambda f: f(x[:0], y[:0]))
    x, y = engine.federation.images[:1].double(), engine.federation.labels[:1]
    empty = client.model | engine.method.personal(client)
    assert not empty["store.classes"].any()
    logits = engine.architecture.forward(empty, x)[1]
    plain = engine.architecture.forward_server(found.run.server, x)[1]
    torch.testing.assert_close(logits, plain.log_softmax(1), **CLOSE)


def test_theta_of_a_batch_is_where_that_of_the_next_begins_and_predicts():
    given = {"lam": 4.0, "delta": 0.1, "inner": 3, "beta": 1.5, "mu": 0.5, "form": "code"}
    found, plain = run(methods("pfedme", **given)), loop(personal.PFedMe, "pfedme", given)
    assert len(found.run.memory) == len(SIZES)
    for client, memory in found.run.memory.items():
        theta = plain.kept[client]["theta"].named_parameters()
        for name, expected in theta:
            torch.testing.assert_close(memory["private"][f"private.{name}"], expected, **CLOSE)
    network, x = found.engine.architecture, plain.samples(1)[0]
    theta = {n.removeprefix("private."): w for n, w in plain.own(1).items()}
    expected = network.forward_server(found.run.server | theta, x)[1]
    torch.testing.assert_close(network.forward(own(found, 1), x)[1], expected, **CLOSE)


def test_fedala_learns_in_the_first_epochs_until_its_losses_settle():
    given = {"share": 0.5, "eta": 3.0, "first": 4, "part": "all", "settled": 2e-3}
    plain = loop(personal.FedALA, "fedala", given)
    first = [length for length in plain.shared["lengths"] if length > 1]
    assert min(first) < max(first) < 1000
    assert any((kept["weights"] < 1).any() for kept in plain.kept)


def test_a_batch_of_one_sample_has_two_equal_halves():
    found = run(methods("perfedavg"), batch=3, smallest_batch=2)
    assert all(w.isfinite().all() for w in found.run.server.values())


def test_a_class_keeps_its_last_prototype():
    found = run(methods("fedproto"), 0, participation=1 / 6)
    before = found.play(1).shared["prototypes"]
    after = found.play(1).shared["prototypes"]
    assert (before["known"] <= after["known"]).all()
    gone = [k for k in range(3) if torch.equal(before["mean"][k], after["mean"][k])]
    assert all(after["mean"][k].any() == bool(before["known"][k]) for k in gone)


def test_fedgkd_with_one_model_has_the_servers_as_teacher():
    found = run(methods("fedgkd", beta=0.7, models=1), 1).run.server
    torch.testing.assert_close(found, run(Method(), 1).run.server, **CLOSE)
    step = make_step(
        logits=torch.tensor([[1.0, 2.0]]).double(),
        features=torch.zeros(1, 1),
        server={"w": torch.ones(1)},
        shared={"fedgkd": {"sum": {"w": torch.zeros(1)}, "number": torch.tensor(7.0)}},
        forward=lambda model, x: (None, torch.stack([model["w"], 2 - model["w"]], 1).double()),
    )
    one = methods("fedgkd", beta=0.7, tau=1.0, models=1).penalty(step)
    torch.testing.assert_close(one, methods("fedavg_kd", beta=0.7).penalty(step))


@pytest.mark.parametrize("private", [(), ("head.",)])
def test_an_initial_memory_stays_if_a_method_keeps_nothing_else(private):
    seen = []
    method = Method(
        memory=lambda start, client: {"place": torch.tensor(client)},
        begin=lambda client: seen.append(int(client.memory["place"])) or {},
        private=private,
    )
    found = run(method)
    seen.clear()
    own(found, 4)
    assert {*seen} == {4}


@pytest.mark.parametrize(
    "made", [Method(begin=lambda client: {}), Method(personal=lambda client: {})]
)
def test_a_model_of_ones_own_needs_tests_of_ones_own(made):
    with pytest.raises(UsageError, match="`mine` is evaluated on every client's own test data"):
        check_method("mine", made, PROTOCOL)
    check_method("mine", made, PROTOCOL | {"client_test": 0.2})
