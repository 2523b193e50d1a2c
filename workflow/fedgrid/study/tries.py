"""How many tries the methods of a tuned product have: more tries find a better best."""

import json
from itertools import product

from fedgrid.study.grid import Grid
from fedgrid.study.products import chooses_methods, list_tuned
from fedgrid.study.records import Wanted

Tries = dict[tuple[str, ...], dict[str, set[str]]]  # the candidates by cell and family


def describe_uneven_tries(grid: Grid, study: str, scale: str, name: str) -> str:
    """Return a sentence if a product chooses between more candidates of one method than of another.

    A product without the option `best: {methods: true}` gives an empty text. So does a grid that is
    extended until each choice is between others, because this rule is the same for all methods.
    """
    about = grid.studies[study]["products"][name]
    of = about["from"].get("runs", "").partition("/")[2]
    written = grid.studies[study]["scales"][scale]["grids"].get(of, [])
    if not chooses_methods(about) or any("extend" in block for block in written):
        return ""
    blocks = grid.narrow_blocks(study, scale, of)
    over = list_tuned(about)
    for (dataset, partition, _), families in list_tries(grid, blocks, over).items():
        counts = {family: len(tries) for family, tries in families.items()}
        few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[few] < counts[many]:
            return (
                f"{name} of {study} takes the best of {counts[few]} for {few} and the best of "
                f"{counts[many]} for {many} ({dataset}, {partition}): give methods that are "
                "compared the same number of tries"
            )
    return ""


def list_tries(grid: Grid, blocks: list[Wanted], over: list[str]) -> Tries:
    """Return the candidates of blocks by dataset, partition and setting, and by family.

    The protocols of a setting differ in the fields `over` only. Two names of one thing are one try.
    """
    found: Tries = {}
    for block in blocks:
        names = (block[axis] for axis in ("protocol", "dataset", "partition", "method"))
        for name, dataset, partition, method in product(*names):
            protocol = grid.protocol(name)
            setting = json.dumps({key: v for key, v in protocol.items() if key not in over})
            families = found.setdefault((dataset, str(partition), setting), {})
            tried = json.dumps([protocol, grid.method(method, dataset)])
            families.setdefault(grid.family(method), set()).add(tried)
    return found
