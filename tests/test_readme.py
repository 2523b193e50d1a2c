"""What the README shows works, and what it names is there."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from conftest import PROTOCOL, simulate, tiny, uneven
from fedgrid.study import schema
from fedgrid.study.grid import Grid
from made import STUDIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    """The one example in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return found


def test_the_method_of_the_example_pulls():
    made = ModuleType("pull")
    exec(block("python"), made.__dict__)
    free, held = (
        simulate(made.method(mu=mu), "loop", uneven(), tiny, **PROTOCOL).play(2).server
        for mu in (0.0, 10.0)
    )
    initial = simulate(made.method(), "loop", uneven(), tiny, **PROTOCOL).run.server
    far, near = (torch.dist(state["head.weight"], initial["head.weight"]) for state in (free, held))
    assert near < far / 2


def test_the_study_of_the_example_is_one():
    study = yaml.safe_load(block("yaml"))
    schema.check("mine.yaml", study, ROOT / "workflow/schemas/study.schema.yaml")
    made = Grid(STUDIES | {"mine": study}, {"study": "mine", "scale": "quick"})
    assert made.products("mine", "quick") == ["convergence"]
    assert len(made.runs("mine", "quick", "main")) == 2


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
