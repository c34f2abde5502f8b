"""Many launches planned at once, by as few workers as can: one for each engine, GPU and environment, kept for what may come."""

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kvdoctor.engines.interface import Engine
from kvdoctor.errors import KvdoctorError, Unassessed
from kvdoctor.launches.gpus import Gpu
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan
from kvdoctor.workers.client import GRACE_SECONDS, TIMEOUT_HINT, Worker
from kvdoctor.workers.machine import Room

Outcome = Plan | KvdoctorError


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch, and the engine that is to plan it."""

    engine: Engine
    request: LaunchRequest


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who hears what happens: the step that a job is at, notes for the user, and what a worker wrote once it is gone."""

    step: Callable[[int, str], None]
    note: Callable[[str], None]
    log: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class _Surroundings:
    """What a worker is started for; it can plan every launch that has the same. Its layers were imported for one GPU."""

    engine: Engine
    gpu: Gpu
    environment: Mapping[str, str]
    network: bool


@dataclass(kw_only=True)
class _Crew:
    """A worker with its jobs: those not yet begun, and by request number those under way."""

    surroundings: _Surroundings
    waiting: deque[int] = field(default_factory=deque)
    worker: Worker | None = None
    ready_by: float = 0.0
    under_way: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return self.worker is not None and self.worker.vllm_version is not None

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.under_way)

    @property
    def load(self) -> int:
        """A worker that is still importing vLLM keeps a core busy."""
        return len(self.under_way) if self.ready else 1


class Pool:
    """A context manager: on the way out every worker is gone, whatever the reason."""

    def __init__(self, *, timeout_seconds: float, room: Room, listener: Listener) -> None:
        self._timeout_seconds = timeout_seconds
        self._room = room
        self._listener = listener
        self._jobs: list[Launch] = []
        self._queue: deque[_Crew] = deque()
        self._crews: list[_Crew] = []
        self._finished: deque[tuple[int, Outcome]] = deque()
        self._notes: set[str] = set()
        self._owned = ExitStack()

    def __enter__(self) -> Self:
        self._selector = self._owned.enter_context(selectors.DefaultSelector())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for crew in list(self._crews):
            self._dismiss(crew)
        self._owned.close()

    def submit(self, job: Launch) -> int:
        """Have ``job`` planned, at any time; its outcome comes from :meth:`outcomes` under the number given here."""
        self._jobs.append(job)
        given = _surroundings(job)
        # Compared, not hashed: environments are dictionaries.
        crew = next((crew for crew in (*self._crews, *self._queue) if crew.surroundings == given), None)
        if crew is None:
            crew = _Crew(surroundings=given)
            self._queue.append(crew)
        crew.waiting.append(len(self._jobs) - 1)
        return len(self._jobs) - 1

    def outcomes(self) -> Iterator[tuple[int, Outcome]]:
        """Give each job's number with its plan, or with the reason why there is none, as they come, until none is left."""
        while self._finished or self._queue or any(crew.busy for crew in self._crews):
            while self._finished:
                yield self._finished.popleft()  # kept until it is taken: a reader may stop at any of them
            while self._queue and self._make_room():
                self._finished += self._start(self._queue.popleft())
            self._hand_out()
            self._finished += self._listen()

    def _make_room(self) -> bool:
        """Let an idle worker go where the machine holds no more of them."""
        if len(self._crews) < self._room.workers:
            return True
        idle = next((crew for crew in self._crews if not crew.busy), None)
        if idle is not None:
            self._dismiss(idle)
        return idle is not None

    def _start(self, crew: _Crew) -> list[tuple[int, Outcome]]:
        given = crew.surroundings
        crew.worker = Worker(given.engine, environment=given.environment, network=given.network)
        self._crews.append(crew)
        try:
            crew.worker.__enter__()
        except KvdoctorError as error:
            crew.worker = None
            return self._give_up(crew, error)
        crew.ready_by = time.monotonic() + self._timeout_seconds
        self._selector.register(crew.worker, selectors.EVENT_READ, crew)
        for text in (*given.engine.notes, *crew.worker.notes):
            if text not in self._notes:
                self._notes.add(text)
                self._listener.note(text)
        for job in crew.waiting:
            self._listener.step(job, "importing vLLM")
        return []

    def _hand_out(self) -> None:
        """Begin jobs, in turn from each worker that is ready, until every core has one."""
        while sum(crew.load for crew in self._crews) < self._room.plans or not any(crew.load for crew in self._crews):
            free = [crew for crew in self._crews if crew.ready and crew.waiting]
            if not free:
                return
            crew = min(free, key=lambda crew: crew.load)
            worker, job = crew.worker, crew.waiting.popleft()
            if worker is not None:
                identity = worker.submit(self._jobs[job].request, timeout_seconds=self._timeout_seconds)
                crew.under_way[identity] = (job, time.monotonic() + self._timeout_seconds + GRACE_SECONDS)

    def _listen(self) -> Iterator[tuple[int, Outcome]]:
        deadlines = [time_out for crew in self._crews for time_out in self._deadlines(crew)]
        if not deadlines:
            return
        for key, _ in self._selector.select(max(0.0, min(deadlines) - time.monotonic())):
            yield from self._take(key.data)
        for crew in list(self._crews):
            if any(deadline <= time.monotonic() for deadline in self._deadlines(crew)):
                what = "planning" if crew.ready else "importing vLLM"
                error = Unassessed(f"{what} took more than {self._timeout_seconds:g} seconds", hint=TIMEOUT_HINT)
                yield from self._give_up(crew, error)

    def _deadlines(self, crew: _Crew) -> list[float]:
        if not crew.ready:
            return [crew.ready_by]
        return [deadline for _, deadline in crew.under_way.values()]

    def _take(self, crew: _Crew) -> list[tuple[int, Outcome]]:
        if crew.worker is None:
            return []
        try:
            answers = crew.worker.receive(lambda identity, step: self._listener.step(crew.under_way[identity][0], step))
        except KvdoctorError as error:
            return self._give_up(crew, error)
        return [(crew.under_way.pop(identity)[0], answer) for identity, answer in answers]

    def _give_up(self, crew: _Crew, error: KvdoctorError) -> list[tuple[int, Outcome]]:
        """The worker is lost, and no other could do better: its jobs end as it did."""
        jobs = sorted([*(job for job, _ in crew.under_way.values()), *crew.waiting])
        self._dismiss(crew)
        return [(job, error) for job in jobs]

    def _dismiss(self, crew: _Crew) -> None:
        self._crews.remove(crew)
        worker, crew.worker = crew.worker, None
        if worker is not None:
            self._selector.unregister(worker)
            try:
                self._listener.log(worker.stderr())
            finally:
                worker.__exit__(None, None, None)


def _surroundings(job: Launch) -> _Surroundings:
    request = job.request
    network = request.model is not None and request.model.kind == "hub" and not request.offline
    return _Surroundings(engine=job.engine, gpu=request.gpu, environment=request.environment, network=network)
