"""What the README shows works, and what it names is there."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from conftest import PROTOCOL, simulate, tiny, uneven
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.reading import read_study
from made import STUDIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The examples in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_method_of_the_example_pulls():
    made = ModuleType("pull")
    exec(blocks("python")[0], made.__dict__)
    free, held = (
        simulate(made.method(mu=mu), "loop", uneven(), tiny, **PROTOCOL).play(2).server
        for mu in (0.0, 10.0)
    )
    initial = simulate(made.method(), "loop", uneven(), tiny, **PROTOCOL).run.server
    far, near = (torch.dist(state["head.weight"], initial["head.weight"]) for state in (free, held))
    assert near < far / 2


def grid_of(text: str, folder: Path) -> Grid:
    """The grid of the studies and of one that is written in a file."""
    (folder / "mine.yaml").write_text(text)
    study = read_study(folder / "mine.yaml")
    return Grid(STUDIES | {"mine": study}, {"study": "mine", "scale": "quick"})


def test_the_study_of_the_example_is_one(tmp_path):
    made = grid_of(blocks("yaml")[0], tmp_path)
    assert made.products("mine", "quick") == ["convergence"]
    assert made.studies["mine"]["products"]["convergence"]["formats"] == ["csv", "svg"]
    assert len(made.runs("mine", "quick", "main")) == 2


def test_the_products_for_any_study_can_be_copied(tmp_path):
    study, given = yaml.safe_load(blocks("yaml")[0]), yaml.safe_load(blocks("yaml")[1])
    kinds = {
        name: [s.partition("/")[0] for s in of["from"].values()]
        for name, of in given["products"].items()
    }
    study["products"] = {
        name: about for name, about in given["products"].items() if {*kinds[name]} <= {*COLLECTED}
    }
    made = grid_of(yaml.safe_dump(study, sort_keys=False), tmp_path)
    assert made.products("mine", "quick") == [*study["products"]]
    for about in made.studies["mine"]["products"].values():
        assert about["category"]
        assert about["formats"] in (["csv", "svg"], ["csv", "tex", "html"])


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m (fedgrid\.\w+)", README))))
def test_a_module_that_is_called_is_there(module):
    assert find_spec(module)


def test_the_files_that_are_named_are_there():
    named = set(re.findall(r"`((?:workflow|tests|envs)/[\w./-]+)`", README))
    examples = {"workflow/fedgrid/methods/pull.py", "workflow/studies/mine.yaml"}
    assert {path for path in named if not (ROOT / path).exists()} == examples


@pytest.mark.parametrize(
    ("study", "heading"), [("fedsls", "Everything else"), ("fedlmd", "FedLMD")]
)
def test_the_tables_name_all_products_with_their_formats(study, heading):
    (section,) = re.findall(rf"^## {heading}.*?(?=^## )", README, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (`.*`) \|.*\| ([a-z ]+) \|$", section, re.MULTILINE)
    named = {
        name: formats.split() for names, formats in rows for name in re.findall("`(.*?)`", names)
    }
    assert named == {name: about["formats"] for name, about in STUDIES[study]["products"].items()}
