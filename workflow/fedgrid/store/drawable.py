"""Which products of a study kept runs suffice to draw."""

from functools import cache

from fedgrid.store import kept
from fedgrid.store.measured import find_measured
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED


def list_drawable(everything: Grid, study: str, scale: str) -> list[str]:
    """Return the products of a study whose sources are all kept at a scale."""
    about = everything.studies[study]["products"]
    return [
        product
        for product in everything.products(study, scale)
        if all(is_kept(everything, study, scale, of) for of in about[product]["from"].values())
    ]


@cache  # products share sources
def is_kept(everything: Grid, study: str, scale: str, source: str) -> bool:
    """Whether all runs of a source are kept, or the experiment that it names is."""
    kind, _, grid = source.partition("/")
    if kind not in COLLECTED:
        setting = everything.experiment(study, scale, kind)
        return bool(find_measured(study, scale, source, setting))
    index = kept.read_index(kept.store_folder(study, scale))
    runs = everything.runs(study, scale, grid)
    return bool(runs) and all(kept.find_kept(index, kind, everything.resolve(r)) for r in runs)
