"""Names and settings as people have them, in figures and tables: `fedgrid.report._formats`."""

import copy
import subprocess
import sys
import warnings

import matplotlib
import pandas as pd
import pytest

import made
from conftest import ENVIRONMENT
from fedgrid.analysis import figures, latex, readable
from fedgrid.report import _formats, _product
from fedgrid.runtime.places import PACKAGE

ODD = r"$x$_1^2 %&#~\{a} $"
FAR = "\u8fc7\u62df\u5408"  # Chinese
SETTINGS = {"text.usetex": True, "savefig.bbox": "tight", "font.size": 20, "axes.grid": False}


def write(name: str, folder, study: dict, *forms: str, product: str = "convergence"):
    """Write a product of two methods; return its files by their suffix."""
    runs = made.runs({"fedavg": [50, 60], "fedprox": [55, 56]})
    loaded = _product.load_product("mine", product, {})
    table = _product.draw_table(loaded, {"runs": runs}, study, "quick")
    paths = [folder / f"{name}.{form}" for form in forms]
    _formats.write_product(loaded, made.read(table), study, paths)
    return {path.suffix: path.read_bytes() for path in paths}


def test_no_setting_of_the_process_changes_a_figure(tmp_path):
    plain = write("a", tmp_path, {}, "svg", "png")
    with matplotlib.rc_context(SETTINGS):
        before = copy.copy(matplotlib.rcParams)
        assert write("a", tmp_path, {}, "svg", "png") == plain
        assert matplotlib.rcParams == before


@pytest.mark.parametrize("backend", ["module://of_a_notebook", "nonsense"])
def test_no_setting_of_a_users_files_or_environment_ends_a_figure(backend, tmp_path):
    made.runs({"fedavg": [50, 60]}).to_csv(tmp_path / "runs.csv", index=False)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/matplotlibrc").write_text("text.usetex: True\nsavefig.bbox: tight\n")
    words = ["draw", "convergence", "--study", "fedsls", "--sources", "runs=runs.csv", "--out"]
    environment = ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)}
    named = {"MPLBACKEND": backend, "MATPLOTLIBRC": str(tmp_path / "own/matplotlibrc")}
    for out, more in {"a.svg": {}, "b.svg": named}.items():
        command = [sys.executable, "-m", "fedgrid", *words, tmp_path / out]
        subprocess.run(command, cwd=tmp_path, env=environment | more, check=True)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_odd_letters_are_literal_in_figures_and_tables(tmp_path):
    study = {"labels": {"fedavg": ODD, "digits": "$", "cifar10": "a $b$ c $"}}
    found = write("a", tmp_path, study, "svg")[".svg"].decode()
    assert ODD.replace("&", "&amp;") in found
    assert "a $b$ c $" in found
    table = write("a", tmp_path, study, "tex", product="table")[".tex"].decode()
    assert latex.escape_letters(ODD) in table


def test_a_formula_and_the_powers_of_an_axis_are_still_set():
    with figures.use_style():
        figure, ((axes,),) = figures.panels(1, 1)
        axes.plot([1, 2], [1, 1e4])
        axes.set_yscale("log")
        figures.label_rows([axes], "$R_k$", formula=True)
        axes.set_title("$R_k$")
        figures.prepare(figure)
        figure.draw_without_rendering()
        shown = [tick.label1 for tick in axes.yaxis.get_major_ticks() if tick.label1.get_text()]
    assert "$" in shown[0].get_text()
    assert all(text.get_parse_math() for text in (*shown, axes.yaxis.label))
    assert not axes.title.get_parse_math()


def test_letters_that_no_font_has_are_told_in_a_sentence(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(figures, "read_letters", lambda path: {*map(chr, range(0x250))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write("a", tmp_path, {"labels": {"fedavg": FAR}}, "png")
    (said,) = caplog.messages
    assert "".join(sorted(FAR)) in said


def test_letters_that_another_font_has_are_drawn_with_it(monkeypatch):
    """A stand-in: a font that is on every machine is said to have what the first font lacks."""
    has = {"DejaVuSerif.ttf": {*FAR}}
    read = lambda path: has.get(path.rpartition("/")[2], set())  # noqa: E731
    monkeypatch.setattr(figures, "read_letters", read)
    assert figures.find_fonts(FAR)["font.family"] == ["DejaVu Sans", "DejaVu Serif"]
    assert figures.find_fonts("abc") == {}


def test_a_table_says_that_pdflatex_cannot_print_its_letters(tmp_path, caplog):
    found = write("a", tmp_path, {"labels": {"fedavg": FAR}}, "tex", product="table")[".tex"]
    assert caplog.messages
    first, second, *_ = found.decode().splitlines()
    assert "lualatex" in second
    assert first.startswith("% ")
    caplog.clear()
    labels = {"fedavg": "\u00c9lan \u00b1 \u03c0\u2013"}
    accents = write("a", tmp_path, {"labels": labels}, "tex", product="table")
    assert not caplog.messages
    assert "lualatex" not in accents[".tex"].decode()


@pytest.mark.parametrize("product", ["comparison", "table", "confusion"])
def test_methods_with_one_label_are_told_apart(product):
    study = {"labels": {"fedavg": "Ours", "fedprox": "Ours", "cifar10": "CIFAR-10"}}
    sources = {"runs": made.runs({"fedavg": [50, 60], "fedprox": [55, 56]})}
    if product == "confusion":
        counted = {"class": [0, 1], "round": 10, "of_class_0": [1, 0], "of_class_1": [0, 1]}
        rows = pd.DataFrame(counted).assign(predicted=1, **made.NAMES | made.SUMMED)
        rows = pd.concat(rows.assign(method=name) for name in ("fedavg", "fedprox"))
        sources = {"predictions": rows}
    loaded = _product.load_product("mine", product, {})
    table = _product.draw_table(loaded, sources, study, "quick")
    shown = loaded.wide(table).to_csv()
    assert "Ours (fedavg)" in shown
    assert "Ours (fedprox)" in shown


def test_a_method_has_the_name_in_its_file_unless_the_study_has_a_label(monkeypatch):
    stated = {("methods.fedavgm", "NAME"): "FedAvgM"}
    read = lambda module, name, default: stated.get((module, name), default)  # noqa: E731
    monkeypatch.setattr(figures.source, "literal", read)
    assert figures.label({}, "fedavgm", "method") == "FedAvgM"
    assert readable.write_name({}, "fedavgm-beta0.5") == "FedAvgM (beta=0.5)"
    assert figures.label({"labels": {"fedavgm": "momentum"}}, "fedavgm") == "momentum"
    assert figures.label({}, "fedavgm", "dataset") == "fedavgm"
