"""Typical mistakes in a study and in config.yaml: each is told with its file and its key."""

import pytest

import made
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
front: {table: table, figure: convergence}
labels: {prox: FedProx, digits: Digits, protocols: {short: Short}}
"""
MISTAKES = {  # what is written instead of what, and the key that the error names
    "claim: a misspelt method in over": ("over: [fedavg, prox+", "over: [fedafg, prox+", "over"),
    "claim: a misspelt method": ("prox\n    over: [", "porx\n    over: [", "method"),
    "claim: a method outside the grids": ("prox\n    over: [", "moon\n    over: [", "method"),
    "claim: a misspelt measure": ("measure: accuracy", "measure: acuracy", "measure"),
    "claim: a metric as measure": ("measure: accuracy", "measure: own_mean", "measure"),
    "claim: a partition outside the grids": (
        "partition: [dir0.1]\n    l",
        "partition: [dir0.01]\n    l",
        "partition",
    ),
    "claim: a dataset outside the grids": (
        "    partition: [dir0.1]\n    l",
        "    dataset: cifar10\n    l",
        "dataset",
    ),
    "claim: an unknown protocol": (
        "    partition: [dir0.1]\n    l",
        "    protocol: papper\n    l",
        "protocol",
    ),
    "claim: along a partition outside the grids": (
        "partition: [dir0.5, dir0.1]}",
        "partition: [dir0.5, dir1]}",
        "along.partition",
    ),
    "claim: a bound that is a share": ("least: 0\n    most: 5", "least: 0.01", "least"),
    "claim: bounds that cross": ("least: 0\n", "least: 7\n", "at least 7 and at most 5"),
    "claim: no bound": ("    least: 0\n    most: 5\n", "", "least"),
    "claim: a word of others for a key": ("least: 0\n", "minimum: 0\n", "least"),
    "published: a misspelt method": ("{fedavg: [90", "{fedafg: [90", "rows"),
    "published: a method under another name": ("prox: [[92", "fedprox: [[92", "rows"),
    "published: a partition outside the grids": (
        "[[digits, dir0.1],",
        "[[digits, dir1],",
        "table1",
    ),
    "published: a dataset outside the grids": ("[[digits, dir0.1],", "[[mnist, dir0.1],", "table1"),
    "published: a protocol outside the grids": ("dir0.5, short]", "dir0.5, fedsls]", "table1"),
    "published: shares": (
        "{fedavg: [90, 91.5], prox: [[92, 1], 93]}",
        "{fedavg: [0.9, 0.915], prox: [[0.92, 0.01], 0.93]}",
        "rows",
    ),
    "published: more than all": ("[90, 91.5]", "[90, 915]", "rows"),
    "published: another value for a cell": (
        "columns: [[digits, dir0.5]]",
        "columns: [[digits, dir0.1]]",
        "table2",
    ),
    "published: a column too few": ("[90, 91.5]", "[90]", "rows.fedavg"),
    "controls: a misspelt placebo": ("prox: prox+swapped}", "prox: prox+swaped}", "with.placebos"),
    "controls: a misspelt method": ("{placebos: {prox:", "{placebos: {porx:", "with.placebos"),
    "controls: a misspelt plain method": ("over: fedavg}}", "over: fedafg}}", "with.over"),
    "concentration: a method outside the grids": ("line: {fedavg", "line: {uniform", "with.line"),
    "ablation: a misspelt reference": ("reference: prox", "reference: porx", "with.reference"),
    "gains: a misspelt ending": ("suffix: +swapped", "suffix: +swaped", "with.suffix"),
    "gains: an unknown table": ("printed: table1", "printed: tabel1", "with.printed"),
    "convergence: a misspelt metric": ("metric: own_mean", "metric: own_maen", "with.metric"),
    "table: a misspelt field": ("columns: [method, lr]", "columns: [method, lrr]", "with.columns"),
    "best: a misspelt metric": ("{over: lr}}}", "{over: lr, by: acuracy}}}", "with.best.by"),
    "best: a word of others for a field": ("{over: lr}}}", "{over: learning_rate}}}", "best"),
    "claims: an unknown way to score": ("[smoothed]", "[smooth]", "with.metrics"),
    "product: a misspelt grid": (
        "convergence: {from: {runs: runs/main}",
        "convergence: {from: {runs: runs/mian}",
        "from.runs",
    ),
    "front: a misspelt product": ("front: {table: table", "front: {table: tabel", "front.table"),
    "front: a table as the figure": ("figure: convergence}", "figure: table}", "front.figure"),
    "main: a misspelt protocol": ("main: [short]", "main: [shrot]", "main"),
    "labels: a misspelt method": ("labels: {prox:", "labels: {porx:", "labels"),
    "labels: a misspelt protocol": (
        "protocols: {short: Short",
        "protocols: {shrot: Short",
        "labels.protocols",
    ),
    "tuned: a misspelt method": (
        "tuned: {fedlmd: {digits: {beta: 0.5}}}",
        "tuned: {fedlmdd: {}}",
        "tuned",
    ),
    "tuned: a misspelt dataset": ("{digits: {beta", "{digit: {beta", "tuned.fedlmd"),
    "variants: a misspelt file": (
        "prox: {fedprox: {mu: 0.5}}",
        "prox: {fedprx: {mu: 0.5}}",
        "variants.prox",
    ),
    "variants: a misspelt hyper-parameter": (
        "prox: {fedprox: {mu",
        "prox: {fedprox: {nu",
        "variants.prox",
    ),
    "protocol: a word of others for a field": ("lr: 0.1", "learning_rate: 0.1", "protocols.short"),
    "protocol: a number with _": ("rounds: 3", "rounds: 3_000", "protocols.short.rounds"),
    "protocol: an unknown base": ("base: fedsls-quick", "base: fedsls-quik", "protocols.short"),
    "grid: a misspelt method": ("method: [fedavg,", "method: [fedafg,", "scales.quick.grids.main"),
    "grid: a misspelt partition": (
        "[dir0.1, dir0.5]\n",
        "[dri0.1, dir0.5]\n",
        "scales.quick.grids.main",
    ),
}
MISTAKES |= {
    "claim: a method over itself": ("over: [fedavg, prox+", "over: [prox, prox+", "over"),
    "sweep: a method outside the grids": (
        "main: [short]",
        "main: [short]\nsweep: {moon: {mu: [0.1]}}",
        "sweep",
    ),
    "variants: the name of a method": ("  prox+swapped: {", "  moon: {", "variants.moon"),
    "reference: an unknown method": (
        "main: [short]",
        "main: [short]\nreference: runs.csv",
        "reference",
    ),
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
method: [fedavg]
protocols: {own: {base: short, rounds: 5}}
variants: {mine: {fedprox: {mu: 1.0}}}
sweep: {}
products: {mine: {draw: table, from: {runs: runs/main}, with: {metric: accuracy}}}
"""
ASKED = {
    "a misspelt method": ("method: [fedavg]", "method: [fedafg]", "method"),
    "a dataset outside the grids": ("method: [fedavg]", "dataset: mnist", "dataset"),
    "a misspelt key": ("method: [fedavg]", "methods: [fedavg]", "method"),
    "a word of others for a key": ("method: [fedavg]", "algorithm: fedavg", "method"),
    "a field for others in a protocol": ("rounds: 5", "batch_size: 5", "protocols.own"),
    "an unknown base": ("base: short", "base: shrot", "protocols.own"),
    "a number as a name": ("method: [fedavg]", "method: 5", "method"),
    "a misspelt hyper-parameter": ("{mu: 1.0}", "{mv: 1.0}", "variants.mine"),
    "a text as a hyper-parameter": ("{mu: 1.0}", "{mu: large}", "mu"),
    "a sweep of an unknown field": ("sweep: {}", "sweep: {fedprox: {nu: [1]}}", "sweep"),
    "a misspelt metric of a product": ("metric: accuracy", "metric: acuracy", "products.mine"),
    "a misspelt source of a product": ("runs: runs/main", "runs: runs/mian", "products.mine"),
    "an unknown scale": ("scale: quick", "scale: qick", "scale"),
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
    found = {
        name: answer(folder, study=changed(STUDY, old, new))
        for name, (old, new, _) in MISTAKES.items()
    }
    return found | {
        f"config.yaml: {name}": answer(folder, config=changed(CONFIG, old, new))
        for name, (old, new, _) in ASKED.items()
    }


def test_the_study_and_the_configuration_without_a_mistake_are_right(tmp_path):
    check(tmp_path, STUDY, CONFIG)


def test_a_mistake_is_told_with_its_file_and_its_key(answers):
    for name, (_, _, key) in MISTAKES.items():
        said = str(answers[name])
        assert said.startswith("mine.yaml: "), name
        assert key in said, name
    for name, (_, _, key) in ASKED.items():
        said = str(answers[f"config.yaml: {name}"])
        assert said.startswith("config.yaml"), name
        assert key in said, name


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
