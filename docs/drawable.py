"""Print which products of each study kept runs suffice to draw, at the scale `small`.

The documentation shows them. A line has a study and one file of each of its products, because a
job draws all formats of a product.
"""

from functools import cache

from fedgrid.store import kept
from fedgrid.store.measured import find_measured
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.paths import COLLECTED

SCALE = "small"


def list_drawable(everything: Grid, study: str) -> list[str]:
    """Return a file of each product of a study whose sources are all kept."""
    about = everything.studies[study]["products"]
    return [
        f"{product}.{about[product]['formats'][0]}"
        for product in everything.products(study, SCALE)
        if all(is_kept(everything, study, of) for of in about[product]["from"].values())
    ]


@cache  # products share sources
def is_kept(everything: Grid, study: str, source: str) -> bool:
    """Whether all runs of a source are kept, or the experiment that it names is."""
    kind, _, grid = source.partition("/")
    if kind not in COLLECTED:
        setting = everything.experiment(study, SCALE, kind)
        return bool(find_measured(study, SCALE, source, setting))
    index = kept.read_index(kept.store_folder(study, SCALE))
    runs = everything.runs(study, SCALE, grid)
    return bool(runs) and all(kept.find_kept(index, kind, everything.resolve(r)) for r in runs)


if __name__ == "__main__":
    read = read_grid()
    for name in (name for name, of in read.studies.items() if SCALE in of["scales"]):
        print(name, *list_drawable(read, name))
