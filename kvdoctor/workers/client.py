"""The client's side of a worker: its life, and the protocol spoken over its pipes."""

import functools
import json
import operator
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kvdoctor.conceal import conceal_plan
from kvdoctor.engines.cache import cache_directory
from kvdoctor.engines.checkout import lay_links
from kvdoctor.engines.interface import Engine
from kvdoctor.errors import Bug, KvdoctorError, Unassessed
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan
from kvdoctor.reproducible import same_every_time
from kvdoctor.scratch import temporary_folder
from kvdoctor.secrets import Curtain, curtain_for
from kvdoctor.workers.environment import UNTESTED_VARIABLE, worker_environment
from kvdoctor.workers.protocol import REPORT, Ask, AtStep, Failed, Failure, Planned, Ready, encode, read_reply

WORKER_MODULE = "kvdoctor.dryrun.worker"
# The worker keeps the time of a request itself, and names the step it was at; past this much more it is taken for hung.
GRACE_SECONDS = 10.0
TIMEOUT_HINT = "Allow more time with --timeout SECONDS; -v shows what the worker wrote."
_FAREWELL_SECONDS = 2.0
_MAX_REPLY_BYTES = 256 * 2**20
_PIPE_CHUNK_BYTES = 2**16

Step = Callable[[str], None]


class Worker:
    """A process with one vLLM in it. A context manager: on the way out the process and its children are gone, whatever the reason."""

    def __init__(self, engine: Engine, *, environment: Mapping[str, str], network: bool) -> None:
        self.engine = engine
        self.notes: list[str] = []
        self.vllm_version: str | None = None
        self._given = dict(environment)
        self._network = network
        self._owned = ExitStack()
        self._next_id = 1
        self._unsent = b""
        self._unread = b""
        self._replies: dict[int, list[AtStep | Planned | Failed]] = {}
        self._curtains: dict[int, Curtain] = {}
        self._places: dict[int, dict[str, str]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._owned.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._owned.close()

    def plan(self, request: LaunchRequest, *, timeout_seconds: float, on_step: Step | None = None) -> Plan:
        """Have ``request`` planned. ``on_step`` hears what the worker is at."""
        tell = on_step or _ignore
        self._wait_until_ready(timeout_seconds, tell)
        identity = self.submit(request, timeout_seconds=timeout_seconds)
        deadline = time.monotonic() + timeout_seconds + GRACE_SECONDS
        while True:
            while not self._replies[identity]:
                self._exchange(deadline, f"planning took more than {timeout_seconds:g} seconds")
            plan = self._read(identity, tell)
            if plan is not None:
                return plan

    def submit(self, request: LaunchRequest, *, timeout_seconds: float) -> int:
        """Queue ``request`` without waiting for anything; its answer comes from :meth:`receive` under the number given here."""
        identity, self._next_id = self._next_id, self._next_id + 1
        laid_out = self._lay_out(request, identity)
        ask = Ask(
            id=identity,
            request=laid_out,
            source=self.engine.source,
            notes=self.engine.dependency_notes,
            timeout_seconds=timeout_seconds,
        )
        if not self._unsent:
            self._selector.register(self._input, selectors.EVENT_WRITE)
        self._unsent += encode(ask)
        self._replies[identity] = []
        self._curtains[identity] = curtain_for(request.all_args, request.environment)
        self._places[identity] = {str(self._scratch): "<temporary folder>"}
        if laid_out.model is not None and laid_out.model != request.model and laid_out.model.path is not None:
            self._places[identity][laid_out.model.path] = laid_out.model.text
        return identity

    def _lay_out(self, request: LaunchRequest, identity: int) -> LaunchRequest:
        """Write a config that the request carries where vLLM can read it."""
        model = request.model
        if model is None or model.config is None:
            return request
        folder = self._scratch / f"model-{identity}"
        try:
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(model.config), encoding="ascii")
        except OSError as error:
            raise Unassessed(f"the config of {model.text} could not be written: {error.strerror}", hint=f"Free room in {folder}.") from None
        return replace(request, model=replace(model, path=str(folder), config=None))

    def fileno(self) -> int:
        """Give a descriptor that is readable when :meth:`receive` has something to do, so that one loop can serve many workers."""
        return self._selector.fileno()  # epoll and kqueue have one, and can be polled themselves

    def receive(self, on_step: Callable[[int, str], None]) -> list[tuple[int, Plan | KvdoctorError]]:
        """Move the bytes that are ready, without waiting, and give the answers that are complete.

        Raises:
            KvdoctorError: the worker itself has failed, and with it every request that it had.

        """
        self._move(0)
        answers: list[tuple[int, Plan | KvdoctorError]] = []
        for identity in list(self._replies):
            while self._replies.get(identity):
                try:
                    answer: Plan | KvdoctorError | None = self._read(identity, functools.partial(on_step, identity))
                except KvdoctorError as error:
                    answer = error
                if answer is not None:
                    answers.append((identity, answer))
        return answers

    def stderr(self) -> str:
        """Give what the worker wrote to its stderr."""
        self._log.seek(0)
        return self._log.read().decode("utf-8", errors="replace")

    def _start(self) -> None:
        cache, note = self._owned.enter_context(cache_directory())
        if note:
            self.notes.append(note)
        self._scratch = self._owned.enter_context(temporary_folder("worker"))
        self._log = self._owned.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        environment = worker_environment(os.environ, given=self._given, cache=cache, scratch=self._scratch, network=self._network)
        if self.engine.source.startswith("checkout"):
            environment[UNTESTED_VARIABLE] = "1"
        Path(environment["HOME"]).mkdir(parents=True, exist_ok=True)
        start, path = Path(__file__).parents[1] / "start.py", json.dumps(self._import_path(self._scratch))
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
                [self.engine.python, "-P", str(start), str(os.getpid()), path, WORKER_MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise Unassessed(f"{self.engine.python} could not be started: {error.strerror}", hint="Check --vllm.") from None
        self._owned.callback(self._end)
        self._selector = self._owned.enter_context(selectors.DefaultSelector())
        self._input, self._output = _pipe(self._process.stdin), _pipe(self._process.stdout)
        self._selector.register(self._output, selectors.EVENT_READ)

    def _import_path(self, scratch: Path) -> tuple[str, ...]:
        if self.engine.built_like is None:
            return self.engine.path
        folder = scratch / "checkout"
        lay_links(Path(self.engine.path[0]) / "vllm", Path(self.engine.built_like), folder / "vllm")
        return (str(folder),)

    def _end(self) -> None:
        """End the worker, and with it the children it forked, and reap it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self.vllm_version is not None:
            # At the end of its input a worker that serves kills its children, which have process groups of their own.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_FAREWELL_SECONDS)
        with suppress(ProcessLookupError):  # all gone already
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait_until_ready(self, timeout_seconds: float, tell: Step) -> None:
        if self.vllm_version is not None:
            return
        tell("importing vLLM")
        deadline = time.monotonic() + timeout_seconds
        while self.vllm_version is None:
            self._exchange(deadline, f"importing vLLM took more than {timeout_seconds:g} seconds")

    def _read(self, identity: int, tell: Step) -> Plan | None:
        """Read one reply to a request. Its plan or failure is the last one."""
        reply = self._replies[identity].pop(0)
        if isinstance(reply, AtStep):
            tell(reply.step)
            return None
        del self._replies[identity]
        curtain, places = self._curtains.pop(identity), self._places.pop(identity)
        if isinstance(reply, Planned):
            return conceal_plan(reply.plan, curtain, places)
        raise _shown(reply.failure, curtain, places).error

    def _exchange(self, deadline: float, what: str) -> None:
        """Move bytes once: send what is waiting, take in what has come."""
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not self._move(remaining):
            raise Unassessed(what, hint=TIMEOUT_HINT)

    def _move(self, wait_seconds: float) -> bool:
        ready = self._selector.select(wait_seconds)
        for key, _ in ready:
            if key.fd == self._output:
                self._receive()
            else:
                self._send()
        return bool(ready)

    def _send(self) -> None:
        try:
            sent = os.write(self._input, self._unsent[:_PIPE_CHUNK_BYTES])
        except BrokenPipeError:
            raise self._death() from None
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._selector.unregister(self._input)

    def _receive(self) -> None:
        data = os.read(self._output, _PIPE_CHUNK_BYTES)
        if not data:
            raise self._death()
        self._unread += data
        if len(self._unread) > _MAX_REPLY_BYTES:
            raise Bug("the worker's reply does not end", hint=REPORT)
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        reply = read_reply(line)
        if isinstance(reply, Ready):
            self.vllm_version = reply.vllm_version
        elif reply.id is None:
            raise _shown(reply.failure, self._any_curtain(), {}).error
        elif reply.id in self._replies:
            self._replies[reply.id].append(reply)

    def _death(self) -> KvdoctorError:
        code = self._process.wait()
        when = "while importing vLLM" if self.vllm_version is None else "while planning"
        if code == -signal.SIGKILL:
            return Unassessed(f"the worker was killed {when}, likely because memory ran out", hint="Free some memory, then try again.")
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        lines = [line for line in self.stderr().splitlines() if line.strip()]
        cause = self._any_curtain()(lines[-1].strip()) if lines else "it wrote nothing to stderr"
        return Unassessed(f"the worker ended {how} {when}: {cause}", hint="-v shows all that it wrote.")

    def _any_curtain(self) -> Curtain:
        """Hide the secrets of every request: what the worker says of itself may be about any of them."""
        return functools.reduce(operator.or_, self._curtains.values(), curtain_for((), self._given))


def _ignore(step: str) -> None:
    """Stand in for a listener."""


def _pipe(stream: Any) -> int:
    descriptor: int = stream.fileno()
    os.set_blocking(descriptor, False)
    return descriptor


def _shown(failure: Failure, curtain: Curtain, places: Mapping[str, str]) -> Failure:
    return replace(failure, message=same_every_time(curtain(failure.message), places), hint=curtain(failure.hint))
