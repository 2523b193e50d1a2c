"""Studies and configurations that are written wrong: one sentence, with the file, for each."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from conftest import ENVIRONMENT, answers, said
from fedgrid.commands import draw
from fedgrid.runtime import names, places
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.plain_yaml import FastLoader, Loader
from fedgrid.store import deletable
from fedgrid.study.given import read_given
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.reading import (
    add_products,
    check_schema,
    read_studies,
    study_files,
    use_studies,
)

BLOCK = "{protocol: short, dataset: digits, partition: [dir0.1], method: [fedavg, prox], seed: [0]}"
STUDY = f"""title: mine
protocols:
  short: {{clients: 10, rounds: 3}}
variants:
  prox: {{fedprox: {{mu: 0.5}}}}
scales:
  quick:
    grids:
      main:
        - {BLOCK}
products:
  convergence: {{from: {{runs: runs/main}}, formats: [csv, svg], category: Results}}
published:
  table1: {{columns: [[digits, dir0.1]], rows: {{fedavg: [[90, 1]]}}}}
claims:
  - {{says: x, section: "1", method: prox, over: fedavg, least: 0}}
labels: {{digits: Digits}}
"""
SHORT, ROWS = "{clients: 10, rounds: 3}", "{fedavg: [[90, 1]]}"
HEAD = "method,dataset,partition,protocol,seed,accuracy"


def read(folder, text: str | bytes) -> Grid:
    """The grid of a folder with this study alone, up to what products depend on."""
    (folder / "mine.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    studies = {"mine": read_studies(folder).named("mine")}
    made = Grid(studies)
    json.dumps(studies, sort_keys=True)
    return made


@pytest.mark.parametrize(
    "text",
    [
        STUDY,
        f"\ufeff{STUDY}",
        STUDY.replace("\n", "\r\n"),
        STUDY.replace(
            f"short: {SHORT}", f"a: &a {SHORT}\n  b: &b {{<<: *a}}\n  short: {{<<: *b, lr: 1}}"
        ),
    ],
    ids=["plain", "byte-order mark", "Windows", "merged"],
)
def test_a_study_may_be_written_in_these_ways(text, tmp_path):
    assert len(read(tmp_path, text).runs("mine", "quick", "main")) == 2


WRONG = {
    "no YAML": "title: [x",
    "no text": b"\x00\xff\xfe",
    "a misspelt key": STUDY.replace("title:", "titel:"),
    "a misspelt base": STUDY.replace("{clients: 10", "{base: shrot, clients: 10"),
    "an unknown method": STUDY.replace("[fedavg, prox]", "[nobody]"),
    "a wrong claim": STUDY.replace("over: fedavg", "over: nobody"),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_study_with_a_mistake_ends_only_what_uses_it(text, tmp_path):
    renamed = text if isinstance(text, bytes) else text.replace("short", "other").encode()
    (tmp_path / "mine.yaml").write_text(STUDY)
    (tmp_path / "wrong.yaml").write_bytes(renamed)
    told: list[str] = []
    grid = use_studies(read_studies(tmp_path), Grid, "mine", told.append)
    assert [*grid.studies] == ["mine"]
    assert grid.runs("mine", "quick", "main") == read(tmp_path, STUDY).runs("mine", "quick", "main")
    (sentence,) = told
    assert sentence.startswith("the study wrong is left out, because it has a mistake: wrong.yaml")
    for use in (lambda: grid.studies.named("wrong"), lambda: grid.runs("wrong", "quick", "main")):
        with pytest.raises(UsageError, match=r"wrong\.yaml"):
            use()
    for look_up in (grid.protocol, lambda name: grid.method(name, "digits")):
        with pytest.raises(UsageError, match=r"is called .* may be in wrong"):
            look_up("xyz")
    with pytest.raises(UsageError, match=r"wrong\.yaml"):
        use_studies(read_studies(tmp_path), Grid, "wrong").runs("wrong", "quick", "main")


def test_a_block_without_seeds_and_an_unknown_study_are_refused_where_they_stand():
    block = dict.fromkeys(("protocol", "dataset", "partition", "method"), "a") | {"seed": []}
    with pytest.raises(UsageError, match=r"^mine: seed: \[\] "):
        check_schema("mine", block, "study", "block")
    with pytest.raises(UsageError, match=r"^the configuration: no study is called `my`"):
        add_products({"mine": {"products": {}}}, {"study": "my"})


@pytest.mark.parametrize("name", ["a:b", "this and that", "-x"])
def test_the_name_of_a_study_is_like_other_names(name, tmp_path):
    (tmp_path / f"{name}.yaml").write_text(STUDY)
    assert "is not a name: letters, digits" in str(read_studies(tmp_path).left_out[name])


def test_studies_that_give_a_name_two_meanings_are_left_out_but_for_the_asked_one(tmp_path):
    (tmp_path / "a.yaml").write_text(STUDY.replace("rounds: 3", "rounds: 4"))
    (tmp_path / "mine.yaml").write_text(STUDY)
    for asked, kept in [("mine", ["mine"]), ("a", ["a"]), ("", [])]:
        told: list[str] = []
        grid = use_studies(read_studies(tmp_path), Grid, asked, told.append)
        assert [*grid.studies] == kept
        assert len(told) == 2 - len(kept)
        assert all("protocols.short already means something else in a.yaml" in t for t in told)
    with pytest.raises(UsageError, match="may be in a and mine"):
        grid.protocol("short")
    for config in ({"protocols": {"long": {"base": "shrot"}}}, {"protocols": {"short": {}}}):
        with pytest.raises(UsageError, match=r"^the configuration: protocols\."):
            Grid({"mine": read_studies(tmp_path)["mine"]}, config)


def test_nothing_is_cleaned_while_a_study_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "wrong.yaml").write_text("title: [x")
    monkeypatch.setattr(deletable.reading, "read_studies", lambda: read_studies(tmp_path))
    with pytest.raises(UsageError, match=r"wrong\.yaml"):
        deletable.find_wanted([])


@pytest.mark.parametrize("path", study_files(), ids=lambda path: path.stem)
def test_both_parsers_read_the_same(path):
    text = path.read_bytes()
    assert yaml.load(text, FastLoader) == yaml.load(text, Loader)


@pytest.mark.parametrize("loader", [FastLoader, Loader])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("5e-4", 5e-4), ("1e5", 1e5), ("-.5", -0.5), ("1.", 1.0), ("5.0E-4", 5e-4)),
        *(("0", 0), ("-3", -3), ("+4", 4), (".inf", float("inf")), ("true", True), ("~", None)),
        *(
            (word, word)
            for word in ("2023_01", "1_000", "08", "010", "0x10", "12:30", "2020-01-01")
        ),
        *((word, word) for word in ("yes", "no", "on", "off", "y", "1.2.3", "e5", "+")),
    ],
)
def test_a_word_is_a_number_only_if_it_looks_like_one_to_everybody(text, value, loader):
    (found,) = yaml.load(f"- {text}", loader)
    assert (type(found), found) == (type(value), value)


def test_names_that_look_like_numbers_are_names_and_numbers_are_numbers_everywhere(tmp_path):
    text = STUDY.replace("short", "2023_01").replace("rounds: 3", "rounds: 3, weight_decay: 5e-4")
    made = read(tmp_path, text.replace("mu: 0.5", "mu: 5e-1"))
    assert made.protocol("2023_01")["weight_decay"] == 5e-4
    assert made.method("prox", "digits") == {"fedprox": {"mu": 0.5}}
    path = tmp_path / "config.yaml"
    path.write_text("protocols: {08: {base: fedsls-quick, weight_decay: 5e-4}}")
    assert read_grid(path).protocol("08")["weight_decay"] == 5e-4


def test_a_configuration_that_snakemake_read_is_read_as_it_is_written(tmp_path):
    """Snakemake reads files by YAML 1.1, and leaves what is inside of --config as text."""
    text = "protocols: {2023_01: {base: a, weight_decay: 5e-4}}\nmethod: 12:30\nseed: 1\n"
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    theirs = yaml.safe_load(text)
    assert theirs["method"] == 750
    given = theirs | {"seed": 2, "variants": {"v": {"fedprox": {"mu": "5e-1"}}}, "kept": "false"}
    assert read_given(given, {path: theirs}) == {
        "protocols": {"2023_01": {"base": "a", "weight_decay": 5e-4}},
        "variants": {"v": {"fedprox": {"mu": 0.5}}},
        **{"method": "12:30", "seed": 2, "kept": False},
    }
    flags = {"kept": "True", "warm": "maybe", "study": "true"}
    assert read_given(flags, {}) == flags | {"kept": True}
    path.write_text("protocols: {a: {learning_rate: 1}}")
    assert said(read_given, {}, {path: {}}) == (
        "mine.yaml: protocols.a: no key is called `learning_rate`: did you mean lr?"
    )


def test_libyaml_need_not_be_there(tmp_path):
    (tmp_path / "mine.yaml").write_text(STUDY)
    program = (
        "import sys, yaml; del yaml.CSafeLoader; from fedgrid.study.reading import *; "
        "from fedgrid.runtime.plain_yaml import FASTEST; "
        "print(*read_studies(Path(sys.argv[1])), FASTEST.__name__)"
    )
    command, where = [sys.executable, "-c", program, tmp_path], {"PYTHONPATH": "workflow"}
    done = subprocess.run(command, env=ENVIRONMENT | where, capture_output=True, text=True)
    assert done.stdout.split() == ["mine", "SafeLoader"]


def test_hidden_files_are_no_studies_and_no_modules(tmp_path, monkeypatch):
    """Such as a lock of Emacs, which is a link to nothing, and what macOS adds to a file."""
    folder = tmp_path / "methods"
    folder.mkdir()
    for name in (".#mine.yaml", ".#loop.py"):
        (folder / name).symlink_to("someone@somewhere.123")
    for name in ("._mine.yaml", "._loop.py"):
        (folder / name).write_bytes(b"\x00\x05\x16\x07")
    (folder / "mine.yaml").write_text(STUDY)
    (folder / "loop.py").touch()
    assert [*read_studies(folder)] == ["mine"]
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    assert names.registered("methods") == ["loop"]


def test_what_a_caller_does_with_a_protocol_changes_no_other(tmp_path):
    grid = read(tmp_path, STUDY)
    for find in (grid.protocol, grid.cells):
        find("short").clear()
        assert find("short")


# What libyaml says of a mistake is not our wording: of these, words are enough.
UNREADABLE = [
    (STUDY, f"{STUDY}---\na: 1", "expected a single document"),
    (STUDY, STUDY.replace("mine", "größe").encode("latin-1"), "#x00f6"),
    ("mine", "mi\0ne", "#x0000"),
    ("mine", "!!python/name:os.system", "could not determine"),
    ("  short", "\tshort", r"'\\t'.* line 3"),
    (SHORT, "{<<: fast}", "merging"),
    (SHORT, "{<<: *fast}", "undefined alias"),
    ("rounds: 3", "rounds: 3, rounds: 4", "key `rounds` twice line 3"),
    ("labels: {", "labels: {}\nlabels: {", "key `labels` twice"),
]


def changed(old: str, new: str | bytes) -> str | bytes:
    assert old in STUDY
    return new if old == STUDY else STUDY.replace(old, new)


@pytest.mark.parametrize(("old", "new", "message"), UNREADABLE)
def test_a_study_that_is_not_yaml_is_answered_in_one_sentence(old, new, message, tmp_path):
    assert re.search(f"mine.yaml is not YAML: .*{message}", said(read, tmp_path, changed(old, new)))


WRONG = [
    (STUDY, ""),
    (STUDY, "- a"),
    (STUDY, "42"),
    ("mine", "!!timestamp 2020-01-01"),
    (SHORT, "&a {base: *a}"),
    ("title: mine\n", ""),
    (f"  short: {SHORT}\n", ""),
    (SHORT, "fast"),
    ("short: {", "1: {"),
    ("short: {", "true: {"),
    ("rounds: 3", "rounds: {a: 1}"),
    ("{mu: 0.5}", ""),
    (BLOCK, ""),
    (f"- {BLOCK}", BLOCK),
    ("seed: [0]", "seed: [[0]]"),
    ("{runs: runs/main}", "[runs]"),
    ("[csv, svg]", "[csv, csv]"),
    ("convergence: {", "claims: {"),
    (ROWS, f"{ROWS}, speedups: {{fedavg: [1, 2]}}"),
    (ROWS, f"{ROWS}, speedups: {{fedafg: [1]}}"),
    (ROWS, "{fedavg: [high]}"),
    ("table1:", "1:"),
    ("table1:", "other: {1: 2, a: 3}\n  table1:"),
    ("table1:", "other: {rows: }\n  table1:"),
    ("table1:", "other: {rows: abc}\n  table1:"),
    ("least: 0", "least: .nan"),
    ("least: 0", "least: .inf"),
    ("over: fedavg", "over: {prox: fedavg, moon: fedavg}"),
    ("method: prox, over: fedavg", "method: [prox, fedavg], over: {prox: fedavg}"),
    ("over: fedavg", "over: {prox: 5}"),
    ("over: fedavg", "over: 5"),
    ("{digits: Digits}", "{digits: 5}"),
    ("{digits: Digits}", "[digits]"),
    ("labels:", "reference: 5\nlabels:"),
]
REFERENCES = [  # the text of runs.csv
    "a,b\n1,2",
    f"{HEAD}\nfedavg,digits",
    f"{HEAD}\n\nfedavg,digits,dir0.1,a,0,50,60",
    f"{HEAD}\nfedavg,digits,dir0.1,a,0,high",
]
UNREAD = [f"{HEAD}\n{'a' * 200_000},digits".encode(), f"{HEAD}\nfedävg,digits".encode("latin-1")]


def test_a_wrong_study_is_answered_in_one_sentence(tmp_path, golden):
    def refer(table: str) -> None:
        (tmp_path / "runs.csv").write_text(table)
        read(tmp_path, f"{STUDY}reference: runs.csv")

    wrong = answers(lambda mistake: read(tmp_path, changed(*mistake)), WRONG, "mine.yaml")
    golden("studies", wrong | answers(refer, REFERENCES, "mine.yaml"))


def test_a_reference_is_read_with_a_byte_order_mark_and_named_if_it_cannot_be_read(tmp_path):
    (tmp_path / "runs.csv").write_text(f"\ufeff{HEAD}\r\nfedavg,digits,dir0.1,short,0,50\r\n")
    made = read(tmp_path, f"{STUDY}reference: runs.csv")
    assert made.studies["mine"]["reference"][0]["method"] == "fedavg"
    assert said(read, tmp_path, "[" * 5000).startswith("mine.yaml holds something ")
    for content in UNREAD:
        (tmp_path / "runs.csv").write_bytes(content)
        answer = said(read, tmp_path, f"{STUDY}reference: runs.csv")
        assert answer.startswith("mine.yaml: the reference runs.csv cannot be read")
    missing = said(read, tmp_path, f"{STUDY}reference: none.csv")
    assert missing.startswith("mine.yaml: the reference none.csv cannot be read")


def test_a_wrong_study_is_named_when_a_product_is_drawn(tmp_path):
    (tmp_path / "mine.yaml").write_text(STUDY.replace("products:", "product:"))
    wanted = ["convergence", "--study", f"{tmp_path}/mine.yaml", "--out", "x.csv"]
    assert "no key is called `product`: did you mean products" in said(draw.main, wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", r"config.yaml: \['a'\] is not `key: value` pairs"),
        ("protocols: [a]", "config.yaml: protocols: .* is not `key: value` pairs"),
        ("protocols: {short: 3}", "config.yaml: protocols.short: 3 is not `key: value` pairs"),
        ("protocols: {mine: {round: 3}}", "config.yaml: protocols.mine: .* did you mean rounds"),
        ("variants: {mine: fedprox}", "config.yaml: variants.mine: 'fedprox' is not"),
        ("variants: {mine: ", "config.yaml is not YAML"),
        ("variants: {5: {}}", "config.yaml: variants: the key 5 is not text"),
        ("method: größe".encode("latin-1"), "config.yaml is not YAML"),
    ],
)
def test_a_wrong_configuration_of_a_command_is_answered_in_one_sentence(text, message, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert re.search(message, said(read_grid, path))
    assert re.search("nowhere.yaml cannot be read", said(read_grid, tmp_path / "nowhere.yaml"))


# -- a scale without some of the grids -----------------------------------------------------------

FIDELITY = read_studies()["fedsls"]["scales"]["quick"]["fidelity"]
SMALLER = STUDY.replace(
    "products:",
    f"""  small:
    grids:
      part:
        - {BLOCK}
products:
  claims: {{from: {{runs: runs/main, scores: fidelity/scores}}, formats: [csv]}}
  part: {{draw: table, from: {{runs: runs/part}}, formats: [csv]}}
  printed: {{from: {{}}, formats: [csv]}}""",
).replace(
    "    grids:\n      main:", f"    fidelity: {json.dumps(FIDELITY)}\n    grids:\n      main:"
)


def test_a_scale_has_those_products_whose_sources_it_has(tmp_path):
    grid = read(tmp_path, SMALLER)
    assert grid.products("mine", "quick") == ["claims", "printed", "convergence"]
    assert grid.products("mine", "small") == ["part", "printed"]
    assert "part of mine is not drawn at the quick scale, which has no `part`" in said(
        grid.check_product, "mine", "quick", "part"
    )
    # a source without which a product can be drawn may be missing
    grid = read(tmp_path, SMALLER.replace("runs/main, scores", "runs/part, scores"))
    assert grid.sources("mine", "small", "claims") == {"runs": "runs/part"}
    assert grid.sources("mine", "quick", "claims") == {"scores": "fidelity/scores"}
    # a product that needs all its sources is not drawn from some
    given = "from: {runs: runs/main, settings: settings/part}, with: {over: lr}"
    both = f"{{draw: tuned, {given}, formats: [csv]}}"
    grid = read(tmp_path, SMALLER.replace("  printed:", f"  tuned: {both}\n  printed:"))
    assert "tuned" not in grid.products("mine", "quick") + grid.products("mine", "small")
