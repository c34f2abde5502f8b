from pathlib import Path

import pytest

from kvdoctor.workers import machine
from kvdoctor.workers.machine import GIB, Room, available_bytes, find_room, usable_cores


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 cores and 64 GiB, 32 of them free."""
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(16)), raising=False)
    (tmp_path / "meminfo").write_text(f"MemTotal: {64 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {32 * 2**20} kB\n")
    return tmp_path


@pytest.mark.usefixtures("system")
def test_the_machine_is_taken_as_it_is() -> None:
    assert (usable_cores(), available_bytes()) == (16, 32 * GIB)
    assert find_room() == Room(workers=16, plans=16)


def test_a_containers_limits_count(system: Path) -> None:
    (system / "cpu.max").write_text("250000 100000\n")
    (system / "memory.max").write_text(f"{8 * GIB}\n")
    (system / "memory.current").write_text(f"{2 * GIB}\n")
    assert (usable_cores(), available_bytes()) == (2, 6 * GIB)
    assert find_room() == Room(workers=2, plans=2)


def test_a_container_without_limits_has_none(system: Path) -> None:
    (system / "cpu.max").write_text("max 100000\n")
    (system / "memory.max").write_text("max\n")
    (system / "memory.current").write_text("1\n")
    assert (usable_cores(), available_bytes()) == (16, 32 * GIB)


def test_little_memory_makes_fewer_workers_and_fewer_plans(system: Path) -> None:
    (system / "meminfo").write_text(f"MemAvailable: {4 * 2**20} kB\n")
    assert find_room() == Room(workers=2, plans=2)
    (system / "meminfo").write_text("MemAvailable: 1024 kB\n")
    assert find_room() == Room(workers=1, plans=1)


def test_one_core_still_has_both_sides_of_a_comparison(system: Path) -> None:
    (system / "cpu.max").write_text("100000 100000\n")
    assert find_room() == Room(workers=2, plans=1)


def test_a_system_that_says_nothing_is_taken_by_its_cores(system: Path) -> None:
    (system / "meminfo").unlink()
    assert (available_bytes(), find_room()) == (None, Room(workers=16, plans=16))
