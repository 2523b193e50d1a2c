"""Every table and figure of FedSLS, and what it shows, by hand: `fedgrid.report`, `.draw`."""

import base64
import re
import subprocess
import sys
import warnings
from functools import cache
from html import unescape
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml
from test_any_study import plotted

import made
from conftest import ENVIRONMENT, slow_but
from fedgrid.analysis import figures
from fedgrid.analysis import html as screen
from fedgrid.analysis.published import list_published_cells
from fedgrid.commands import draw
from fedgrid.report import _formats, _product, convergence, partitions
from fedgrid.report.fedsls import (
    ablation_static_dynamic,
    figure3,
    figure5,
    pilot_local_work,
    table1,
)
from fedgrid.runtime.names import UsageError, registered
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.products import product_module
from made import STUDIES
from written import blocks

STUDY = made.STUDY | {"claims": made.STUDY["claims"][:3]}  # to judge all of them takes its time
PRODUCTS = made.GRID.products("fedsls", "paper")
FIGURES = [name for name in PRODUCTS if "svg" in STUDY["products"][name]["formats"]]
OF_RUNS = [name for name in PRODUCTS if "runs" in STUDY["products"][name]["from"]]
# One of each kind; tests that draw the others in all their formats are slow.
KINDS = ("table1", "claims", "figure4", "convergence", "weights")


def module(name: str):
    return _product.load_product("fedsls", name, STUDY["products"].get(name, {}))


def drawn(name: str, given: dict[str, pd.DataFrame], study: dict = STUDY) -> pd.DataFrame:
    """The table of a product, from its sources."""
    return module(name).draw(**given, study=study, scale="quick")


@cache
def made_sources(name: str) -> dict[str, pd.DataFrame]:
    few = {"partition": ["dir0.5", "dir0.05"]} if name in FIGURES else {}  # panels take their time
    return made.sources(name, **few)


def sources(name: str) -> dict[str, pd.DataFrame]:
    """Three seeds of everything, fresh."""
    return {key: table.copy() for key, table in made_sources(name).items()}


def one_seed(name: str) -> dict[str, pd.DataFrame]:
    found = sources(name)
    return {key: of[of["seed"] == 0] if "seed" in of else of for key, of in found.items()}


@cache
def table_of(name: str) -> pd.DataFrame:
    return drawn(name, sources(name))


def written(name: str, table: pd.DataFrame, folder: Path, *forms: str) -> list[Path]:
    paths = [folder / f"{name}.{form}" for form in forms or STUDY["products"][name]["formats"]]
    _formats.write_product(module(name), table, STUDY, paths)
    return paths


def unordered(table: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of their names."""
    names = [n for n in table.columns if not pd.api.types.is_float_dtype(table[n])]
    return table.sort_values(names, key=lambda c: c.astype(str)).reset_index(drop=True)


# --- every product ---------------------------------------------------------------------------


def test_every_file_of_a_report_is_a_product_of_a_study():
    for study, about in STUDIES.items():
        assert set(registered(f"report/{study}")) <= set(about["products"])
    products = [about["products"].items() for about in STUDIES.values()]
    products.append(yaml.safe_load(blocks("guide/products.md", "yaml")[0].text)["products"].items())
    drawn_by = {about.get("draw", name) for one in products for name, about in one}
    assert set(registered("report")) <= drawn_by


def test_a_table_for_screens_has_labels_in_its_columns_and_marks_those_of_words():
    columns = {"method": ["fedavg", "fedsls"], "over": ["", "fedsl-f2"], "seeds_needed": [3, 5]}
    columns |= {"partition": ["dir0.5 to dir0.1"] * 2, "difference": ["+1.5 [0, 3], p=0.1", ""]}
    wide = pd.DataFrame(columns | {"says": ["1 of 2 holds", "none < all"]}, index=[1, 2])
    text = screen.write_table(wide, STUDY, lambda *_: False)
    found = re.findall(r'<t[hd]>(<span class="words">)?(.*?)(?:</span>)?</t[hd]>', text)
    heads, first, second = found[1:7], found[8:14], found[15:21]
    assert [head for marked, head in heads if not marked] == ["seeds needed", "difference"]
    words = [[unescape(cell) for marked, cell in row if marked] for row in (first, second)]
    step = "alpha=0.5 to alpha=0.1".replace("alpha", "\N{GREEK SMALL LETTER ALPHA}")
    assert words[0] == ["FedAvg", "", step, "1 of 2 holds"]
    assert words[1] == ["FedSLS", "FedSL f=2", step, "none < all"]


def test_another_process_writes_the_same_bytes(tmp_path):
    table = drawn("figure1", sources("figure1"))
    paths = written("figure1", table, tmp_path / "here")
    sources("figure1")["runs"].to_csv(tmp_path / "runs.csv", index=False)
    there = [tmp_path / "there" / path.name for path in paths]
    arguments = ["figure1", "--study", PACKAGE.parent / "studies/fedsls.yaml", "--scale", "quick"]
    command = [sys.executable, "-m", "fedgrid", "draw", *arguments]
    command += ["--sources", f"runs={tmp_path}/runs.csv", "--out", *there]
    environment = ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent), "PYTHONHASHSEED": "1"}
    subprocess.run([*map(str, command)], cwd=tmp_path, env=environment, check=True)
    for path, other in zip(paths, there, strict=True):
        assert path.read_bytes() == other.read_bytes(), path.name


@pytest.mark.parametrize("name", slow_but(KINDS, PRODUCTS))
def test_a_product_does_not_depend_on_the_order_of_the_rows(name):
    given = sources(name)
    for key in given if name != "resources" else ():  # whose rows are of layers in their order
        given[key] = given[key].sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(unordered(drawn(name, given)), unordered(table_of(name)))


def test_names_that_look_like_numbers_or_like_nothing_are_texts(tmp_path):
    text = "dataset,method,over,mean\n007,NA,,1.50\n2024,null,1e3,NA\n"
    (tmp_path / "a.csv").write_text(text)
    read = _product.read_table(tmp_path / "a.csv")
    assert read[["dataset", "method"]].to_numpy().tolist() == [["007", "NA"], ["2024", "null"]]
    assert (read["over"].isna().tolist(), read["over"][1]) == ([True, False], "1e3")
    assert (read["mean"][0], read["mean"].isna().tolist()) == (1.5, [False, True])
    assert [*read] == ["dataset", "method", "over", "mean"]


@pytest.mark.parametrize("name", ["A.tex", "A.html"])
def test_texts_are_written_in_utf_8_whatever_the_locale(name, tmp_path):
    made.runs({"fedavg": [55, 60, 50]}).to_csv(tmp_path / "runs.csv", index=False)
    command = [sys.executable, "-X", "utf8=0", "-m", "fedgrid", "draw", "table1", "--study", YAML]
    command += ["--sources", f"runs={tmp_path / 'runs.csv'}", "--out", tmp_path / name]
    where = {"PYTHONPATH": str(PACKAGE.parent), "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([*map(str, command)], env=ENVIRONMENT | where, check=True)
    assert "±" in (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", slow_but(KINDS, PRODUCTS))
def test_one_seed_is_enough_and_shows_no_missing_numbers(name, tmp_path):
    table = drawn(name, one_seed(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kinds = set(STUDY["products"][name]["formats"]) - {"pdf"}
        paths = written(name, table, tmp_path, *kinds)
    assert "nan" not in module(name).caption(table).lower()
    for path in paths:
        if path.suffix in (".html", ".tex", ".svg"):
            words = path.read_text().replace(">", " ").replace("<", " ").lower().split()
            assert not {"nan", "+nan", "nan,", "[nan,", "nan]"} & set(words), path.name
    if set(table.columns) >= {"seeds", "mean"} and name in OF_RUNS:
        assert "1 seed," in module(name).caption(table)


# --- draw: the command -----------------------------------------------------------------------


YAML = PACKAGE.parent / "studies/fedsls.yaml"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sources", "scores=a.csv"], "--sources lacks runs"),
        (["--sources", "runs=runs.csv", "run=runs.csv"], "no source .* `run`: did you mean runs"),
        (["--sources", "runs=nowhere.csv"], "nowhere.csv cannot be read as a table"),
        (["--sources", "runs=runs.csv", "--out", "a.gif"], "no format .* `.gif`"),
        (["--show", "runs.csv"], "runs.csv is another table: it has no column"),
    ],
)
def test_a_wrong_command_is_answered_in_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.run(50).to_csv("runs.csv", index=False)
    out = [] if "--out" in arguments or "--show" in arguments else ["--out", "a.csv"]
    with pytest.raises(UsageError, match=message):
        draw.main(["table1", "--study", str(YAML), *arguments, *out])
    assert [path.name for path in tmp_path.iterdir()] == ["runs.csv"]


def test_an_unknown_product_is_named():
    said = r"no product is called `figure11`: did you mean figure1 [^?]*\? If the product has anoth"
    with pytest.raises(UsageError, match=said):
        product_module("fedsls", "figure11", {})
    assert product_module("fedsls", "table1", {}) == "report.fedsls.table1"
    assert product_module("fedsls", "convergence", {}) == "report.convergence"
    assert product_module("another", "convergence", {}) == "report.convergence"
    assert product_module("fedlmd", "table1", {"draw": "comparison"}) == "report.comparison"


# --- table 1 ---------------------------------------------------------------------------------


def cells(*runs: pd.DataFrame, study: dict = STUDY) -> list[dict]:
    return table1.draw(pd.concat(runs), study, "quick").to_dict("records")


def test_a_cell_stands_beside_the_published_one():
    (found,) = cells(made.runs({"fedavg": [55, 60, 50]}, protocol="fedsls"))
    assert (found["published"], found["published_std"]) == (58.04, 1)
    assert found["difference"] == pytest.approx(55 - 58.04)
    (other,) = cells(made.runs({"fedavg": [55]}, dataset="digits"))
    assert np.isnan(other["published"])
    assert np.isnan(other["difference"])


def test_published_cells_are_read_by_their_columns():
    found = list_published_cells(STUDY).set_index(["method", "dataset", "partition"])
    assert len(found) == 9 * 12
    for cell, expected in {
        ("fedavg", "cifar10", "dir0.5"): (70.77, 0.1),
        ("moon", "cinic10", "dir0.05"): (40.54, 1.3),
        ("feddecorr", "tinyimagenet", "dir0.05"): (58.29, 0.18),
        ("fedsl-f8", "tinyimagenet", "dir0.05"): (56.85, 0.4),
    }.items():
        assert tuple(found.loc[cell, ["published", "published_std"]]) == expected
    assert len(list_published_cells({})) == 0


def test_protocols_that_share_a_dataset_are_in_the_heading():
    runs = pd.concat(made.run(50, protocol=p) for p in ("short", "long"))
    shown = table1.wide(table1.draw(runs, STUDY, "quick"))
    assert shown.columns.names == ["protocol", "dataset", "partition"]
    assert shown.columns.get_level_values(0).tolist() == ["short", "long"]


# --- figure 5 --------------------------------------------------------------------------------


def test_the_captions_of_figures_3_and_5_say_what_each_autoencoder_explains():
    scores = made.fidelity_scores(seeds=2)
    f8 = (scores["encoder"] == "autoencoder") & (scores["layer"] == "f8")
    scores.loc[f8, "explained"] = scores.loc[f8, "seed"].map({0: 0.9, 1: -0.001})
    said = figure5.caption(figure5.draw(scores, STUDY, "quick"))
    assert "autoencoder-f4 0.25, autoencoder-f8 0.00 to 0.90" in said
    assert "saliency-input" not in said
    assert "autoencoder-f8 0.25" in figure3.caption(figure3.draw(made.examples(), STUDY, "quick"))


# --- ablations -------------------------------------------------------------------------------


def timed(method: str, seconds: float, seed: int = 0, resumed_at: int = 0) -> pd.DataFrame:
    names = made.NAMES | made.SUMMED | {"method": method, "seed": seed}
    return pd.DataFrame([names | {"seconds": seconds, "rounds_done": 10, "resumed_at": resumed_at}])


def encoded(seconds: float, pretrain: float, seed: int = 0) -> pd.DataFrame:
    took = {"seconds": seconds, "pretrain_seconds": pretrain}
    return pd.DataFrame([made.NAMES | made.SUMMED | {"seed": seed} | took])


def test_seconds_of_static_and_dynamic_weights_by_hand():
    runs = made.runs({"fedsls": [60, 61], "fedsls_dynamic": [60, 62]})
    seconds = pd.concat([
        timed("fedsls", 10),
        timed("fedsls", 8, seed=1, resumed_at=6),  # the last 4 of 10 rounds: 20 for all
        timed("fedsls_dynamic", 100),
        timed("fedsls_dynamic", 120, seed=1),
    ])  # fmt: skip
    encoding = pd.concat([encoded(2, 3), encoded(4, 5, seed=1)])  # 5 and 9 before the first round
    table = ablation_static_dynamic.draw(runs, seconds, encoding, STUDY, "quick")
    found = table.set_index("method")[["training_seconds", "once_seconds", "total_seconds"]]
    assert found.loc["fedsls"].tolist() == [15, 7, 22]
    assert found.loc["fedsls_dynamic"].tolist() == [110, 0, 110]
    shown = ablation_static_dynamic.wide(table)["seconds, rounds + before"]
    assert shown.iloc[:, 0].tolist() == ["15.0 + 7.0", "110.0 + 0.0"]
    differences = table.set_index("method")["difference"].to_dict()
    assert differences == {"fedsls": pytest.approx(np.nan, nan_ok=True), "fedsls_dynamic": 0.5}


# --- the pilot -------------------------------------------------------------------------------


def test_the_reading_that_is_nearer_to_the_published_row_is_told():
    readings = {"steps": [57, 59], "epochs": [54, 56]}  # published: 58.04
    runs = pd.concat(made.runs({"fedavg": of}, protocol=p) for p, of in readings.items())
    table = pilot_local_work.draw(runs, STUDY, "paper").set_index("protocol")
    own = table.loc[[*readings]]
    assert own["difference"].tolist() == pytest.approx([-0.04, -3.04])
    assert own["nearer"].tolist() == [True, False]
    shown = pilot_local_work.wide(table.reset_index()).iloc[:, 0].to_dict()
    assert shown == {
        "steps": "58.00 ± 1.41", "epochs": "55.00 ± 1.41", "published": "58.04 ± 1.00"
    }  # fmt: skip


# --- convergence -----------------------------------------------------------------------------


def test_curves_go_from_left_to_right_whatever_the_order_of_the_rows():
    runs = made.evaluations({0: 0.1, 5: 0.4, 10: 0.5}).iloc[::-1]
    (axes,) = plotted(convergence, convergence.draw(runs, STUDY, "quick"), STUDY).axes
    assert axes.lines[0].get_xdata().tolist() == [0, 5, 10]


# --- the style of all figures ----------------------------------------------------------------


# Okabe and Ito's, which people with any colour vision can tell apart.
SAFE = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"}


def test_the_colours_are_those_for_all_kinds_of_colour_vision():
    cycle = matplotlib.rc_params_from_file(PACKAGE / "report/paper.mplstyle")["axes.prop_cycle"]
    colours = {f"#{look['color'].lstrip('#')}".upper() for look in cycle}
    assert colours <= SAFE
    assert "#F0E442" not in colours  # yellow lines are hard to see on white


def test_two_protocols_of_a_method_have_names_of_their_own():
    runs = pd.concat(made.runs({"fedavg": [50, 51]}, protocol=p) for p in ("short", "long"))
    (axes,) = plotted(convergence, convergence.draw(runs, STUDY, "quick"), STUDY).axes
    assert {line.get_label() for line in axes.lines} == {"FedAvg (short)", "FedAvg (long)"}


# --- sizes of files --------------------------------------------------------------------------


def everywhere(clients: int, classes: int) -> pd.DataFrame:
    """Every client has samples of every class, in three partitions; their numbers differ."""
    cells = product(("dir0.5", "dir0.1", "dir0.05"), range(clients), range(classes))
    counts = pd.DataFrame(list(cells), columns=["partition", "client", "class"])
    samples = np.random.default_rng(0).geometric(0.05, len(counts))
    about = {"dataset": "cifar100", "seed": 0, "clients": clients, "recipe": "classwise"}
    return counts.assign(samples=samples, **about)


def test_the_dots_of_many_clients_and_classes_are_pixels(tmp_path):
    table = partitions.draw(everywhere(100, 100), STUDY, "paper")
    paths = written("figure4", table, tmp_path / "a", "pdf", "svg")
    (again,) = written("figure4", table, tmp_path / "b", "svg")
    assert all(path.stat().st_size < 1_500_000 for path in paths)
    assert paths[1].read_bytes() == again.read_bytes()
    drawing = ElementTree.fromstring(paths[1].read_bytes())
    images = [e for e in drawing.iter() if e.tag.endswith("}image")]
    assert len(images) == 3
    (content,) = {value for name, value in images[0].items() if name.endswith("href")}
    png = base64.b64decode(content.partition("base64,")[2])
    wide = int.from_bytes(png[16:20], "big")  # PNG's header
    assert wide / (float(images[0].get("width")) / 72) == pytest.approx(
        figures.RESOLUTION, rel=0.02
    )
    said = "".join(drawing.itertext())
    title = "CIFAR-100, \N{GREEK SMALL LETTER ALPHA}=0.05"
    assert all(word in said for word in ("client", "class", "samples", title))


def test_few_dots_are_drawn_as_lines(tmp_path):
    for few, name in ((True, "few"), (False, "many")):
        table = partitions.draw(everywhere(33 + (not few), 10), STUDY, "quick")
        assert (len(table) <= partitions.MANY) == few
        (path,) = written("figure4", table, tmp_path / name, "svg")
        assert ("<image" not in path.read_text()) == few


# --- a part of a grid that leaves nothing to draw --------------------------------------------


@pytest.mark.parametrize(
    ("study", "product", "formats", "said"),
    [
        ("fedsls", "figure1", ("csv", "svg", "pdf"), "runs of fedsls and of fedavg or fedau, but"),
        ("normalization", "table1", ("csv", "tex", "html"), "such as fedavg and fedavg[+]norm"),
        ("normalization", "leverage", ("csv", "svg"), "such as fedavg and fedavg[+]norm"),
        ("normalization", "figure2", ("csv", "svg"), "such as fedavg and fedavg[+]norm"),
    ],
)
def test_a_product_without_its_runs_says_which_it_needs(
    study, product, formats, said, tmp_path, capsys
):
    made.runs({"fedavg": [50, 51]}).to_csv(tmp_path / "runs.csv", index=False)
    (tmp_path / "settings.csv").write_text("kind,name,dataset,of,field,value\n")
    entry = STUDIES[study]["products"][product]["from"]
    sources = [f"{name}={tmp_path / name}.csv" for name in entry]
    paths = [tmp_path / f"made.{form}" for form in formats]
    arguments = [product, "--study", study, "--sources", *sources]
    draw.main([*arguments, "--out", *map(str, paths)])
    csv, *others = (path.read_text(errors="replace") for path in paths)
    assert re.search(f"^nothing\n.*{said}", csv)
    for text in others[:1]:
        assert "There is nothing to draw" in text
    draw.main([*arguments, "--show", str(paths[0])])
    assert re.search(f"There is nothing to draw: .*{said}", capsys.readouterr().out)
