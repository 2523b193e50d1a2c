"""A method is tried before it is used: `fedgrid.checking.method`, `fedgrid check`."""

import re

import pytest
import torch

from fedgrid.checking import method as checking
from fedgrid.commands import check as command
from fedgrid.method import Method, Step, relative, weighted_sum
from fedgrid.runtime.names import registered
from fedgrid.study import reading
from fedgrid.study.reading import find_study, study_files

COUNTED = {"rounds": 0}


def counts_padding(step: Step) -> torch.Tensor:
    return 0.1 * step.logits.square().sum()


def counts_rounds(cohort, weights):
    COUNTED["rounds"] += 1
    return {name: d / COUNTED["rounds"] for name, d in weighted_sum(cohort, weights).items()}


def draws(cohort, weights):
    return {name: d + torch.rand_like(d) for name, d in weighted_sum(cohort, weights).items()}


def forgets_the_device(cohort, weights):
    return {n: d + torch.zeros(d.shape) for n, d in weighted_sum(cohort, weights).items()}


def reads_a_value(step: Step) -> torch.Tensor:
    return step.logits.sum() * 0 if step.y[0] > 0 else step.logits.mean()


def takes_positions_for_numbers(cohort):
    return relative(cohort.shared["sizes"][: len(cohort.clients)])


def keeps_by_position(cohort, update):
    kept = cohort.shared["sizes"].clone()
    kept[: len(cohort.clients)] = cohort.sizes
    return {"sizes": kept}


def sends_the_neighbours(cohort):
    return [{"size": size} for size in cohort.sizes.roll(1)]


def draws_by_position(cohort):
    generator = torch.Generator().manual_seed(cohort.noise)
    drawn = torch.rand(len(cohort.clients), generator=generator)
    return relative(drawn.to(cohort.sizes))


def means_of_chunks(client):
    return {"mean": client.total(lambda x, y: y.double().mean() if len(y) else x.sum())}


def by_means(cohort):
    return relative(1 + torch.stack([one["mean"] for one in cohort.measured]))


def divides_by_zero(step, gradients):
    return {name: g / (step.step.to(g) - 1) for name, g in gradients.items()}


def pulls(step: Step) -> torch.Tensor:
    return step.memory["size"] * step.params["head.bias"].square().sum()


def sizes(start):
    return {"sizes": start.sizes}


def knows_the_end(start):
    return {"rounds": start.sizes.new_tensor(float(start.rounds))}


def rests_at_the_end(step: Step) -> torch.Tensor:
    return step.shared["rounds"] * step.params["head.bias"].square().sum()


def reads_server_data(end):
    return {"head.bias": end.model["head.bias"] * end.data.size}


def counts_later_rounds(cohort, weights):
    if cohort.round:
        COUNTED["rounds"] += 1
    return weighted_sum(cohort, weights)


def counts_from_the_fourth_round(cohort, weights, rounds=[]):  # noqa: B006
    if cohort.round > 3:
        rounds.append(1)
    return {
        name: entry / (1 + len(rounds)) for name, entry in weighted_sum(cohort, weights).items()
    }


def detached(step: Step) -> torch.Tensor:
    return sum((p.detach() - step.server[n]).square().sum() for n, p in step.params.items())


class Scaled(torch.nn.Module):
    """A network whose logits are multiplied by a tensor that is on the CPU."""

    def __init__(self, network):
        super().__init__()
        self.body, self.head = network.body, network.head
        self.factors = torch.ones(3, dtype=torch.float64)

    def forward(self, x):
        features = self.body(x)
        return features, self.head(features) * self.factors


def checked(monkeypatch, made: Method) -> checking.Findings:
    """What is found of a method that has no file."""
    monkeypatch.setattr(checking.Trial, "method", staticmethod(lambda parts: made))
    return checking.check({"fedavg": {}})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Method(penalty=counts_padding, padded=True), "counts the padding"),
        (Method(aggregate=counts_rounds), "another result if it is called again"),
        (Method(aggregate=draws), "draws random numbers from PyTorch's own generator"),
        (Method(penalty=reads_a_value), "must not read a tensor's value"),
        (Method(aggregate=forgets_the_device), "a run on a simulated GPU fails"),
        (Method(private=("tail.",)), "fits no entry of the model"),
        (Method(aggregate=lambda cohort: {}), "takes 1 positional argument but 2 were given"),
        (Method(begin=lambda client: {"head.weight": torch.zeros(2)}), "head.weight"),
        (Method(shared=sizes, weigh=takes_positions_for_numbers), "is not its position"),
        (Method(shared=sizes, share=keeps_by_position), "is not its position"),
        (Method(send=sends_the_neighbours, penalty=pulls), "is not its position"),
        (
            Method(measure=means_of_chunks, weigh=by_means, weigh_after_training=True),
            "fewer samples at once",
        ),
        (Method(correct=divides_by_zero), "has numbers that are not finite"),
        (Method(shared=knows_the_end, penalty=rests_at_the_end), "`ROUNDS = True`"),
        (Method(refine=reads_server_data), "`refine` fails with AttributeError"),
        (Method(aggregate=counts_later_rounds), "would be lost when a run is resumed"),
        (Method(architecture=Scaled), "a run on a simulated GPU fails"),
        (Method(aggregate=counts_from_the_fourth_round), "would be lost when a run is resumed"),
        (Method(penalty=detached), "`penalty` has no gradient"),
        (Method(correct=lambda step, gradients: dict(gradients)), "gives the gradients as they"),
    ],
    ids=lambda value: "",
)
def test_a_broken_method_is_told_in_a_sentence(made, said, monkeypatch):
    problems = checked(monkeypatch, made).problems
    assert any(said in problem for problem in problems), problems


def test_random_numbers_may_belong_to_positions(monkeypatch):
    assert checked(monkeypatch, Method(weigh=draws_by_position)).problems == []


@pytest.mark.parametrize(
    ("made", "idle"),
    [
        (Method(rate=lambda step: {n: step.lr * 0 for n in step.params if "fc" in n}), ["rate"]),
        (Method(penalty=lambda step: step.params["head.bias"].detach().sum()), ["penalty"]),
        (Method(correct=lambda step, g: {n: 2 * one for n, one in g.items()}), []),
        (Method(shared=sizes, share=lambda cohort, update: dict(cohort.shared)), ["share"]),
    ],
)
def test_a_function_that_changes_nothing_is_told(made, idle, monkeypatch):
    told = checked(monkeypatch, made).facts.get("no effect", "")
    assert [name for name in checking.EFFECTIVE if f"`{name}`" in told] == idle


def test_a_method_that_fails_on_a_gpu_is_compared_with_fedavg_on_the_cpu(monkeypatch):
    monkeypatch.setattr(checking, "read_neutral", lambda part: {"mu": 0.0})
    (problem,) = checked(monkeypatch, Method(aggregate=forgets_the_device)).problems
    assert "a run on a simulated GPU fails" in problem


def test_a_method_that_is_not_fedavg_where_it_says_so(monkeypatch):
    neutral = {"mu": 0.0}
    monkeypatch.setattr(checking, "read_neutral", lambda part: neutral)
    assert [*checking.Trial({"fedprox": {"mu": 1.0}}).compare_with_fedavg()] == []
    neutral["mu"] = 1.0
    (problem,) = checking.Trial({"fedprox": {"mu": 0.0}}).compare_with_fedavg()
    assert "NEUTRAL" in problem


def test_the_command_says_what_a_method_does(capsys):
    command.main(["scaffold"])
    said = capsys.readouterr().out
    for part in ("correct", "1.92 times", "2,848 bytes", "no problem was found"):
        assert part in said


def test_the_command_leaves_out_the_studies_with_a_mistake(tmp_path, monkeypatch, capsys):
    broken, other = tmp_path / "broken.yaml", tmp_path / "other.yaml"
    broken.write_text("title: [")
    fields = "{base: fedlmd-quick}"  # as fedsls.yaml does not say
    text = find_study("normalization").read_text("utf-8")
    other.write_text(text.replace("protocols:", f"protocols:\n  fedsls-quick: {fields}", 1))
    files = [*study_files(), broken, other]
    monkeypatch.setattr(reading, "study_files", lambda folder=None: files)
    command.main(["fedprox-mu0.1"])
    said = capsys.readouterr()
    assert "fedprox-mu0.1: no problem was found" in said.out
    of_broken, *of_both = said.err.splitlines()
    assert "the study broken is left out" in of_broken
    assert "broken.yaml is not YAML" in of_broken
    left_out = {re.search(r"the study (\w+) is left out", one)[1] for one in of_both}
    assert left_out == {"fedsls", "other"}  # which of the two is right is not known
    command.main(["fedlmd-uniform"])  # a variant of another study


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [*(n for n in registered("methods") if n != "resets"), "dp_fedavg-epsilon8"]
)
def test_every_method_of_the_package_is_right(name, capsys):
    command.main([name])
    assert "no problem was found" in capsys.readouterr().out
