"""Names from which no file can be made are refused when runs are planned."""

import pytest

from fedgrid.runtime.names import UsageError
from fedgrid.study import checks
from fedgrid.study.command import run_of_names
from fedgrid.study.grid import Grid
from fedgrid.study.reading import read_studies
from fedgrid.study.selection import part_folder

NAMES = {"protocol": "fedsls-quick", "dataset": "digits", "partition": "dir0.1", "seed": 0}


def test_a_run_of_a_long_name_is_refused_in_a_notebook_and_in_a_grid():
    long = "m" * 260
    own = {"variants": {long: {"fedprox": {}}}}
    with pytest.raises(UsageError, match="File name too long"):
        run_of_names(NAMES | {"method": long}, Grid(read_studies(), own))
    config = own | {"study": "fedsls", "scale": "quick", "method": [long]}
    with pytest.raises(UsageError, match="File name too long"):
        Grid(read_studies(), config)


def test_bytes_count_and_not_characters(tmp_path):
    for kind, most in (("method", checks.LONGEST_NAME), ("dataset", checks.LONGEST_PART)):
        name = "é" * (most // 2)
        checks.check_length(kind, name)
        (tmp_path / name).mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="bytes"):
            checks.check_length(kind, f"{name}éé")


def test_the_folder_of_a_part_can_be_made_whatever_its_names_are(tmp_path):
    folder = part_folder({"method": ["漢" * 90], "partition": ["語" * 80]})
    (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    assert folder != part_folder({"method": ["漢" * 91], "partition": ["語" * 80]})
    assert part_folder({"method": ["fedavg"]}) == "/method=fedavg"
