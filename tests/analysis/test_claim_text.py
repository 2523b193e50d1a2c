"""The words of a claim's test say what is tested."""

import pytest

from fedgrid.analysis.claim_text import write_test
from fedgrid.claim import find_direction, find_parents
from made import STUDIES

STUDY = {"labels": {"a": "A", "b": "B", "c": "C, with more", "d": "the data"}}


def written(**claim) -> str:
    return write_test({"says": "", "section": "", "method": "a", **claim}, STUDY)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"least": 0}, "is above 0"),
        ({"most": 0}, "is below 0"),
        ({"least": 17}, "is at least 17 points"),
        ({"most": -1}, "is at most -1 point"),
        ({"least": -1, "most": 1}, "is within 1 point of 0"),
        ({"least": 2, "most": 7, "rounding": 1}, "between 2 and 7 points (as rounded: 1.5 to 7.5)"),
    ],
)
def test_the_bounds_are_said_with_their_unit(bounds, words):
    assert words in written(over="b", **bounds)


def test_methods_data_share_and_measure_are_said():
    assert written(over=["b", "c"], least=0) == "A minus each of B and C (with more) is above 0"
    own = written(method=["a", "b"], over={"a": "b", "b": ["c", "a"]}, least=0)
    assert own == "A minus B, B minus each of C (with more) and A is above 0"
    placed = written(over="b", least=0, dataset="d", partition=["dir0.1", "iid"], share=0.9)
    assert "more than 90 % of the comparisons; the data, alpha=0.1 or " in placed
    assert written(measure="speed-up", over="b", least=2).endswith("is at least 2")
    assert written(measure="speed-up", over="b", least=2).startswith("speed-up: ")


def test_a_bound_that_equal_values_keep_is_said_with_equality():
    assert written(over="b", most=0, measure="operations", tie="holds").endswith("is at most 0")
    assert written(over="b", least=0, tie="holds").endswith("is at least 0 points")
    assert written(over="b", least=0, tie="does not hold").endswith("is above 0")


def test_a_growth_is_said_with_its_steps():
    steps = {"partition": ["dir0.5", "dir0.1"]}
    grown = written(over="b", along=steps, least=0)
    assert (
        grown
        == "the change of A minus B from each of alpha=0.5 and alpha=0.1 to the next is above 0"
    )
    along = written(method=["a", "b"], along={"method": ["a", "b"]}, most=0)
    assert along == "the change from each of A and B to the next is below 0"


def test_every_claim_of_every_study_has_its_words():
    for study in STUDIES.values():
        tests = [write_test(claim, study) for claim in study.get("claims", [])]
        assert all(tests)
        assert len({*tests}) == len(tests)


def test_only_a_size_needs_a_caution():
    assert find_direction({"method": "a", "over": "b", "least": 17})
    assert not find_direction({"method": "a", "over": "b", "least": 0})
    assert not find_direction({"method": "a", "least": 0.7})


def test_an_added_row_belongs_to_the_claim_before_it():
    claims = [{}, {"added": True}, {"added": True}, {}, {"added": True}]
    assert find_parents(claims) == [0, 1, 1, 0, 4]
    assert find_parents([*claims, claims[0] | {"added": 1}]) == [0, 1, 1, 0, 4, 1]
