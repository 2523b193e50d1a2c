"""Published numbers of a study whose names or lengths are wrong: `fedgrid.study.grid`."""

import copy

import pytest

import made
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid

WRONG = {
    "no dataset": (["table3", "columns", 0, 0], "mnits", "no dataset .*table3 is called `mnits`"),
    "no partition": (["table3", "columns", 0, 1], "shard2", "no partition is called `shard2`"),
    "no protocol": (["table4", "columns", 1, 2], "fedlmd-mobile", "no protocol .* `fedlmd-mobile`"),
    "a short row": (["table5", "rows", "fedlmd"], [], r"rows\.fedlmd has 0 values for 1 columns"),
    "a long row": (["table3", "speedups", "fedrs"], [1.0] * 15, "has 15 values for 14 columns"),
    "no method": (["table3", "speedups", "fedrss"], [1.0] * 14, "no method .* `fedrss`"),
}


def changed(path: list, value) -> dict:
    """FedLMD's study with another value there."""
    study = copy.deepcopy(made.STUDIES["fedlmd"])
    *above, last = path
    place = study
    for key in above:
        place = place[key]
    place[last] = value
    return made.STUDIES | {"fedlmd": study}


@pytest.mark.parametrize(("path", "value", "message"), WRONG.values(), ids=WRONG)
def test_published_numbers_without_a_place_are_refused(path, value, message):
    with pytest.raises(UsageError, match=message):
        Grid(changed(["published", *path], value))


def test_the_main_setting_is_of_protocols_that_there_are():
    with pytest.raises(UsageError, match=r"no protocol of `main` in fedlmd\.yaml .*`fedlmt`"):
        Grid(changed(["main", 0], "fedlmt"))
