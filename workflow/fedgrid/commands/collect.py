r"""Collect files of the runs of a grid into one table.

    python -m fedgrid collect runs '[{"protocol": ["fedsls-quick"], ...}]' \
        --protocols '{"fedsls-quick": {"rounds": 40, "tail": 10, ...}}' --out runs.csv

The grid is a list of blocks, each with a list of names for every axis of a run. A grid that is too
long for a command can be in a file: `@FILE` stands for the lines of the file, one argument in each.
The kinds of tables:

    runs        a row per run and evaluated round: its metrics
    predictions a row per run, evaluated round and class: how often the server's model predicts it
    seconds     a row per run: its seconds and machine
    settings    a row per run and field of its protocol or hyper-parameter of its method
    partition   a row per client and class of every partition: number of samples
    sizes       a row per client of every partition: samples for training, tests and validation
    clients     a row per run, round in which clients were evaluated, and client: its accuracies
    saliency    a row per client: R_k by the default reading
    encoding    a row per saliency file: the costs of pretraining and encoding
    interpolation  a row per run, alpha and beta: the clients' accuracies between two branches

With `--kept fedsls/small --ids 0 1 2` the items of these ids are read from what is kept with the
study (`store/kept.py`), and the column `kept` says which rows are theirs. What has changed in the
code since an item was made may follow its id, as in `2=engine`: the column `code_changed` has it.
"""

import json
from pathlib import Path

from fedgrid.runtime import cli, files, records
from fedgrid.runtime.names import UsageError, known
from fedgrid.store.tables import READERS, find_files, join_tables, read_store
from fedgrid.study.protocol import runs_of_block


def main(arguments: list[str] | None = None) -> records.Work:
    parser = cli.parser(__doc__)
    parser.add_argument("kind", help=f"one of {', '.join(READERS)}")
    parser.add_argument("grid", help="the blocks of the grid as JSON")
    parser.add_argument("--protocols", help="the fields of every protocol, as JSON")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--kept", metavar="STUDY/SCALE", help="where the runs of --ids are kept")
    parser.add_argument("--ids", nargs="+", default=[], help="ids in the index of kept runs")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    asked = parser.parse_args(arguments)
    known("kind", asked.kind, READERS)
    try:
        runs = [run for block in json.loads(asked.grid) for run in runs_of_block(block)]
        protocols = dict(json.loads(asked.protocols or "{}"))
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(f"the grid is not a list of blocks in JSON: {problem}") from None
    if not runs:
        raise UsageError("the grid has no runs")
    found = find_files(asked.kind, runs, protocols, asked.results)
    ids = dict(text.partition("=")[::2] for text in asked.ids)
    stored = read_store(asked.kind, asked.kept, ids, asked.results) if asked.kept else {}
    with files.replacing(asked.out) as temporary:
        join_tables(asked.kind, found, stored).to_csv(temporary, index=False)
    read = [path for path, _ in found if path not in stored]
    return records.Work([asked.out], read, code=["store.tables"])


if __name__ == "__main__":
    cli.run(main)
