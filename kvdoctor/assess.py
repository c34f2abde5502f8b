"""The one way to plan: launches go in at any time, and each comes out with its plan or with the reason why there is none."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kvdoctor.engines.find import find_engine
from kvdoctor.engines.interface import Engine
from kvdoctor.errors import KvdoctorError
from kvdoctor.launches.hub import settle_network
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan
from kvdoctor.workers.machine import find_room
from kvdoctor.workers.pool import Launch, Listener, Outcome, Pool

__all__ = ["Launch", "Outcome", "Planning", "Voice"]

OnStep = Callable[[int, str], None]


@dataclass(frozen=True, kw_only=True)
class Voice:
    """Who hears what happens: notes for the user, what a worker wrote once it is gone, and the steps of fetching an engine."""

    note: Callable[[str], None]
    log: Callable[[str], None]
    finding: Callable[[], AbstractContextManager[Callable[[str], None]]]


class Planning:
    """Plans launches for as long as it is open, and keeps the workers that did: a second plan of the like takes under a second.

    A context manager: on the way out every worker is gone, whatever the reason.
    """

    def __init__(self, *, offline: bool, timeout_seconds: float, voice: Voice) -> None:
        self._offline = offline
        self._voice = voice
        self._engines: dict[str | None, Engine] = {}
        self._on_step: OnStep | None = None
        self._done: deque[tuple[int, Outcome]] = deque()
        listener = Listener(step=self._tell, note=voice.note, log=voice.log)
        self._pool = Pool(timeout_seconds=timeout_seconds, room=find_room(), listener=listener)

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.__exit__(kind, error, trace)

    def engine(self, text: str | None) -> Engine:
        """Find the engine for ``text``, the value of ``--vllm``, once; a release may have to be fetched."""
        if text not in self._engines:
            with self._voice.finding() as step:
                self._engines[text] = find_engine(text, offline=self._offline, on_step=step, note=self._voice.note)
        return self._engines[text]

    def launch(self, request: LaunchRequest, vllm: str | None) -> Launch:
        """Make ``request`` ready to be planned by the engine that ``vllm`` names: with the network as it is."""
        settled = settle_network(request, note=self._voice.note)
        return Launch(engine=self.engine(vllm), request=settled)

    def submit(self, launch: Launch) -> int:
        """Have ``launch`` planned, at any time; its outcome comes under the number given here."""
        return self._pool.submit(launch)

    def outcomes(self, on_step: OnStep | None = None) -> Iterator[tuple[int, Outcome]]:
        """Give each launch's number with its outcome, as they come, until none is left. ``on_step`` hears what each is at."""
        self._on_step = on_step
        try:
            while self._done:
                yield self._done.popleft()
            yield from self._pool.outcomes()
        finally:
            self._on_step = None

    def plan(self, launch: Launch, on_step: Callable[[str], None] | None = None) -> Plan:
        """Plan one launch and wait for it; the others that finish meanwhile come later, from :meth:`outcomes`.

        Raises:
            KvdoctorError: there is no plan.

        """
        wanted = self.submit(launch)
        self._on_step = None if on_step is None else lambda number, step: on_step(step) if number == wanted else None
        for number, outcome in self._pool.outcomes():
            if number != wanted:
                self._done.append((number, outcome))
            elif isinstance(outcome, KvdoctorError):
                raise outcome
            else:
                return outcome
        raise AssertionError("the pool lost a launch")

    def _tell(self, number: int, step: str) -> None:
        if self._on_step is not None:
            self._on_step(number, step)
