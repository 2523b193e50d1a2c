"""Find a finished table by the configuration that it was made with, to print it in a terminal."""

import re
import shlex
from functools import reduce
from pathlib import Path
from typing import Any

from fedgrid.report._product import load_product, write_text
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.study.given import read_given, read_word
from fedgrid.study.grid import Grid
from fedgrid.study.reading import (
    CONFIG,
    add_products,
    check_config,
    find_study,
    merge_configs,
    read_config,
    read_studies,
    read_study,
)
from fedgrid.study.records import Product, Study
from fedgrid.study.selection import part_folder

OF_STUDY = re.compile(r"(?:.*/)?studies/([^/]+)/([^/]+)/.+")  # study and scale in a table's path
KEY = re.compile("([a-z_]+)=(.*)", re.DOTALL)  # a key of a configuration with its value


def show_product(product: str, path: Path | None, study: str | None, words: list[str]) -> str:
    """Return a product's finished table and its caption as text.

    `words` are files of a configuration, or KEY=VALUE as Snakemake's --config takes them. Without a
    path, the table is that which Snakemake makes with this configuration. The study is `study`, or
    that in whose folder the path is, or that of the configuration.
    """
    config = read_configuration(words)
    folder = OF_STUDY.fullmatch(path.as_posix()) if path else None
    named = study or (folder and folder[1]) or config.get("study")
    if not named:
        raise UsageError("the configuration names no study: name it by --study")
    file = find_study(named)
    about, config = read_study(file), config | {"study": file.stem}
    add_products({file.stem: about}, config)
    entry = find_entry(product, file.stem, about)
    loaded = load_product(file.stem, product, entry)
    return write_text(loaded, path or find_table(product, about, config, words))


def read_configuration(words: list[str]) -> dict[str, Any]:
    """Return the configuration of files and of words KEY=VALUE; a later one wins."""
    keys = [key for word in words if (key := KEY.fullmatch(word))]
    given = read_given({key[1]: read_word(key[2]) for key in keys}, {})
    check_config("--config", given, required=False)
    files = [read_config(path) for path in (CONFIG, *list_files(words))]
    return reduce(merge_configs, [*files, given], {})


def list_files(words: list[str]) -> list[Path]:
    """Return the files among words, besides config.yaml, which is always read first."""
    return [Path(word) for word in words if not KEY.fullmatch(word) and Path(word) != CONFIG]


def find_entry(product: str, study: str, about: Study) -> Product:
    """Return the entry of a study's product, or an empty one for a file of fedgrid/report/."""
    files = [*registered("report"), *registered(f"report/{study}")]
    known(f"product of {study}", product, dict.fromkeys([*about["products"], *files]))
    return about["products"].get(product, Product())


def find_table(product: str, about: Study, config: dict, words: list[str]) -> Path:
    """Return the path of a product's table under a configuration; UsageError if it is not made."""
    study, scale = config["study"], config.get("scale", "quick")
    known(f"product of {study}", product, about["products"])
    if "csv" not in about["products"][product]["formats"]:
        raise UsageError(f"{product} of {study} has no table: add `csv` to its `formats`")
    path = Path(f"results/studies/{study}/{scale}{part_folder(config)}/{product}.csv")
    if path.exists():
        return path
    everything = Grid(read_studies() | {study: about}, own_data.give(config | {"scale": scale}))
    everything.check_product(study, scale, product)
    raise UsageError(f"{path} is missing: make it with `{write_command(path, config, words)}`")


def write_command(path: Path, config: dict, words: list[str]) -> str:
    """Return the command of Snakemake that makes a product under a configuration."""
    named = {key: f"{key}={config[key]}" for key in ("study", "scale") if key in config}
    given = {key[1]: word for word in words if (key := KEY.fullmatch(word))} | named
    files = ["--configfile", *map(str, list_files(words))] if list_files(words) else []
    options = [*files, "--config", *given.values(), "--", str(path)]
    return shlex.join(["snakemake", "--cores", "all", *options])
