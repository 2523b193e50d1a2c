"""Typical mistakes in a study and in config.yaml: each is told with its file and its key."""

import pytest

import made
from conftest import check_one
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid
from fedgrid.study.reading import add_products, read_config, read_study

STUDY = """title: mine
protocols:
  short: {base: fedsls-quick-local3, rounds: 3, lr: 0.1, client_test: 0.2}
variants:
  prox: {fedprox: {mu: 0.5}}
  prox+swapped: {fedprox: {mu: 0.5}, swapped_weights: {}}
tuned: {fedlmd: {digits: {beta: 0.5}}}
scales:
  quick:
    grids:
      main:
        - protocol: [short]
          dataset: [digits]
          partition: [dir0.1, dir0.5]
          method: [fedavg, prox, prox+swapped]
          seed: [0, 1]
products:
  convergence: {from: {runs: runs/main}, with: {metric: own_mean}}
  table: {from: {runs: runs/main, settings: settings/main}, with: {rows: mu, columns: [method, lr]}}
  controls: {from: {runs: runs/main}, with: {placebos: {prox: prox+swapped}, over: fedavg}}
  concentration: {from: {runs: runs/main}, with: {line: {fedavg: 1}, points: [prox]}}
  gains: {from: {runs: runs/main}, with: {suffix: +swapped, printed: table1}}
  ablation: {from: {runs: runs/main}, with: {reference: prox}}
  tuned: {from: {runs: runs/main, settings: settings/main}, with: {over: lr}}
  best: {draw: table, from: {runs: runs/main, settings: settings/main}, with: {best: {over: lr}}}
  claims: {from: {runs: runs/main}, with: {metrics: [smoothed]}}
published:
  table1:
    columns: [[digits, dir0.1], [digits, dir0.5, short]]
    rows: {fedavg: [90, 91.5], prox: [[92, 1], 93]}
  table2:
    columns: [[digits, dir0.5]]
    rows: {fedavg: [89.5]}
claims:
  - says: "the penalty is better"
    section: "4"
    measure: accuracy
    method: prox
    over: [fedavg, prox+swapped]
    partition: [dir0.1]
    least: 0
    most: 5
  - says: "it grows"
    section: "4"
    method: prox
    over: fedavg
    along: {partition: [dir0.5, dir0.1]}
    most: 1
main: [short]
labels: {prox: FedProx, digits: Digits, protocols: {short: Short}}
"""
MAIN, DRAWN = "main: [short]", "runs: runs/main}, with: {metric: own"
MISTAKES = {
    "claim: a misspelt method in over": ("over: [fedavg, prox+", "over: [fedafg, prox+"),
    "claim: a misspelt method": ("prox\n    over: [", "porx\n    over: ["),
    "claim: a method outside the grids": ("prox\n    over: [", "moon\n    over: ["),
    "claim: a misspelt measure": ("measure: accuracy", "measure: acuracy"),
    "claim: a metric as measure": ("measure: accuracy", "measure: own_mean"),
    "claim: a partition outside the grids": ("[dir0.1]", "[dir0.01]"),
    "claim: a dataset outside the grids": ("partition: [dir0.1]", "dataset: cifar10"),
    "claim: an unknown protocol": ("partition: [dir0.1]", "protocol: papper"),
    "claim: along a partition outside the grids": ("[dir0.5, dir0.1]", "[dir0.5, dir1]"),
    "claim: a bound that is a share": ("least: 0\n    most: 5", "least: 0.01"),
    "claim: bounds that cross": ("least: 0\n", "least: 7\n"),
    "claim: no bound": ("    least: 0\n    most: 5\n", ""),
    "claim: an added row without a claim": ("least: 0\n", "least: 0\n    added: true\n"),
    "claim: an added row of no claim": ("most: 1\n", "most: 1\n    added: 9\n"),
    "claim: another method is equal": ("least: 0\n", "least: 0\n    equal: {fedavg: it is}\n"),
    "claim: a rounding of another key": ("least: 0\n", "least: 0\n    rounding: {lest: 1}\n"),
    "headline: of no claim": (MAIN, 'headline: {claim: 3, says: "it is"}'),
    "replies: of no claim": (MAIN, "replies: [{of: us, date: '2026-01-31', claim: 9, says: 'no'}]"),
    "claim: a word of others for a key": ("least: 0\n", "minimum: 0\n"),
    "published: a misspelt method": ("{fedavg: [90", "{fedafg: [90"),
    "published: a method under another name": ("prox: [[92", "fedprox: [[92"),
    "published: a partition outside the grids": ("[[digits, dir0.1],", "[[digits, dir1],"),
    "published: a dataset outside the grids": ("[[digits, dir0.1],", "[[mnist, dir0.1],"),
    "published: a protocol outside the grids": ("dir0.5, short]", "dir0.5, fedsls]"),
    "published: shares": (
        "[90, 91.5], prox: [[92, 1], 93]",
        "[0.9, 0.915], prox: [[0.92, 0.01], 0.93]",
    ),
    "published: more than all": ("[90, 91.5]", "[90, 915]"),
    "published: another value for a cell": ("[[digits, dir0.5]]", "[[digits, dir0.1]]"),
    "published: a column too few": ("[90, 91.5]", "[90]"),
    "controls: a misspelt placebo": ("prox: prox+swapped}", "prox: prox+swaped}"),
    "controls: a misspelt method": ("{placebos: {prox:", "{placebos: {porx:"),
    "controls: a misspelt plain method": ("over: fedavg}}", "over: fedafg}}"),
    "concentration: a method outside the grids": ("line: {fedavg", "line: {uniform"),
    "ablation: a misspelt reference": ("reference: prox", "reference: porx"),
    "gains: a misspelt ending": ("suffix: +swapped", "suffix: +swaped"),
    "gains: an unknown table": ("printed: table1", "printed: tabel1"),
    "convergence: a misspelt metric": ("metric: own_mean", "metric: own_maen"),
    "table: a misspelt field": ("columns: [method, lr]", "columns: [method, lrr]"),
    "best: a misspelt metric": ("{over: lr}}}", "{over: lr, by: acuracy}}}"),
    "best: a word of others for a field": ("{over: lr}}}", "{over: learning_rate}}}"),
    "best: a word for methods": ("{over: lr}}}", "{over: lr, methods: all}}}"),
    "claims: an unknown way to score": ("[smoothed]", "[smooth]"),
    "product: a misspelt grid": (DRAWN, "runs: runs/mian}, with: {metric: own"),
    "main: a misspelt protocol": (MAIN, "main: [shrot]"),
    "labels: a misspelt method": ("labels: {prox:", "labels: {porx:"),
    "labels: a misspelt protocol": ("protocols: {short: Short", "protocols: {shrot: Short"),
    "tuned: a misspelt method": ("tuned: {fedlmd: {digits: {beta: 0.5}}}", "tuned: {fedlmdd: {}}"),
    "tuned: a misspelt dataset": ("{digits: {beta", "{digit: {beta"),
    "variants: a misspelt file": ("prox: {fedprox: {mu: 0.5}}", "prox: {fedprx: {mu: 0.5}}"),
    "variants: a misspelt hyper-parameter": ("prox: {fedprox: {mu", "prox: {fedprox: {nu"),
    "protocol: a word of others for a field": ("lr: 0.1", "learning_rate: 0.1"),
    "protocol: a number with _": ("rounds: 3", "rounds: 3_000"),
    "protocol: an unknown base": ("base: fedsls-quick", "base: fedsls-quik"),
    "grid: a misspelt method": ("method: [fedavg,", "method: [fedafg,"),
    "grid: a misspelt partition": ("[dir0.1, dir0.5]\n", "[dri0.1, dir0.5]\n"),
    "claim: a method over itself": ("over: [fedavg, prox+", "over: [prox, prox+"),
    "sweep: a method outside the grids": (MAIN, "sweep: {moon: {mu: [0.1]}}"),
    "variants: the name of a method": ("  prox+swapped: {", "  moon: {"),
    "reference: an unknown method": (MAIN, "reference: runs.csv"),
    "study: an unknown key": (MAIN, "mian: [short]"),
    "product: an unknown source": (DRAWN, "runs: run/main}, with: {metric: own"),
    "product: an experiment that no scale has": (DRAWN, "runs: costs}, with: {metric: own"),
    "product: a source that it does not take": (DRAWN, "run: runs/main}, with: {metric: own"),
    "product: no file of its name": ("  convergence: {", "  convergense: {"),
    "product: an unknown format": ("with: {metric: own_mean}", "formats: [csv, htm]"),
}
FINISHED = """method,dataset,partition,protocol,seed,accuracy
fedafg,digits,dir0.1,short,0,50
"""
CONFIG = """study: mine
scale: quick
data_root: data
device: cpu
backend: auto
threads: 1
vram_gb: 0
warm: false
protocol: +own
method: [fedavg]
protocols: {own: {base: short, rounds: 5}}
variants: {mine: {fedprox: {mu: 1.0}}}
sweep: {}
products: {mine: {draw: table, from: {runs: runs/main}, with: {metric: accuracy}}}
"""
ASKED = {
    "a misspelt method": ("method: [fedavg]", "method: [fedafg]"),
    "a dataset outside the grids": ("method: [fedavg]", "dataset: mnist"),
    "a misspelt key": ("method: [fedavg]", "methods: [fedavg]"),
    "a word of others for a key": ("method: [fedavg]", "algorithm: fedavg"),
    "a field for others in a protocol": ("rounds: 5", "batch_size: 5"),
    "an unknown base": ("base: short", "base: shrot"),
    "a number as a name": ("method: [fedavg]", "method: 5"),
    "a misspelt hyper-parameter": ("{mu: 1.0}", "{mv: 1.0}"),
    "a text as a hyper-parameter": ("{mu: 1.0}", "{mu: large}"),
    "a sweep of an unknown field": ("sweep: {}", "sweep: {fedprox: {nu: [1]}}"),
    "a misspelt metric of a product": ("metric: accuracy", "metric: acuracy"),
    "a misspelt source of a product": ("runs: runs/main", "runs: runs/mian"),
    "an unknown scale": ("scale: quick", "scale: qick"),
    "an unknown dataset": ("method: [fedavg]", "dataset: digts"),
    "an unknown protocol": ("protocol: +own", "protocol: shrot"),
    "no whole seed": ("method: [fedavg]", "seed: one"),
    "a negative seed": ("method: [fedavg]", "seed: -1"),
    "an unknown device": ("device: cpu", "device: gpu"),
    "an unknown backend": ("backend: auto", "backend: vmap"),
    "a text for threads": ("threads: 1", "threads: two"),
    "no threads": ("threads: 1", "threads: 0"),
    "an unknown tracker": ("method: [fedavg]", "log: 'wandb,tensorbord'"),
    "a number for a tracker": ("method: [fedavg]", "log: 3"),
    "an alpha of 0": ("method: [fedavg]", "partition: dir0"),
    "an unknown partition": ("method: [fedavg]", "partition: foo"),
    "a fraction for a whole number": ("{fedprox: {mu: 1.0}}", "{moon: {projection: 2.5}}"),
    "no hyper-parameters": ("{fedprox: {mu: 1.0}}", "{moon: 3}"),
    "a protocol that is its own base": ("base: short", "base: own"),
    "more clients than samples": ("rounds: 5", "clients: 2000"),
    "nobody takes part": ("rounds: 5", "participation: 0.01"),
    "an unknown model": ("rounds: 5", "model: resnet81"),
    "an unknown normalization": ("rounds: 5", "normalization: standrad"),
    "an unknown augmentation": ("rounds: 5", "augment: [flipp]"),
    "unknown weights": ("rounds: 5", "model: resnet18, weights: imagnet"),
}


def check(folder, study: str = STUDY, config: str = "") -> None:
    """Read and check a study beside those of fedgrid, and a configuration."""
    (folder / "mine.yaml").write_text(study)
    (folder / "runs.csv").write_text(FINISHED)
    studies = made.STUDIES | {"mine": read_study(folder / "mine.yaml")}
    (folder / "config.yaml").write_text(config)
    found = read_config(folder / "config.yaml")
    if config:
        add_products(studies, found)
    Grid(studies, found)


def answer(folder, **texts: str) -> UsageError:
    """The error that answers a mistake: one sentence."""
    with pytest.raises(UsageError) as found:
        check(folder, **texts)
    assert "\n" not in str(found.value)
    return found.value


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, UsageError]:
    """The answers to all mistakes, by name."""
    folder = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        check_one(patch, "mine")
        found = {
            name: answer(folder, study=changed(STUDY, old, new))
            for name, (old, new) in MISTAKES.items()
        }
        return found | {
            f"config.yaml: {name}": answer(folder, config=changed(CONFIG, old, new))
            for name, (old, new) in ASKED.items()
        }


def test_the_study_and_the_configuration_without_a_mistake_are_right(tmp_path):
    check(tmp_path, STUDY, CONFIG)


def test_a_mistake_is_told_with_its_file(answers):
    for name, error in answers.items():
        of_config = name.startswith("config.yaml: ")
        file = ("config.yaml", "the configuration: ") if of_config else "mine.yaml: "
        assert str(error).startswith(file), name


def test_a_misspelt_name_is_a_field_of_the_error_with_the_choices(answers):
    misspelt = {name for name in MISTAKES if ": a misspelt " in name}
    told = {name for name in misspelt if answers[name].choices}
    assert misspelt - told == {"grid: a misspelt partition"}  # which has a pattern
    for name in told:
        assert str(answers[name].value) in MISTAKES[name][1], name
        assert answers[name].value not in answers[name].choices, name
        assert answers[name].where.startswith("mine.yaml"), name


def test_the_wording_of_the_answers(answers, golden):
    golden("study", {name: str(error) for name, error in answers.items()})
