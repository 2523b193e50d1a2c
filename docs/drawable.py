"""Print which products of each study kept runs suffice to draw, at the scale `small`.

The documentation shows them. A line has a study and one file of each of its products, because a
job draws all formats of a product.
"""

from fedgrid.store.keeping import list_drawable
from fedgrid.study.grid import Grid, read_grid

SCALE = "small"


def list_files(everything: Grid, study: str) -> list[str]:
    """Return a file of each product of a study that can be drawn."""
    about = everything.studies[study]["products"]
    return [
        f"{product}.{about[product]['formats'][0]}"
        for product in list_drawable(everything, study, SCALE)
    ]


if __name__ == "__main__":
    read = read_grid()
    for name in (name for name, of in read.studies.items() if SCALE in of["scales"]):
        print(name, *list_files(read, name))
