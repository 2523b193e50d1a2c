"""Runs that a grid takes from what a product chose: `fedgrid.study.chosen`, `fedgrid choose`."""

import json
from pathlib import Path

import pytest

from fedgrid.commands import choose
from fedgrid.plan.products import describe_uneven_tries
from fedgrid.runtime.names import UsageError
from fedgrid.study import chosen
from fedgrid.study.grid import Grid
from fedgrid.study.reading import read_study

STUDY = """
title: "Tuned, then reported"
protocols:
  p: {model: cnn, clients: 5, participation: 1.0, rounds: 2, validation: 0.3, validation_from: test}
  longer: {base: p, rounds: 3}
scales:
  quick:
    grids:
      tuning:
        - protocol: p
          dataset: digits
          partition: [dir0.1, classes2]
          method: [fedavg, fedprox]
          seed: [100, 101]
          sweep: {protocol: {lr: [0.1, 0.2]}, fedprox: {mu: [0.1, 1.0]}}
          extend: {best: {lr: [0.02, 0.5]}}
      report:
        - chosen: best
          seed: [0, 1]
          MORE
products:
  best:
    draw: tuned
    from: {runs: runs/tuning, settings: settings/tuning}
    with: {over: lr}
  table: {draw: table, from: {runs: runs/report}}
"""


def written(folder: Path, choices=(), more: str = "", changed=()) -> Grid:
    """The grids of the study, with these choices, one more key, and these changes of its text."""
    text = STUDY
    for old, new in ({"MORE": more} | dict(changed)).items():
        text = text.replace(old, new)
    (folder / "mine.yaml").write_text(text)
    path = chosen.choices_file(folder / "mine.yaml", "quick", "best")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"- {json.dumps(choice)}\n" for choice in choices))
    return asked(folder)


def asked(folder: Path, **config) -> Grid:
    """The grids of the study under a configuration, if there is one."""
    config |= {"study": "mine", "scale": "quick"} if config else {}
    return Grid({"mine": read_study(folder / "mine.yaml")}, config)


def choice(method: str, lr: float, tried=(0.1, 0.2), partition: str = "dir0.1", **own) -> dict:
    values = {"protocol": {"lr": lr}} | ({method: own} if own else {})
    names = {"dataset": "digits", "partition": partition, "protocol": "p", "method": method}
    return names | {"values": values, "tried": {"lr": [*tried]}, "seeds": [100, 101]}


def names(grid: Grid, of: str) -> set[str]:
    """The runs of a grid in words, without seeds."""
    runs = grid.runs("mine", "quick", of)
    return {" ".join(run[a] for a in ("partition", "method", "protocol")) for run in runs}


CHOSEN = [choice("fedavg", 0.2), choice("fedprox", 0.1, mu=1.0, partition="classes2")]


def test_a_grid_has_the_runs_that_were_chosen_with_its_own_seeds(tmp_path):
    grid = written(tmp_path, CHOSEN)
    assert names(grid, "report") == {"dir0.1 fedavg p-lr0.2", "classes2 fedprox-mu1 p-lr0.1"}
    assert {run["seed"] for run in grid.runs("mine", "quick", "report")} == {0, 1}


@pytest.mark.parametrize(
    ("more", "there"),
    [
        ("method: fedavg", {"dir0.1 fedavg p-lr0.2"}),
        ("partition: classes2", {"classes2 fedprox-mu1 p-lr0.1"}),
        ("method: fedavg\n          protocol: longer", {"dir0.1 fedavg longer-lr0.2"}),
    ],
)
def test_a_block_takes_a_part_of_the_choices(tmp_path, more, there):
    grid = written(tmp_path, CHOSEN, more)
    assert names(grid, "report") == there


def test_without_choices_the_product_says_how_to_make_them(tmp_path):
    grid = written(tmp_path)
    assert names(grid, "report") == set()
    with pytest.raises(UsageError, match="fedgrid choose mine quick best"):
        grid.check_product("mine", "quick", "table")


@pytest.mark.parametrize("name", ["fedprox", "fedprox-mu1"])
def test_a_configuration_asks_for_a_chosen_method_by_its_name(tmp_path, name):
    written(tmp_path, CHOSEN)
    assert names(asked(tmp_path, method=[name]), "report") == {"classes2 fedprox-mu1 p-lr0.1"}


def test_a_method_that_was_not_tuned_is_not_reported(tmp_path):
    written(tmp_path, CHOSEN)
    grid = asked(tmp_path, method=["moon"])
    assert "dir0.1 moon p-lr0.1" in names(grid, "tuning")
    assert names(grid, "report") == set()


def test_seeds_that_choose_do_not_report(tmp_path):
    with pytest.raises(UsageError, match="report: seed 101 also chose, by `best`"):
        written(tmp_path, changed={"[0, 1]": "[101, 102]"})
    written(tmp_path, [choice("fedavg", 0.2) | {"seeds": [7]}])
    with pytest.raises(UsageError, match="seed 7 also chose, by `best`"):
        asked(tmp_path, seed=[7])


@pytest.mark.parametrize(
    ("at", "tried", "added"),
    [
        (0.2, [0.1, 0.2], {"0.4"}),
        (0.1, [0.1, 0.2], {"0.05"}),
        (0.2, [0.1, 0.2, 0.4], {"0.4"}),  # between others: what was tried stays
        (0.4, [0.1, 0.2, 0.4], {"0.4"}),  # 0.8 is beyond the bound
        (0.05, [0.05, 0.1, 0.2], {"0.05", "0.025"}),
        (0.2, [], set()),  # no value of the field was tried
    ],
)
def test_a_method_tries_on_while_its_choice_is_at_an_end(tmp_path, at, tried, added):
    grid = written(tmp_path, [choice("fedprox", at, tried, mu=1.0)])
    there = names(grid, "tuning") - names(written(tmp_path), "tuning")
    assert there == {f"dir0.1 fedprox-mu{mu} p-lr{lr}" for mu in ("0.1", "1") for lr in added}


def test_methods_that_try_on_have_no_uneven_tries(tmp_path):
    grid = written(tmp_path, [choice("fedprox", 0.2, mu=1.0)])
    grid.studies["mine"]["products"]["best"]["with"] = {"best": {"over": "lr", "methods": True}}
    assert describe_uneven_tries(grid, "mine", "quick", "best") == ""


# -- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("MORE", "method: fedprxo", "fedprxo"),
        ("MORE", "partition: dir0.5", "dir0.5"),
        ("chosen: best", "chosen: bets", "bets"),
        ("extend: {best", "extend: {bets", "bets"),
        ("[0.02, 0.5]", "[0, 0.5]", "extend"),
        ("[0.02, 0.5]", "0.5", "extend"),
        ("          extend", "          chosen: table\\n          extend", "extend"),
    ],
)
def test_what_a_block_of_choices_names_is_checked(tmp_path, old, new, said):
    with pytest.raises(UsageError, match=said):
        written(tmp_path, changed={old: new})


@pytest.mark.parametrize("text", ['- {"dataset": "digits"}', "- {", "- 1", "3"])
def test_a_damaged_file_of_choices_is_named(tmp_path, text):
    path = chosen.choices_file(tmp_path / "mine.yaml", "quick", "best")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UsageError, match=r"best\.yaml is damaged"):
        chosen.read_choices(path)


# -- the command ----------------------------------------------------------------------------------


def row(method: str, protocol: str, **more: str) -> dict[str, str]:
    names = {"dataset": "digits", "partition": "dir0.1", "method": method, "protocol": protocol}
    return names | {"tried": "lr: 0.1, 0.2", "tried_with": "100 101"} | more


def test_a_row_of_a_product_is_written_as_a_block_has_it(tmp_path):
    grid = written(tmp_path)
    (found,) = choose.merge_choices([], [row("fedprox-mu1", "p-lr0.2")], grid)
    assert found == choice("fedprox", 0.2, mu=1.0)
    assert names(written(tmp_path, [found]), "report") == {"dir0.1 fedprox-mu1 p-lr0.2"}


def test_choices_of_other_methods_stay_and_what_is_not_confirmed_goes(tmp_path):
    grid, before = written(tmp_path), [choice("fedavg", 0.1), choice("fedprox", 0.1, mu=1.0)]
    rows = [row("fedprox-mu0.1", "p-lr0.2"), row("moon", "p", confirm="False")]
    found = choose.merge_choices(before, rows, grid)
    assert found == [before[0], choice("fedprox", 0.2, mu=0.1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("method,mean\nfedavg,1\n", "has no choices"),
        (
            "dataset,partition,protocol,method,scale\ndigits,dir0.1,p,fedavg,small\n",
            "is not of the quick scale",
        ),
    ],
)
def test_a_table_of_other_rows_is_refused(tmp_path, text, says):
    (tmp_path / "best.csv").write_text(text)
    with pytest.raises(UsageError, match=says):
        choose.read_rows(tmp_path / "best.csv", "quick")
