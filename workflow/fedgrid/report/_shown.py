"""Print a finished table in a terminal."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import get_terminal_size

from fedgrid.report._product import load_product, write_text
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.study.reading import CONFIG, add_products, find_study, read_config, read_study
from fedgrid.study.records import Product, Study

# A table among the targets of Snakemake: its study, if the path names it, and its product.
MADE = re.compile(r"results/(?:studies/([^/]+)/[^/]+/(?:[^/]+=[^/]+/)*)?(\w+)(?:/\d+)?\.csv")
SCREEN = 160, 60  # columns and lines where there is no terminal
OF_STUDY = re.compile(r"(?:.*/)?studies/([^/]+)/([^/]+)/.+")  # study and scale in a table's path


def show_product(product: str, path: Path, study: str | None) -> str:
    """Return a product's finished table in a file, and its caption, as text.

    The study is `study`, or that in whose folder the path is, or that of config.yaml.
    """
    config, folder = read_config(CONFIG), OF_STUDY.fullmatch(path.as_posix())
    named = study or (folder and folder[1]) or config.get("study")
    if not named:
        raise UsageError("config.yaml names no study: name it by --study")
    file = find_study(named)
    about, config = read_study(file), config | {"study": file.stem}
    add_products({file.stem: about}, config)
    entry = find_entry(product, file.stem, about)
    if not path.exists():
        raise UsageError(
            f"{path} is missing: make it with `snakemake --cores all --config study={file.stem} "
            f"-- {path}`"
        )
    return write_text(load_product(file.stem, product, entry), path)


def print_made(targets: Iterable[str], studies: Mapping[str, Study], study: str) -> None:
    """Print those tables among a command's targets that fit on the screen, with their captions.

    A path that names no study is of `study`.
    """
    columns, lines = get_terminal_size(SCREEN)
    for target in targets:
        named, product = found.groups() if (found := MADE.fullmatch(target)) else ("", "")
        name = named or study
        if entry := studies.get(name, {"products": {}})["products"].get(product):
            text = write_text(load_product(name, product, entry), Path(target), columns)
            if text.partition("\n\n")[2].count("\n") < lines:
                print(text, flush=True)


def find_entry(product: str, study: str, about: Study) -> Product:
    """Return the entry of a study's product, or an empty one for a file of fedgrid/report/."""
    files = [*registered("report"), *registered(f"report/{study}")]
    known(f"product of {study}", product, dict.fromkeys([*about["products"], *files]))
    return about["products"].get(product, Product())
