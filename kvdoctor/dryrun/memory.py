"""The bound on a dry launch's memory, and how it is told that it was hit."""

import resource
from pathlib import Path

from kvdoctor.dryrun.blame import chain
from kvdoctor.errors import Unassessed
from kvdoctor.workers.machine import GIB, available_bytes

# A hundred times what DeepSeek-V4 for eight GPUs takes beyond what importing vLLM took.
_MOST_BYTES = 12 * GIB
_LEAST_BYTES = 4 * GIB  # thread stacks count as they are reserved, 8 MiB a core, and not as they are used
_STATUS = Path("/proc/self/status")
_NO_MEMORY_WORDS = ("defaultcpuallocator", "std::bad_alloc", "[errno 12]")

_granted: int | None = None


def bound() -> None:
    """Bound what this process may take from here on, where the system keeps such a bound.

    What is free now, but for a tenth: a launch that takes more would have the kernel end some process, and not always this one.
    """
    global _granted  # noqa: PLW0603 - a process is bound once
    used, free = _data_bytes(), available_bytes()
    if used is None:
        return
    more = _MOST_BYTES if free is None else min(_MOST_BYTES, max(_LEAST_BYTES, free - free // 10))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + more
    if hard != resource.RLIM_INFINITY and hard < limit:
        return  # a stricter bound is set already
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    _granted = more


def ran_out(error: BaseException) -> bool:
    """Tell whether memory ran out: as Python says it, or torch, or the system."""
    return any(isinstance(e, MemoryError) or any(word in str(e).lower() for word in _NO_MEMORY_WORDS) for e in chain(error))


def raise_if_out(error: BaseException, step: str) -> None:
    """Return unless memory ran out: then nothing is known of the launch.

    Raises:
        Unassessed: with the step, and what there was.
    """
    if not ran_out(error):
        return
    amount = "there is" if _granted is None else f"the {_granted / GIB:.1f} GiB it may take"
    raise Unassessed(
        f"the dry launch needs more memory than {amount} (at '{step}')",
        hint="Check the model's config for sizes that cannot be meant, or close other programs: a launch gets what is free, up to 12 GiB.",
    ) from error


def _data_bytes() -> int | None:
    """Count what RLIMIT_DATA counts."""
    try:
        words = _STATUS.read_text(encoding="ascii", errors="replace").split()
        return int(words[words.index("VmData:") + 1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
