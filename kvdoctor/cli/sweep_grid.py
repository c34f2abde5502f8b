"""A sweep's grid planned, as far as it gets."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvdoctor.assess import Planning
from kvdoctor.cli.console import Stopped, progress_bar
from kvdoctor.cli.request import Common
from kvdoctor.diagnosis import diagnose
from kvdoctor.errors import KvdoctorError
from kvdoctor.sweep import Cell, SweepRow, read_row


@dataclass(kw_only=True)
class Planned:
    """The rows by their number in the grid, the launches that could not be assessed, and the signal that ended it early, if one did."""

    rows: dict[int, SweepRow] = field(default_factory=dict)
    failures: list[KvdoctorError] = field(default_factory=list)
    stopped: Stopped | None = None


def plan_grid(cells: Sequence[Cell], common: Common, service: Planning, *, quiet: bool) -> Planned:
    """Plan every cell. A signal ends that, and what is planned by then is kept."""
    planned = Planned()
    requests = [
        common.request(
            cell.model,
            varied_arguments=cell.vllm_arguments,
            gpu=cell.values.get("gpu"),
            kv_cache_memory=cell.values.get("kv-cache-memory"),
        )
        for cell in cells
    ]
    # Engines last: a wrong request must not wait for a release to be fetched.
    launches = [service.launch(request, cell.values.get("vllm", common.vllm)) for cell, request in zip(cells, requests, strict=True)]
    try:
        numbers = {service.submit(launch): at for at, launch in enumerate(launches)}
        with progress_bar(len(launches), quiet=quiet) as advance:
            for number, outcome in service.outcomes():
                at = numbers[number]
                if isinstance(outcome, KvdoctorError):
                    planned.failures.append(outcome)
                    planned.rows[at] = read_row(cells[at], outcome)
                else:
                    planned.rows[at] = read_row(cells[at], diagnose(launches[at].request, outcome))
                advance()
    except Stopped as stop:
        planned.stopped = stop
    return planned
