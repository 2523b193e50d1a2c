"""What other modules will have: `collect.collect_there` and `verdicts.judge_by_metric`."""

from pathlib import Path

import pandas as pd

from fedgrid import collect
from fedgrid.analysis import verdicts
from fedgrid.report import claims
from fedgrid.study.grid import Grid


def collect_there(
    kind: str, everything: Grid, study: str, scale: str, grid: str, results: Path = Path("results")
) -> pd.DataFrame | None:
    """Return the collected table of those runs of a grid that are finished in `results`."""
    runs = everything.runs(study, scale, grid)
    protocols = everything.protocols_of(everything.narrowed(study, scale, grid))
    found = [one for one in collect.find_files(kind, runs, protocols, results) if one[0].exists()]
    return collect.gather(kind, found).assign(kept=False) if found else None


def judge_by_metric(
    study: dict, runs: pd.DataFrame, metrics, scores=None, interpolation=None, choose=lambda t, b: t
) -> pd.DataFrame:
    """Return a row per claim and metric: verdict, and numbers of the deciding comparison."""
    rows = []
    for metric in metrics:
        values = verdicts.measured(study, runs.assign(metric=metric), scores, interpolation, choose)
        for number, claim in verdicts.numbered(study, None):
            found = verdicts.compare(claim, values)
            names = ("difference", "low", "high", "seeds")
            numbers = {name: claims.deciding(found)[name] for name in names}
            verdict = verdicts.verdict(found, claim.get("share"))
            rows.append({"claim": number, "metric": metric, "our_verdict": verdict} | numbers)
    return pd.DataFrame(rows)
