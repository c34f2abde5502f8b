"""A sweep's grid planned, as far as it gets."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from kvdoctor.cli.console import Stopped, progress_bar
from kvdoctor.cli.hub import settle_network
from kvdoctor.cli.planning import EngineFinder, open_pool
from kvdoctor.diagnosis import diagnose
from kvdoctor.errors import KvdoctorError
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.sweep import Cell, SweepRow, read_row
from kvdoctor.workers.pool import Job


@dataclass(kw_only=True)
class Planned:
    """The rows by their number in the grid, the launches that could not be assessed, and the signal that ended it early, if one did."""

    rows: dict[int, SweepRow] = field(default_factory=dict)
    failures: list[KvdoctorError] = field(default_factory=list)
    stopped: Stopped | None = None


def plan_grid(
    cells: Sequence[Cell],
    *,
    request_of: Callable[[Cell], AbstractContextManager[LaunchRequest]],
    vllm: str | None,
    offline: bool,
    timeout: float,
    verbose: bool,
    quiet: bool,
    note: Callable[[str], None],
) -> Planned:
    """Plan every cell. A signal ends that, and what is planned by then is kept."""
    planned = Planned()
    with ExitStack() as owned:
        # Engines last: a wrong request must not wait for a release to be fetched.
        requests = [owned.enter_context(request_of(cell)) for cell in cells]
        engines = EngineFinder(offline=offline, quiet=quiet)
        jobs = [
            Job(engine=engines.find(cell.values.get("vllm", vllm)), request=settle_network(request, note=note))
            for cell, request in zip(cells, requests, strict=True)
        ]
        try:
            with (
                progress_bar(len(jobs), quiet=quiet) as advance,
                open_pool(jobs, timeout=timeout, verbose=verbose, quiet=quiet) as pool,
            ):
                for number, outcome in pool.outcomes():
                    if isinstance(outcome, KvdoctorError):
                        planned.failures.append(outcome)
                        planned.rows[number] = read_row(cells[number], outcome)
                    else:
                        planned.rows[number] = read_row(cells[number], diagnose(jobs[number].request, outcome))
                    advance()
        except Stopped as stop:
            planned.stopped = stop
    return planned
