"""``kvdoctor gpus``."""

import dataclasses

from kvdoctor.cli import options
from kvdoctor.cli.output import check_output, write_report
from kvdoctor.launches.gpus import CATALOGUE, GIB, Gpu

_HEADINGS = ("name", "device", "capability", "memory", "SMs", "source")


def run(list_format: options.ListFormatOption = options.ListFormat.TABLE) -> None:
    """List the GPUs that can be assumed, with the memory that CUDA reports and where the figure is from."""
    from kvdoctor.report import render_list  # noqa: PLC0415 - `--help` must answer before it is read

    check_output(None)
    if list_format is options.ListFormat.JSON:
        write_report(render_list("gpus", [_as_json(gpu) for gpu in CATALOGUE]), None)
        return
    rows = [_HEADINGS, *map(_row, CATALOGUE)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    write_report("\n".join(lines) + "\n\nAny other: CAPABILITY:MEMORY, like 9.0:80GiB.\n", None)


def _as_json(gpu: Gpu) -> dict[str, object]:
    """Write the capability as it is written everywhere else."""
    fields = {field.name: getattr(gpu, field.name) for field in dataclasses.fields(gpu)}
    return fields | {"compute_capability": ".".join(map(str, gpu.compute_capability))}


def _row(gpu: Gpu) -> tuple[str, ...]:
    major, minor = gpu.compute_capability
    return gpu.name, gpu.device_name, f"{major}.{minor}", f"{gpu.memory_bytes / GIB:.2f} GiB", str(gpu.sm_count), gpu.source
