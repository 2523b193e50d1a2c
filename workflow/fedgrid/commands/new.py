"""Make the folder of a paper: a repository of its own, with a method, its placebo and a study.

    python -m fedgrid new my-paper

All commands that start in this folder find its methods, models, datasets, partitions, products and
studies beside those of fedgrid. `snakemake --cores 2` in it makes its tables and figures.
"""

import re
from pathlib import Path

from fedgrid import __version__
from fedgrid.plan.configuration import RULES
from fedgrid.runtime import cli, places
from fedgrid.runtime.names import UsageError, shown
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.study.reading import read_studies

NAME = re.compile(r"[A-Za-z][\w-]{0,39}", re.ASCII)


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("folder", type=Path, help="a folder that does not exist, or is empty")
    asked = parser.parse_args(arguments)
    folder: Path = asked.folder.absolute()
    words = {"paper": folder.name, "study": name_study(folder), "version": __version__}
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists, and is not an empty folder: name another one")
    for file in sorted(path for path in places.TEMPLATE.rglob("*") if path.is_file()):
        if file.suffix != ".pyc":  # pip writes such files
            write_file(file, folder, words)
    print(f"{asked.folder} is ready: `cd {asked.folder}`, and then `snakemake --cores 2`")


def name_study(folder: Path) -> str:
    """Return the name of a paper's study; UsageError if the folder's name gives none."""
    if not NAME.fullmatch(folder.name):
        raise UsageError(
            f"the folder is called {shown(folder.name)}: give it a name of letters, digits, _ and "
            "-, at most 40, with a letter first"
        )
    name = folder.name.lower().replace("-", "_")
    studies = read_studies()
    protocols = {name for study in studies.values() for name in study["protocols"]}
    taken = {*studies, *RULES, *(one.rpartition("-")[0] for one in protocols)}
    if name in taken or not isinstance(load_yaml(name), str):
        raise UsageError(f"{name} cannot be the name of a study: give the folder another name")
    return name


def write_file(file: Path, folder: Path, words: dict[str, str]) -> None:
    """Write a file of the template, in which {{ paper }} and other words stand for their values."""
    parts = file.relative_to(places.TEMPLATE).parts
    name = "/".join(parts).replace("dot_", ".").replace("study.yaml", f"{words['study']}.yaml")
    text = file.read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"{{{{ {word} }}}}", value)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    cli.run(main)
