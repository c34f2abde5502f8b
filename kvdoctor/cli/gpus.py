"""``kvdoctor gpus``."""

from kvdoctor.cli.output import check_output, write_report
from kvdoctor.gpus import CATALOGUE, GIB, Gpu

_HEADINGS = ("name", "device", "capability", "memory", "SMs", "source")


def run() -> None:
    """List the GPUs that can be assumed, with the memory that CUDA reports and where the figure is from."""
    check_output(None)
    rows = [_HEADINGS, *map(_row, CATALOGUE)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    write_report("\n".join(lines) + "\n\nAny other: CAPABILITY:MEMORY, like 9.0:80GiB.\n", None)


def _row(gpu: Gpu) -> tuple[str, ...]:
    major, minor = gpu.compute_capability
    return gpu.name, gpu.device_name, f"{major}.{minor}", f"{gpu.memory_bytes / GIB:.2f} GiB", str(gpu.sm_count), gpu.source
