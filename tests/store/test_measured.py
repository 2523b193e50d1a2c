"""Tables of experiments that are kept with a study: `fedgrid.store.measured`."""

import json

import pytest

from fedgrid.runtime import files
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.store import kept, measured

SETTING = {"images": {"digits": 8}, "size": 16}
SOURCES = ("fidelity/scores", "fidelity/examples")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """The folder of kept runs of every study."""
    monkeypatch.setattr(kept, "store_folder", lambda study, scale: tmp_path / study / scale)
    return tmp_path / "mine/small/fidelity"


@pytest.fixture
def here(tmp_path):
    """A folder with the two tables of the fidelity study, and their record."""
    folder = tmp_path / "results/fidelity"
    folder.mkdir(parents=True)
    tables = [folder / f"{text.partition('/')[2]}.csv" for text in SOURCES]
    for table in tables:
        table.write_text(f"ssim\n{len(table.name)}\n")
    record = {
        "command": ["fedgrid.experiments.fidelity.scores", json.dumps(SETTING)],
        "outputs": {table.name: files.checksum(table) for table in tables},
        "code": {"fingerprint": "0123"},
        "versions": {"torch": "2.8.0"},
    }
    (folder / ".examples.csv.record").write_text(json.dumps(record))
    return folder


def keep(here, setting: dict = SETTING) -> bool:
    return measured.keep_measured("mine", "small", SOURCES[0], setting, here / "scores.csv")


def find(text: str = SOURCES[0], setting: dict = SETTING):
    return measured.find_measured("mine", "small", text, setting)


def test_kept_tables_stand_for_those_of_the_same_setting_only(here, store):
    assert keep(here)
    for text in SOURCES:
        assert find(text) == store / f"{text.partition('/')[2]}.csv"
        assert find(text).read_bytes() == (here / find(text).name).read_bytes()
    assert find(setting=SETTING | {"size": 32}) is None
    assert json.loads((store / measured.MADE).read_text())["versions"] == {"torch": "2.8.0"}


def test_kept_tables_are_those_of_the_same_data_of_ones_own(here, monkeypatch):
    monkeypatch.setattr(source, "data_of", lambda name: {"data": "0123"})
    assert keep(here)
    assert find()
    monkeypatch.setattr(source, "data_of", lambda name: {"data": "4567"})
    assert find() is None


def test_tables_of_another_setting_are_not_kept(here, store):
    assert not keep(here, SETTING | {"size": 32})
    assert not store.exists()


def test_nothing_is_found_where_nothing_is_kept():
    assert find() is None
    assert find("costs") is None


@pytest.mark.parametrize("damage", [lambda path: path.write_text("0"), lambda path: path.unlink()])
def test_a_kept_table_that_is_damaged_is_refused(here, damage):
    keep(here)
    damage(find())
    with pytest.raises(UsageError, match="is not the file that was kept: restore the folder"):
        find()
