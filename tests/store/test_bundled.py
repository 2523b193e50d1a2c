"""What a bundle of a paper has, and what a review finds in it."""

import json
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

import pytest

from fedgrid.commands import bundle, review
from fedgrid.runtime.names import UsageError
from fedgrid.store import bundled

PAPER = {
    "Snakefile": "", "config.yaml": "paper: mine\nlog: wandb\n", "README.md": "# Mine\n",
    "notes.txt": "own",
    "methods/pull.py": "", "methods/__pycache__/pull.cpython-311.pyc": "", "tests/test_pull.py": "",
    "studies/mine.yaml": "", "studies/reference/cited.csv": "", ".github/workflows/test.yml": "",
    "studies/reference/mine/small/index.csv": "id\n", "studies/reference/mine/paper/index.csv": "",
    "studies/reference/other/small/index.csv": "", "results/table.csv": "", "data/digits.npy": "",
    "studies/chosen/mine/small/tuning.yaml": "", "studies/chosen/mine/paper/tuning.yaml": "",
    "methods/pull.py~": "", "methods/raw.npz": "", "rules/own.smk": "",
}  # fmt: skip
PRODUCTS = {"table.csv": "method,mean\npull,80.0\n", "table.html": "<p>80.0</p>"}


@pytest.fixture
def paper(tmp_path) -> Path:
    """The folder of a paper."""
    for name, text in PAPER.items():
        path = tmp_path / "paper" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "paper/methods/link.py").symlink_to(tmp_path / "paper/notes.txt")
    return tmp_path / "paper"


@pytest.fixture
def drawn(monkeypatch) -> dict[str, str]:
    """What Snakemake draws."""
    texts = dict(PRODUCTS)

    def draw(folder, study, scale, products, cores):
        (folder / "results").mkdir(exist_ok=True)
        for name in products:
            (folder / "results" / name).write_text(texts[name])

    monkeypatch.setattr(bundled, "draw", draw)
    return texts


@pytest.fixture
def archive(paper, tmp_path, drawn) -> Path:
    """A bundle of the paper's study at the scale small."""
    folder = tmp_path / "mine-small"
    folder.mkdir()
    bundled.fill(folder, paper, "mine", "small")
    bundled.draw(folder, "mine", "small", PRODUCTS, "1")
    bundled.take_products(folder, "mine", "small", PRODUCTS)
    bundled.describe(folder, "Mine")
    bundled.write_sums(folder)
    bundled.pack(folder, tmp_path / "sent/mine-small.zip")
    return tmp_path / "sent/mine-small.zip"


@pytest.fixture
def opened(tmp_path) -> Path:
    """An empty folder."""
    (tmp_path / "opened").mkdir()
    return tmp_path / "opened"


def test_a_bundle_has_what_its_study_needs_and_nothing_else_of_the_folder(archive, opened):
    place = bundled.unpack(archive, opened)
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    own = {"Snakefile", "config.yaml", "README.md", "methods/pull.py", "tests/test_pull.py"}
    own |= {"studies/mine.yaml", "studies/reference/cited.csv", "rules/own.smk"}
    own |= {"studies/chosen/mine/small/tuning.yaml"}
    own |= {"studies/reference/mine/small/index.csv"}
    made = {f"made/mine/small/{name}" for name in PRODUCTS}
    about = {"REVIEW.md", "environment.txt", "checksums.sha256", "ro-crate-metadata.json"}
    assert found == own | made | about
    assert "torch==" in (place / "environment.txt").read_text()
    assert (place / "config.yaml").read_text() == "paper: mine\n"


def test_the_metadata_name_every_file_and_what_made_the_products(archive, opened):
    place = bundled.unpack(archive, opened)
    graph = json.loads((place / "ro-crate-metadata.json").read_text())["@graph"]
    by_id = {entity["@id"]: entity for entity in graph}
    parts = {part["@id"] for part in by_id["./"]["hasPart"]}
    assert parts == {path.as_posix() for path in bundled.list_files(place)} - {
        "ro-crate-metadata.json"
    }
    assert by_id["./"]["mainEntity"] == by_id["#draw"]["instrument"] == {"@id": "Snakefile"}
    assert {one["@id"] for one in by_id["./"]["conformsTo"]} == {*bundled.PROFILES}
    assert {one["@id"] for one in by_id["#draw"]["result"]} == {
        f"made/mine/small/{name}" for name in PRODUCTS
    }
    assert by_id["README.md"]["encodingFormat"] == "text/markdown"


def test_a_review_finds_the_same_numbers(archive, capsys):
    review.main([str(archive)])
    said = capsys.readouterr().out
    assert "have their checksums" in said
    assert "table.csv has the same numbers" in said
    for name in PRODUCTS:  # these files do not stand for what is drawn
        (archive.with_suffix("") / "results").mkdir(exist_ok=True)
        (archive.with_suffix("") / "results" / name).write_text("other")
    review.main([str(archive.with_suffix(""))])  # the folder, once more
    with pytest.raises(UsageError, match="exists already"):
        review.main([str(archive)])


def test_a_review_finds_other_numbers(archive, drawn, capsys):
    drawn["table.csv"] = "method,mean\npull,80.1\n"
    with pytest.raises(SystemExit, match=r"these differ .* table\.csv"):
        review.main([str(archive)])


@pytest.mark.parametrize("name", ["methods/pull.py", "made/mine/small/table.csv", "Snakefile"])
def test_a_review_finds_an_altered_file(name, archive, opened):
    place = bundled.unpack(archive, opened)
    (place / name).write_text("other")
    with pytest.raises(
        UsageError, match=f"1 files are missing, altered or unknown; the first is {name}"
    ):
        review.main([str(place)])
    (place / name).unlink()
    assert bundled.find_altered(place) == [name]


def test_what_a_review_makes_is_no_alteration(archive, opened):
    place = bundled.unpack(archive, opened)
    for name in ("results/runs/x", ".snakemake/log/x", "data/x", "methods/__pycache__/pull.pyc"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    assert bundled.find_altered(place) == []
    (place / "methods/new.py").touch()
    assert bundled.find_altered(place) == ["methods/new.py"]


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_bundle_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "mine.zip").write_bytes(content)
    with pytest.raises(UsageError, match="is no archive of a bundle"):
        review.main([str(tmp_path / "mine.zip")])
    with pytest.raises(UsageError, match="is no bundle"):
        review.main([str(tmp_path)])


def test_a_bundle_is_made_in_the_folder_of_a_paper(tmp_path):
    with pytest.raises(UsageError, match="a bundle can only be made in the folder of a paper"):
        bundle.main(["fedsls", "small"])
    with pytest.raises(UsageError, match="no scale is called `smal`"):
        bundle.main(["fedsls", "smal"])


@pytest.mark.parametrize("names", [["../evil/x"], ["/abs/x"], ["a/x", "b/x"], ["a/x", "a/../../y"]])
def test_an_archive_writes_nothing_outside_of_its_folder(names, opened):
    with ZipFile(opened / "evil.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "evil")
    with suppress(UsageError):
        bundled.unpack(opened / "evil.zip", opened)
    assert {path.name for path in opened.iterdir()} <= {"evil.zip", "a"}
    assert {path.name for path in opened.parent.iterdir()} == {"opened"}
