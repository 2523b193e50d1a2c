"""Whether a gain is due to a method's mechanism: the method beside its placebos, seed by seed.

A placebo is the method without the part that its paper gives as the reason of the gain; for
example, with the same weights given to other clients. `placebos` names those of each method, and
`over` the plain method for comparison: one for all, or one for each method. A gain speaks for the
mechanism only if the placebo does not have it. A row is about a method, one of its placebos and a
setting, and has three differences between runs of the same seed: method minus plain, placebo minus
plain, and method minus placebo. Their 95 % intervals (Student's, of the mean over seeds) decide the
verdict (`analysis/placebos.py`).

`gain_by_seed` and so on have the differences of the seeds, which show whether one of them carries
the mean. A setting without a pair of runs for each of the three differences has no row. `metrics`
are further ways to score a run: each has a column with its verdict.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from fedgrid import claim as claims
from fedgrid.analysis import choice, figures, scores, tables, verdicts
from fedgrid.analysis.metrics import describe_metric, in_percent, lower_is_better
from fedgrid.analysis.placebos import BETTER, DIFFERENCES, DIVERGED, MEANINGS, decide_verdict
from fedgrid.analysis.scores import FROM_RUNS, SETTING, score_runs, select_scored, strict_mean
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

# What they name (study/options.py).
OPTIONS = {"placebos": "method", "over": "method", "metric": "metric", "metrics": "way"}
ROLES = ("method", "plain", "placebo")
AXES = ("dataset", "partition", "protocol", "method", "placebo")
LABELLED = (*ROLES, "dataset", "protocol")
Names = str | list[str]


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    placebos: dict[str, Names],
    over: Names | dict[str, Names] = "fedavg",
    metric: Names = "accuracy",
    settings: pd.DataFrame | None = None,
    best: dict | None = None,
    metrics: Names | None = None,
) -> pd.DataFrame:
    """Return a row per metric, method, placebo and setting: scores, differences, the verdict.

    Shares are in percent, and their differences in points. `best` keeps the best runs by each
    metric, and reads the runs' `settings`. Each of `metrics`, ways to score a run (`scores.WAYS`),
    adds its verdict on the same runs. Without runs that can be compared the table is empty.
    """
    trios = list_trios(placebos, over)
    choose = choice.make_chooser(runs, settings, best)
    chosen = {shown: choose(runs, shown) for shown in listed(metric)}
    rows = [row for shown, some in chosen.items() for row in compare_trios(some, shown, trios)]
    if not rows:
        return pd.DataFrame(columns=[*ROLES, *SETTING, "verdict", "scale"])
    table = pd.DataFrame(rows).assign(scale=scale)
    if metrics:
        table = add_verdicts(table, chosen, trios, verdicts.other_metrics(runs, metrics))
    figures.add_labels(table, study, LABELLED)
    return tables.add_alpha(table).round(4)


def list_trios(placebos: dict[str, Names], over: Names | dict[str, Names]) -> list[tuple[str, ...]]:
    claim: claims.Claim = {"says": "", "section": "", "method": [*placebos], "over": over}
    claims.check_others("the option `over` of controls", claim)
    plain = claims.others(claim)
    return [
        (method, other, placebo)
        for method, names in placebos.items()
        for other in plain[method]
        for placebo in listed(names)
    ]


# -- rows -----------------------------------------------------------------------------------------


def compare_trios(runs: pd.DataFrame, metric: str, trios: list[tuple[str, ...]]) -> Iterator[dict]:
    scores.check_metric(runs, metric)
    scored = score_runs(select_scored(runs, metric), metric)
    scored = scored.rename(columns={metric: "accuracy"}).assign(of=metric)
    by_name = [*SETTING, "method"]
    means = scores.mean_over_seeds(scored, by_name).set_index(by_name)
    order = [*scored["method"].unique()]
    present = sorted((t for t in trios if {*t} <= {*order}), key=lambda trio: order.index(trio[0]))
    for setting, here in scored.groupby(SETTING, sort=False):
        for trio in present:
            names = dict(zip(ROLES, trio, strict=True))
            pairs = {
                name: scores.subtract_runs(here, names[first], [names[second]])
                for name, (first, second) in DIFFERENCES.items()
            }
            if not any(pair.empty for pair in pairs.values()):
                facts = dict(zip(SETTING, setting, strict=True))
                scored_runs = [means.loc[(*setting, name)] for name in trio]
                yield names | facts | collect_scores(scored_runs) | judge_differences(pairs, metric)


def collect_scores(means: list[pd.Series]) -> dict:
    facts = {
        f"{role}_{name}": row[name]
        for role, row in zip(ROLES, means, strict=True)
        for name in ("mean", "std", "seeds", "diverged")
    }
    return facts | {name: means[0][name] for name in FROM_RUNS if name in means[0]}


def add_verdicts(
    table: pd.DataFrame, runs: dict[str, pd.DataFrame], trios: list[tuple], ways: list[str]
) -> pd.DataFrame:
    """Add a column of verdicts for each other way to score the runs, and whether they change."""
    for way in ways:
        table[f"{verdicts.BY}{way}"] = [
            row["verdict"]
            for metric, some in runs.items()
            for row in compare_trios(scores.score_by(some, way), metric, trios)
        ]
    return verdicts.add_changes(table, "verdict", ways)


def judge_differences(pairs: dict[str, pd.DataFrame], metric: str) -> dict:
    facts: dict[str, Any] = {}
    for name, pair in pairs.items():
        low, high = verdicts.confidence_interval(pair["accuracy"].to_numpy())
        by_seed = tables.write_seed_differences(pair, "accuracy")
        facts |= {name: strict_mean(pair["accuracy"]), f"{name}_low": low, f"{name}_high": high}
        facts |= {f"{name}_pairs": len(pair), f"{name}_by_seed": by_seed}
    return facts | {"verdict": decide_verdict(facts, lower=lower_is_better(metric))}


# -- for readers ----------------------------------------------------------------------------------


def wide(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return table.set_index("method")
    shown = {
        "score": write_scores(table, "method"),
        "plain method": table["plain_label"] + ": " + write_scores(table, "plain"),
        "score of placebo": write_scores(table, "placebo"),
    }
    digits = [2 if in_percent(metric) else 3 for metric in table["of"]]
    for name, roles in DIFFERENCES.items():
        heading = " - ".join(roles) + " [95 %]"
        shown[heading] = tables.write_intervals(table, name, digits=digits)
    counts = table[[f"{name}_pairs" for name in DIFFERENCES]].itertuples(index=False)
    pairs = [", ".join(map(str, {*row} if len({*row}) == 1 else row)) for row in counts]
    shown |= {"pairs": pairs, "verdict": table["verdict"]}
    shown = pd.DataFrame(shown).join(verdicts.show_by_metric(table))
    index = tables.name_rows(table, tables.is_in_heading(table, "protocol"), AXES)
    if table["of"].nunique() > 1:
        index.insert(0, "metric", table["of"].map(describe_metric))
    return shown.set_index(pd.MultiIndex.from_frame(index))


def write_scores(table: pd.DataFrame, role: str) -> pd.Series:
    """Write mean and deviation of a method, or how many of its runs diverged.

    If the methods of a row have different numbers of seeds, the number follows.
    """
    names = ("mean", "std", "seeds", "diverged")
    facts = table[[f"{role}_{name}" for name in names]].set_axis(names, axis="columns")
    forms = [*map(tables.write_form, table["of"])]
    differ = table[[f"{each}_seeds" for each in ROLES]].nunique(axis="columns") > 1
    return tables.write_means(facts, differ, forms)


def caption(table: pd.DataFrame, placebos: dict[str, Names] | None = None) -> str:
    if table.empty:
        return (
            "Nothing is compared: there are no runs of a method, its plain method and its placebo "
            "with the same seed in the same setting."
        )
    seeds = pd.concat(table.assign(seeds=table[f"{role}_seeds"]) for role in ROLES)
    seeds = seeds.sort_values("seeds", kind="stable")
    parts = [tables.describe_score_and_unit(part) for _, part in table.groupby("of", sort=False)]
    missing = sorted({n for names in (placebos or {}).values() for n in listed(names)})
    missing = [name for name in missing if name not in {*table["placebo"]}]
    hidden = {DIVERGED} - {*table["verdict"]}
    said = [f"“{name}”: {text}." for name, text in MEANINGS.items() if name not in hidden]
    without = f" Not compared, because runs are missing: {', '.join(missing)}." * bool(missing)
    return (
        f"The {'; the '.join(parts)}, mean ± standard deviation over seeds, and paired differences "
        f"with their 95 % intervals: {tables.describe_scope(seeds)}. {BETTER} {' '.join(said)}"
        f"{verdicts.describe_changes(table, 'rows')}{without}"
    )
