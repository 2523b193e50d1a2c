"""Judge a study's claims by its finished runs at one scale, and by printed numbers.

A table without any data is left out. If a table cannot be made, for example because a run is
damaged, the page shows the error as a sentence, and the other tables are still made.
"""

from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from fedgrid.analysis import claim_text, figures, measures, verdicts
from fedgrid.page import making
from fedgrid.report import claims, granularity, omissions
from fedgrid.report._product import draw_table, load_product, read_table
from fedgrid.runtime.names import NothingToDrawError, UsageError, listed
from fedgrid.store.measured import find_measured
from fedgrid.store.tables import collect_finished
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.records import Product, Study

OWN = "own"  # the way to score a run, if the runs' protocols have several
METRICS = ("tail", "best", "smoothed")  # how a run can be scored: fields `metric` of protocols
BY_VERDICT = {"held": verdicts.HOLDS, "failed": verdicts.FAILS, "undecided": verdicts.UNDECIDED}
Sources = Callable[[Product], dict[str, pd.DataFrame]]  # the tables that a product's entry names
Tables = dict[str, pd.DataFrame]


# -- of a study, without runs ---------------------------------------------------------------------


def gather_study(name: str, study: Study) -> Tables:
    """Return the tables that need no new run: printed numbers, granularity, kept runs."""
    products = {product: load_product(name, product, {}) for product in ("printed", "granularity")}
    tables = {product: loaded.draw(study=study, scale="") for product, loaded in products.items()}
    if study.get("reference"):
        reference = load_product(name, "reference", {}).draw(study=study, scale="")
        if "curve" in reference:  # rows of single evaluations belong to curves
            reference = reference[reference["curve"].isna()]
        tables["reference"] = reference
    printed = tables["printed"]
    printed["tables"] = list_compared_tables(study, printed["published_verdict"])
    return {product: table for product, table in tables.items() if len(table)}


def list_compared_tables(study: Study, published: Iterable[str]) -> list[str]:
    """Name for each claim the published tables and data sets whose values it compares.

    A text is like `table1 cifar10, table3 all`, where `all` stands for several data sets of a
    table. `published` are the verdicts by printed numbers; a claim without one has an empty text.
    """
    values = {
        name: measures.measure_printed({**study, "published": {name: table}})
        for name, table in study.get("published", {}).items()
    }
    texts = []
    for claim, said in zip(study.get("claims", []), published, strict=True):
        found = []
        for name, measured in values.items() if said else ():
            datasets = verdicts.compute_differences(claim, measured)["dataset"].unique()
            if len(datasets):
                found.append(f"{name} {datasets[0] if len(datasets) == 1 else granularity.WHOLE}")
        texts.append(", ".join(found))
    return texts


# -- of a study at a scale ------------------------------------------------------------------------


def gather_scale(name: str, scale: str, everything: Grid, results: Path) -> Tables:
    """Return the tables of a study at a scale; only `runs`, which says what was run, is in all."""
    study = everything.studies[name]
    read = make_reader(name, scale, everything, results)
    gathered: Tables = {}
    problems: list[str] = []
    of_claims = making.list_grid_runs(name, scale, everything, ["claims"])
    of_claims = of_claims.replace(everything.tuned_names(name))
    for judge in (partial(judge_claims, wanted=of_claims), draw_controls, draw_omissions):
        try:
            gathered |= judge(name, scale, study, read)
        except UsageError as problem:
            problems.append(f"{problem}.")
    wanted = making.list_grid_runs(name, scale, everything)
    finished = making.list_finished_runs(study, read)
    made_by = f"snakemake --cores all --config study={name} scale={scale}"
    said = " ".join(dict.fromkeys(problems))
    gathered["runs"] = making.count_by_protocol(wanted, finished, said, made_by)
    if len(finished):
        gathered["made"] = making.count_by_maker(name, scale, finished, results)
        gathered["again"] = making.count_again(name, scale, finished)
        judged = gathered.get("claims", pd.DataFrame({"claim": [], "comparisons": []}))
        compared = dict(zip(judged["claim"], judged["comparisons"], strict=True))
        tuned = bool(study["products"].get("claims", {}).get("with", {}).get("best"))
        gathered["untested"] = making.count_untested(study, of_claims, compared, tuned)
    return {kind: table for kind, table in gathered.items() if len(table)}


def make_reader(name: str, scale: str, everything: Grid, results: Path) -> Sources:
    """Return a function that reads those sources of a product that exist."""
    grids = everything.studies[name]["scales"][scale]["grids"]

    @cache
    def read_source(source: str) -> pd.DataFrame | None:
        kind, _, grid = source.partition("/")
        if kind in COLLECTED:
            asked = (kind, everything, name, scale, grid, results)
            return collect_finished(*asked) if grid in grids else None
        path = results / "studies" / name / scale / f"{source}.csv"
        if not path.exists() and kind in everything.studies[name]["scales"][scale]:
            setting = everything.experiment(name, scale, kind)
            path = find_measured(name, scale, source, setting) or path
        return read_table(path) if path.exists() else None

    def read_existing(entry: Product) -> Tables:
        sources = {key: read_source(source) for key, source in entry["from"].items()}
        return {key: table for key, table in sources.items() if table is not None}

    return read_existing


def judge_claims(
    name: str, scale: str, study: Study, read: Sources, wanted: pd.DataFrame
) -> Tables:
    """Judge the claims by the finished runs; return the tables of the page, none without runs.

    They are `claims`, `contrasts` (every comparison with every metric), `seeds` (every seed) and
    `metrics` (every metric). `wanted` are all runs of the grid; a comparison that lacks one of them
    is missing.
    """
    entry = study["products"].get("claims", {"from": {}})
    if not (sources := read(entry)):
        return {}
    values, missing = measure_by_metric(study, sources, entry.get("with", {}), wanted)
    measured, printed = next(iter(values.values())), measures.measure_printed(study)
    pairs = {
        number: verdicts.compute_differences(claim, measured)
        for number, claim in verdicts.number_claims(study, None)
    }
    contrasts = {metric: compare_all(study, of, missing) for metric, of in values.items()}
    metrics = judge_by_metric(study, contrasts if "runs" in sources else {}, missing)
    table = claims.judge_claims(study, scale, measured, printed, missing)
    every = label_contrasts(pd.concat(of.assign(metric=m) for m, of in contrasts.items()), study)
    table = table.merge(count_verdicts(next(iter(contrasts.values())), pairs), on="claim")
    depends = metrics.groupby("claim")["our_verdict"].nunique() > 1
    robust = depends.map({False: verdicts.ROBUST, True: verdicts.DEPENDS})
    tables = {
        "claims": table.assign(robust=table["claim"].map(robust.to_dict()).fillna("")),
        "contrasts": add_printed(every, study, printed),
        "metrics": metrics,
        "seeds": list_seed_differences(pairs),
    }
    return {kind: of.round(claims.ROUNDED) for kind, of in tables.items()}


def measure_by_metric(
    study: Study, sources: Tables, options: dict, wanted: pd.DataFrame
) -> tuple[Tables, dict[int, int]]:
    """Return what claims compare, by metric, and by claim how many comparisons lack a run.

    The first metric is that of the runs' protocols: `own` if they have several, "" without runs.
    """
    own = [*sources["runs"]["metric"].unique()] if "runs" in sources else [""]
    ways = list_ways(options) if "runs" in sources else None
    values, missing = verdicts.measure_by_way(study, sources, options.get("best"), ways, wanted)
    first = own[0] if len(own) == 1 else OWN
    return {way or first: measured for way, measured in values.items()}, missing


def list_ways(options: dict) -> list[str]:
    """Return in which ways runs are scored beside that of their protocols."""
    return [*dict.fromkeys((*METRICS, *listed(options.get("metrics"))))]


def compare_all(study: Study, values: pd.DataFrame, missing: dict[int, int]) -> pd.DataFrame:
    """Return a row per comparison of each claim, as the product `contrasts` has it."""
    parts = [
        verdicts.compare_claim(claim, values, missing[number]).assign(claim=number)
        for number, claim in verdicts.number_claims(study, None)
    ]
    table = pd.concat([part for part in parts if len(part)] or parts[:1])
    return table[["claim", *verdicts.COMPARED, *verdicts.JUDGED]]


def label_contrasts(contrasts: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Add a label to each comparison, which names what differs between those of a claim."""
    parts = [part for _, part in contrasts.groupby("claim", sort=False)] or [contrasts]
    labels = chain.from_iterable(label_comparisons(part, study) for part in parts)
    return pd.concat(parts).assign(label=[*labels])


def label_comparisons(part: pd.DataFrame, study: Study) -> list[str]:
    """Write what differs between the comparisons of a claim; all of it, if there is only one."""
    same = [name for name in verdicts.COMPARED if part[name].nunique() == 1]
    if len(same) == len(verdicts.COMPARED):
        same = ["protocol"]
    if part["over"].any():
        same = [name for name in same if name not in ("method", "over")]
    rows = part[verdicts.COMPARED].assign(**dict.fromkeys(same, "")).to_dict("records")
    return [claim_text.write_comparison(row, study) for row in rows]


def add_printed(contrasts: pd.DataFrame, study: Study, values: pd.DataFrame) -> pd.DataFrame:
    """Add to each comparison the difference of the paper's printed means, if it prints them."""
    numbered = verdicts.number_claims(study, None)
    parts = [
        verdicts.compute_differences(claim, values).assign(claim=number)
        for number, claim in numbered
    ]
    keys = ["claim", *(name for name in verdicts.COMPARED if name != "protocol")]
    table = pd.concat(parts).sort_values("protocol", kind="stable").drop_duplicates(keys)
    table = table[[*keys, "value"]].rename(columns={"value": "printed"})
    return contrasts.merge(table, how="left", on=keys).round({"printed": 4})


def count_verdicts(contrasts: pd.DataFrame, pairs: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Count, for each claim, comparisons by verdict, and pairs of runs of which one diverged."""
    table = pd.DataFrame({"comparisons": contrasts.groupby("claim").size()})
    for name, word in BY_VERDICT.items():
        table[name] = (contrasts["verdict"] == word).groupby(contrasts["claim"]).sum()
    table = table.reindex(pairs, fill_value=0)
    table["pairs_diverged"] = [
        (~np.isfinite(differences["value"])).sum() for differences in pairs.values()
    ]
    return table.rename_axis("claim").reset_index()


def judge_by_metric(
    study: Study, contrasts: dict[str, pd.DataFrame], missing: dict[int, int]
) -> pd.DataFrame:
    """Return our verdict on each claim with every metric, and the comparison that decides it."""
    rows = []
    for number, claim in verdicts.number_claims(study, None):
        for metric, table in contrasts.items():
            part = table[table["claim"] == number]
            said = verdicts.combine_verdicts(part, claim.get("share"), missing[number])
            facts = {"claim": number, "metric": metric, "our_verdict": said}
            rows.append(facts | verdicts.find_deciding(part, said))
    columns = ["claim", "metric", "our_verdict", *verdicts.EFFECT, "seeds"]
    return pd.DataFrame(rows, columns=columns)


def list_seed_differences(pairs: dict[int, pd.DataFrame]) -> pd.DataFrame:
    every = [table.assign(claim=number) for number, table in pairs.items()]
    table = pd.concat(every).rename(columns={"value": "difference"})
    order = ["claim", *verdicts.COMPARED, "seed"]
    return table.sort_values(["claim", "seed"], kind="stable")[[*order, "difference"]]


def draw_controls(name: str, scale: str, study: Study, read: Sources) -> Tables:
    """Draw the product `controls`; return no table if the study lacks it, or runs of placebos."""
    entry = study["products"].get("controls", {"from": {}})
    sources = read(entry)
    placebos = entry.get("with", {}).get("placebos", {}).values()
    methods = {*sources["runs"]["method"]} if "runs" in sources else set()
    if methods.isdisjoint(method for names in placebos for method in listed(names)):
        return {}
    options = entry["with"] | {"metrics": list_ways(entry["with"])}
    product = load_product(name, "controls", entry | {"with": options})
    return {"controls": draw_table(product, sources, study, scale)}


def draw_omissions(name: str, scale: str, study: Study, read: Sources) -> Tables:
    """Draw the product `omissions`; return no table if the study or its runs do not allow it."""
    entry = study["products"].get("omissions", {"from": {}})
    sources = read(entry)
    if not sources or sources.keys() != entry["from"].keys():
        return {}
    try:
        table = draw_table(load_product(name, "omissions", entry), sources, study, scale)
    except NothingToDrawError:
        return {}
    cells = zip(table["dataset"], table["partition"], strict=True)
    baseline = figures.label(study, entry["with"].get("baseline", omissions.BASELINE))
    named = [figures.write_setting(study, *cell) for cell in cells]
    return {"omissions": table.assign(cell=named, baseline=baseline)}
