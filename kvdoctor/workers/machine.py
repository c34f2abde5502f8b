"""How much of this machine may be used: its cores and its free memory, or what a container leaves of them."""

import os
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
# A worker holds vLLM and torch, about 1 GiB; a plan under way shares most of that and adds its own model and configuration.
_WORKER_BYTES = 3 * GIB // 2
_PLAN_BYTES = GIB // 2
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, kw_only=True)
class Room:
    """What may run at once: ``workers`` that are alive, and ``plans`` that are being made, starting workers included."""

    workers: int
    plans: int


def find_room() -> Room:
    """Look at the machine. A comparison has two workers even on one core: they mostly wait for the disk while they start."""
    cores, memory = usable_cores(), available_bytes()
    workers = max(2, cores)
    if memory is None:
        return Room(workers=workers, plans=cores)
    workers = max(1, min(workers, memory // _WORKER_BYTES))
    spare = memory - workers * _WORKER_BYTES
    return Room(workers=workers, plans=max(1, min(cores, spare // _PLAN_BYTES)))


def usable_cores() -> int:
    """Count the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _words(_CGROUP / "cpu.max")
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):  # noqa: PLR2004 - quota and period
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return max(1, cores)


def available_bytes() -> int | None:
    """Give the memory that is free or can be freed; ``None`` where the system does not say."""
    words = _words(_MEMINFO)
    at = words.index("MemAvailable:") + 1 if "MemAvailable:" in words else None
    free = int(words[at]) * 1024 if at is not None else None
    limit, used = _words(_CGROUP / "memory.max"), _words(_CGROUP / "memory.current")
    if limit and used and limit[0].isdigit():
        left = max(0, int(limit[0]) - int(used[0]))
        return left if free is None else min(free, left)
    return free


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []
