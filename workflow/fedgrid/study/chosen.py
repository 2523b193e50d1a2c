"""The choices of a product, from which later grids of a study take their runs.

A study tunes its methods in one grid and reports them in another. `fedgrid choose` writes what a
product of the first grid chose to the file chosen/<study>/<scale>/<product>.yaml, beside the
study. A block with `chosen: <product>` has the runs of these choices, with seeds of its own: seeds
that choose are refused as seeds that report. A block with `extend: {<product>: {lr: [low, high]}}`
also tries a further value of a protocol's field where the choice is the lowest or the highest of
those that were tried, until the choice is between others or the next value is beyond a bound.
Values go on by the ratio of the last two.

A choice has the names of an entry of a block (`dataset`, `partition`, `protocol`, `method`), the
`values` that a sweep gave by method or `protocol` and field, the values that were `tried` by field
of the protocol, and the `seeds` of the runs that chose it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from fedgrid.runtime.names import UsageError, known, listed, within
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.study.records import Block, Study

FOLDER = "chosen"  # beside the files of studies
FILTERS = ("dataset", "partition", "method")  # by which a block takes a part of the choices
CHOOSING = "choosing_seeds"  # of a block with a choice: the seeds of the runs that chose it

Choice = dict[str, Any]
KEYS = ("dataset", "partition", "protocol", "method", "values", "tried", "seeds")


def choices_file(study: Path, scale: str, product: str) -> Path:
    return study.parent / FOLDER / study.stem / scale / f"{product}.yaml"


def read_choices(path: Path) -> list[Choice]:
    """Return the choices in a file; none if there is no file. UsageError if it is damaged."""
    if not path.exists():
        return []
    try:
        choices = load_yaml(path.read_bytes()) or []
        return [{key: choice[key] for key in KEYS} for choice in choices]
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as problem:
        said = " ".join(str(problem).split())
        raise UsageError(f"{path} is damaged ({said}): restore it, or choose again") from None


# -- blocks ---------------------------------------------------------------------------------------


def expand_study(path: Path, study: Study) -> Study:
    """Return a study in which the choices stand in its grids.

    A scale's `awaits` has, by grid without runs, the product whose choices are not there yet.
    """
    scales = {}
    for scale, of in study["scales"].items():
        grids, awaits = {}, {}
        for grid, blocks in of["grids"].items():
            with within(f"{path.name}: scales.{scale}.grids.{grid}"):
                for block in blocks:
                    check_block(study, scale, block)
                grids[grid] = [b for block in blocks for b in expand_block(path, scale, block)]
            chosen = [block["chosen"] for block in blocks if "chosen" in block]
            if chosen and not grids[grid]:
                awaits[grid] = chosen[-1]
        scales[scale] = of | {"grids": grids, "awaits": awaits}
    return study | {"scales": scales}


def expand_block(path: Path, scale: str, block: Any) -> Iterator[Block]:
    if "chosen" in block:
        choices = read_choices(choices_file(path, scale, block["chosen"]))
        yield from (take_choice(block, c) for c in choices if is_wanted(block, c, FILTERS))
        return
    yield block
    for product, fields in block.get("extend", {}).items():
        for choice in read_choices(choices_file(path, scale, product)):
            if is_wanted(block, choice, (*FILTERS, "protocol")):
                for field, bounds in fields.items():
                    yield from add_values(block, choice, product, field, bounds)


def is_wanted(block: Any, choice: Choice, axes: tuple[str, ...]) -> bool:
    """Whether a choice is among the names of a block, as far as it has names."""
    return all(choice[axis] in listed(block[axis]) for axis in axes if axis in block)


def take_choice(block: Any, choice: Choice) -> Block:
    sweep = {
        name: {field: [value] for field, value in fields.items()}
        for name, fields in choice["values"].items()
    }
    own = {axis: choice[axis] for axis in FILTERS} | {"sweep": sweep, CHOOSING: choice["seeds"]}
    return {"protocol": choice["protocol"]} | block | own


def add_values(
    block: Any, choice: Choice, product: str, field: str, bounds: list[float]
) -> Iterator[Block]:
    """Yield the block of the values of a field that a method tries beyond those of its block."""
    sweep = block.get("sweep", {})
    there = sweep.get("protocol", {}).get(field, [])
    further = [*choice["tried"].get(field, []), *next_values(choice, field, bounds)]
    if added := [value for value in further if value not in there]:
        names: Any = {axis: choice[axis] for axis in (*FILTERS, "protocol")}
        of_protocol = {**sweep.get("protocol", {}), field: added}
        own = {name: sweep[name] for name in names.values() if name in sweep}
        yield block | names | {"sweep": own | {"protocol": of_protocol}, "chosen": product}


def next_values(choice: Choice, field: str, bounds: list[float]) -> list[float]:
    """Return the next value to try if the choice is at an end of those tried, within the bounds."""
    tried = sorted(choice["tried"].get(field, []))
    at = choice["values"].get("protocol", {}).get(field)
    if len(tried) < 2 or at not in (tried[0], tried[-1]):
        return []
    beside = tried[1] if at == tried[0] else tried[-2]
    value = float(f"{at * at / beside:.6g}")
    return [value] if bounds[0] <= value <= bounds[1] else []


# -- checks ---------------------------------------------------------------------------------------


def check_block(study: Study, scale: str, block: Any) -> None:
    for product in [*listed(block.get("chosen")), *block.get("extend", {})]:
        known("product", product, study["products"])
    if "chosen" in block:
        before = [*list_before(study, scale, block["chosen"])]
        written = [one for one in before if "chosen" not in one]
        for axis in FILTERS:
            there = {str(name) for one in written for name in listed(one[axis])}
            for name in listed(block.get(axis)):
                known(
                    f"{axis} of the grid from which `{block['chosen']}` chooses", str(name), there
                )
        choosing = [seed for one in before for seed in listed(one["seed"])]
        check_seeds(block["chosen"], choosing, listed(block["seed"]))


def list_before(study: Study, scale: str, product: str) -> Iterator[Any]:
    """Yield the blocks of the grids from whose runs a product and those before it choose."""
    text = study["products"][product]["from"].get("runs", "")
    for block in study["scales"][scale]["grids"].get(text.removeprefix("runs/"), []):
        yield block
        if "chosen" in block and block["chosen"] != product:
            yield from list_before(study, scale, block["chosen"])


def check_seeds(product: str, choosing: Iterable[int], seeds: Iterable[int]) -> None:
    if both := sorted({*choosing} & {*seeds}):
        raise UsageError(
            f"seed {both[0]} also chose, by `{product}`: take other seeds, because the best of "
            "some tries looks better on the runs that chose it than it is"
        )
