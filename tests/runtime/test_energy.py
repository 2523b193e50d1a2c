"""Counters of energy: what they have counted, and when this is not known."""

import gc
import math
import threading
import time
from pathlib import Path

import pytest
import torch

from fedgrid.runtime.watch import energy

CPU = torch.device("cpu")


@pytest.fixture
def counters(tmp_path, monkeypatch) -> Path:
    """Two packages whose counters begin again after 1,000 and 5,000 joules, and a part of one."""
    monkeypatch.setattr(energy, "RAPL", tmp_path)
    for name, most, joules in (("0", 1000, 900), ("1", 5000, 4000), ("0:0", 1000, 100)):
        (tmp_path / f"intel-rapl:{name}").mkdir()
        put(tmp_path, name, most, "max_energy_range_uj")
        put(tmp_path, name, joules)
    return tmp_path


def put(folder: Path, package: str, joules: int, name: str = "energy_uj") -> None:
    """Write a counter, so that a reader never finds half of it."""
    (folder / "new").write_text(f"{joules * 1_000_000}\n")
    (folder / "new").replace(folder / f"intel-rapl:{package}" / name)


def wait_until(condition) -> None:
    """Wait for a thread, at most ten seconds."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "energy"]


def test_packages_are_added(counters):
    meter = energy.Meter(CPU)
    put(counters, "0", 920)
    put(counters, "1", 4007)
    assert meter.joules() == {"processor": 27.0}


def test_each_package_begins_again_after_a_range_of_its_own(counters):
    meter = energy.Meter(CPU)
    put(counters, "0", 50)  # 150 more
    put(counters, "1", 10)  # 1,010 more
    assert meter.joules() == {"processor": 1160.0}


def test_a_counter_that_begins_again_several_times_is_followed(counters, monkeypatch):
    monkeypatch.setattr(energy, "EVERY", 0.01)
    meter = energy.Meter(CPU)
    for joules in (300, 800, 200, 700, 100, 600):
        put(counters, "0", joules)
        wait_until(lambda now=joules: meter.processor.counts[0] == now * 1_000_000)
    assert meter.joules() == {"processor": 2700.0}


def test_the_thread_ends_with_its_meter_and_with_the_process(counters):
    gc.collect()
    wait_until(lambda: not threads())
    meter = energy.Meter(CPU)
    assert [one.daemon for one in threads()] == [True]
    del meter
    wait_until(lambda: not threads())


def test_counters_that_nobody_may_read_are_left_out(counters):
    (counters / "intel-rapl:1/energy_uj").unlink()
    assert energy.Meter(CPU).joules() == {}
    assert not threads()


def test_a_counter_of_unknown_range_is_left_out(counters):
    (counters / "intel-rapl:1/max_energy_range_uj").unlink()
    assert energy.Meter(CPU).joules() == {}


def test_a_machine_without_counters_has_no_joules(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "RAPL", tmp_path)
    assert energy.Meter(CPU).joules() == {}


def test_what_was_not_read_often_enough_is_not_known():
    """As after a process was stopped; 262 kilojoules may pass in 262 seconds."""
    assert energy.added([0], [5_000_000], [262_143_328_850], 262.0) == 5
    assert math.isnan(energy.added([0], [5_000_000], [262_143_328_850], 263.0))
    assert math.isnan(energy.added([0], [0], [0], 0.0))
