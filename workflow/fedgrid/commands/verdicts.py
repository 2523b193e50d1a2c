"""Write a page that says which claims of the papers hold, from runs that exist.

    python -m fedgrid verdicts --out results/verdicts.html
    python -m fedgrid verdicts --study fedlmd --claim 5 --out claim.svg

The second draws one claim as a picture.
The runs are those in the folder of results and those kept with the studies; nothing is trained.
In a folder of its name, beside it, are a page of each paper with the evidence on its claims, the
tables that the pages are made of, and the picture `bar.svg` of how many claims have which verdict.
"""

from pathlib import Path

from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import read_grid


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/verdicts.html"), help="the page")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--study", nargs="+", metavar="NAME", help="default: all with claims")
    parser.add_argument("--claim", type=int, help="draw this claim of one study into an .svg file")
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="which has your protocols"
    )
    asked = parser.parse_args(arguments)
    everything = read_grid(asked.config)
    claiming = [name for name, study in everything.studies.items() if study.get("claims")]
    names = asked.study or claiming
    for name in names:
        everything.studies.named(name)
    wanted = ".svg" if asked.claim else ".html"
    if asked.out.suffix != wanted:
        what = "a picture" if asked.claim else "a page"
        raise UsageError(f"--out {asked.out} is not {what}: give a name that ends with {wanted}")
    if asked.claim:
        if len(names) != 1:
            raise UsageError("--claim is about one study: name it with --study")
        from fedgrid.page.picture import write_picture

        return write_picture(asked.out, everything, asked.results, names[0], asked.claim)
    from fedgrid.page.write import write_page

    write_page(asked.out, everything, asked.results, dict.fromkeys(names))


if __name__ == "__main__":
    cli.run(main)
