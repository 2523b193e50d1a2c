"""Rooms that compute count for results, and rooms that plan do not.

`make lint` holds which way imports run, and `test_mutations.py` tries that no change of what plans
changes a number.
"""

import os
import time

import pytest

from fedgrid.runtime import places
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered


@pytest.mark.parametrize("folder", ["methods", "models", "datasets", "partitions"])
def test_a_registrys_files_count(folder):
    for name in registered(folder):
        assert f"{folder}.{name}" in source.counted(f"{folder}.{name}")


@pytest.mark.parametrize("stage", ["partition", "pretrain", "saliency", "latents", "train"])
def test_a_stage_counts_all_it_reaches_but_what_plans(stage):
    counted = source.counted(f"stages.{stage}")
    assert not {name.partition(".")[0] for name in counted} & {*source.PLANNING}
    direct = {name for module in counted for name in source._imports(module)}
    assert {name for name in direct if source.counts(name)} <= counted


@pytest.mark.parametrize("age", [0, 3600])
def test_a_new_file_is_at_once_a_name_of_its_registry(age, tmp_path, monkeypatch):
    """Also in a folder that was read before, whether or not it changed a moment ago."""
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods/first.py").touch()
    changed = time.time() - age
    os.utime(tmp_path / "methods", (changed, changed))
    assert registered("methods") == registered("methods") == ["first"]
    (tmp_path / "methods/second.py").touch()
    assert registered("methods") == ["first", "second"]
    assert registered("nothing") == []
