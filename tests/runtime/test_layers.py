"""What a module takes of `runtime/` and `study/` counts, unless a list says why it is harmless.

`make lint` holds which way imports run, and `test_mutations.py` tries what the list says.
"""

import os
import time

import pytest

from fedgrid.runtime import names
from fedgrid.runtime.code import source
from fedgrid.runtime.code.harmless import HARMLESS
from fedgrid.runtime.names import PACKAGE, registered

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
}


def test_the_list_of_what_is_harmless_has_only_what_would_count_otherwise(monkeypatch):
    """All that the package names is followed: some seconds."""
    monkeypatch.setattr(source, "HARMLESS", {})
    source.forget()
    borrowed = {
        one for module in MODULES if source.counts(module) for one in source.borrowed(module)
    }
    source.forget()
    named = {where for where, _ in borrowed} | {f"{where}.{name}" for where, name in borrowed}
    assert HARMLESS.keys() <= named


@pytest.mark.parametrize("folder", ["methods", "models", "datasets", "partitions"])
def test_a_registrys_files_count(folder):
    for name in registered(folder):
        assert f"{folder}.{name}" in source.counted(f"{folder}.{name}")


@pytest.mark.parametrize("stage", ["partition", "pretrain", "saliency", "latents", "train"])
def test_a_stage_counts_all_it_reaches_but_the_two_folders(stage):
    counted = source.counted(f"stages.{stage}")
    assert not any(name.startswith(("runtime", "study")) for name in counted)
    direct = {name for module in counted for name in source._imports(module)}
    assert {name for name in direct if source.counts(name)} <= counted


@pytest.mark.parametrize("age", [0, 3600])
def test_a_new_file_is_at_once_a_name_of_its_registry(age, tmp_path, monkeypatch):
    """Also in a folder that was read before, whether or not it changed a moment ago."""
    monkeypatch.setattr(names, "PACKAGE", tmp_path)
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods/first.py").touch()
    changed = time.time() - age
    os.utime(tmp_path / "methods", (changed, changed))
    assert registered("methods") == registered("methods") == ["first"]
    (tmp_path / "methods/second.py").touch()
    assert registered("methods") == ["first", "second"]
    assert registered("nothing") == []
