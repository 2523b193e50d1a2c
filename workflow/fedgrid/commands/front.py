"""Write the front page of the report: a table, the verdicts on the claims, and a figure.

    python -m fedgrid front --study fedsls --scale quick --table table1=table1.csv \
        --claims claims.csv --figure figure1=figure1.svg --out front.html

It is a part of a page: `snakemake --report` shows it before the graph of the workflow. What a study
does not have, or a part of its grid leaves without runs, is left out.
"""

from pathlib import Path

from fedgrid.runtime import cli, files, records
from fedgrid.runtime.names import UsageError
from fedgrid.study.reading import find_study, read_study


def main(arguments: list[str] | None = None) -> records.Work:
    """Run the command."""
    parser = cli.parser(__doc__)
    parser.add_argument("--study", required=True, help="a study's name, or its .yaml")
    parser.add_argument("--scale", required=True, help="the scale of the table, claims and figure")
    parser.add_argument("--table", help="NAME=CSV of a product", metavar="NAME=CSV")
    parser.add_argument("--claims", type=Path, help="the CSV of the product `claims`")
    parser.add_argument("--figure", help="NAME=SVG of a product", metavar="NAME=SVG")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    asked = parser.parse_args(arguments)
    path = find_study(asked.study)
    study = read_study(path)
    from fedgrid.page.front import read_claims, render_front, show_figure, show_table

    (product, path_of_table), (drawn, image) = (named(one) for one in (asked.table, asked.figure))
    inputs = [one for one in (path_of_table, image) if one] + [asked.claims] * bool(asked.claims)
    page = render_front(
        study,
        name=path.stem,
        scale=asked.scale,
        table=show_table(path.stem, study, product, path_of_table) if path_of_table else None,
        claims=read_claims(asked.claims) if asked.claims else [],
        figure=show_figure(path.stem, study, drawn, image) if image else None,
    )
    with files.replacing(asked.out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return records.Work([asked.out], inputs, code=["page.front"])


def named(text: str | None) -> tuple[str, Path | None]:
    """Return name and path in a text NAME=PATH; UsageError if it is none."""
    if text is None:
        return "", None
    name, equals, path = text.partition("=")
    if not equals:
        raise UsageError(f"{text} is not NAME=PATH")
    return name, Path(path)


if __name__ == "__main__":
    cli.run(main)
