"""The worker's own side: import vLLM once, fork a child per request, pass its answer on.

Started by ``start.py``. Requests come on stdin and replies leave on stdout (``workers/protocol.py``); what vLLM prints goes to stderr.
The worker ends when stdin does, and takes its children with it.
"""

import ctypes
import gc
import importlib
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from kvdoctor.dryrun.own_code import brings_code
from kvdoctor.errors import Bug, KvdoctorError, Unassessed
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.workers.protocol import Ask, AtStep, Failed, Planned, Ready, Reply, encode, event_of, failure, imported, read_ask

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 2**16


@dataclass
class _Child:
    """A request under way. ``pipe`` is the reading end of the child's replies."""

    pid: int
    pipe: int
    request_id: int
    ends_at: float
    timeout_seconds: float
    brings_code: bool
    step: str = "starting"
    unread: bytearray = field(default_factory=bytearray)
    answered: bool = False


def main() -> None:
    """Serve until stdin closes."""
    _die_with_parent()
    replies = _claim_stdout()
    os.environ.setdefault("VLLM_HAS_FLASHINFER_CUBIN", "1")  # vLLM's official image has the cubins; without them backends differ
    os.environ["HUMMING_DISABLE_PARALLEL_BUILD"] = "1"  # importing this dependency of vLLM 0.33 starts compilers in the background
    try:
        from kvdoctor.dryrun import install

        install.prepare()
        import vllm
    except Exception as error:  # whatever a broken installation raises is the answer
        what = f"vLLM cannot be imported: {type(error).__name__}: {error}"
        _fail(replies, None, Unassessed(what, hint="Install it whole: pip install 'kvdoctor[vllm]'."))
        raise
    _send(replies, Ready(vllm_version=vllm.__version__))
    _Server(replies).serve()
    # Interpreter teardown with vLLM imported takes seconds, and there is nothing to save.
    os._exit(0)


class _Server:
    """Requests in, children's replies out."""

    def __init__(self, replies: BinaryIO) -> None:
        self._replies = replies
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._unread = bytearray()
        self._gpu: Any = None

    def serve(self) -> None:
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            wait = min((child.ends_at - now for child in self._children.values()), default=None)
            for key, _ in self._selector.select(None if wait is None else max(0.0, wait)):
                if key.fd == sys.stdin.fileno():
                    if not self._take_requests():
                        self._end_all()
                        return
                else:
                    self._pass_on(self._children[key.fd])
            self._end_late()

    def _take_requests(self) -> bool:
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
        self._unread += data
        *lines, rest = self._unread.split(b"\n")
        self._unread = bytearray(rest)
        for line in lines:
            self._start(read_ask(bytes(line)))
        return bool(data)

    def _start(self, ask: Ask) -> None:
        request = ask.request
        if self._gpu is None:
            self._prepare_for(request)
        if request.gpu != self._gpu:
            # Layers read the capability when their modules are imported: the answers would be for another device.
            what = f"this worker stands for {self._gpu.name}, not {request.gpu.name}"
            _fail(self._replies, ask.id, Bug(what, hint="Start a worker for each GPU."))
            return
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _child_main(ask, write_end)
        os.close(write_end)
        ends_at = time.monotonic() + ask.timeout_seconds
        child = _Child(pid, read_end, ask.id, ends_at, ask.timeout_seconds, brings_code(request))
        self._children[read_end] = child
        self._selector.register(read_end, selectors.EVENT_READ)

    def _prepare_for(self, request: LaunchRequest) -> None:
        from kvdoctor.dryrun import arguments, device, install

        self._gpu = request.gpu
        device.assume(request.gpu, gpu_count=1)
        install.prepare_for_device()
        _ahead(arguments.prepare)
        # What every child shares is not looked through by its garbage collector, which would copy each page that it looks at.
        gc.collect()
        gc.freeze()

    def _pass_on(self, child: _Child) -> None:
        data = os.read(child.pipe, _READ_BYTES)
        child.unread += data
        *lines, rest = child.unread.split(b"\n")
        child.unread = bytearray(rest)
        for line in lines:
            event, told = event_of(bytes(line))
            if event == "imported":
                if not child.brings_code:
                    _share(told)
                continue
            if event == "step":
                child.step = told
            else:
                child.answered = True
            self._replies.write(line + b"\n")
            self._replies.flush()
        if not data:
            self._reap(child)

    def _reap(self, child: _Child) -> None:
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        del self._children[child.pipe]
        _, status = os.waitpid(child.pid, 0)
        if not child.answered:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.waitstatus_to_exitcode(status)}"
            error: KvdoctorError = Bug(
                f"the dry launch died at '{child.step}' ({how})",
                hint="Please report this with the command line; -v shows what vLLM printed.",
            )
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                hint = "The machine was probably out of memory: close other programs, or check fewer deployments at once."
                error = Unassessed(error.message, hint=hint)
            if not os.WIFSIGNALED(status) and child.brings_code:
                error = Unassessed(error.message, hint="Code that comes with the launch ended the process; -v shows what it wrote.")
            _fail(self._replies, child.request_id, error)

    def _end_late(self) -> None:
        now = time.monotonic()
        for child in list(self._children.values()):
            if child.ends_at <= now:
                child.answered = True
                _kill(child.pid)
                self._reap(child)
                what = f"no answer within {child.timeout_seconds:g} s; it was at '{child.step}'"
                _fail(self._replies, child.request_id, Unassessed(what, hint="Give it longer with --timeout SECONDS."))

    def _end_all(self) -> None:
        for child in self._children.values():
            _kill(child.pid)
            os.waitpid(child.pid, 0)


def _child_main(ask: Ask, pipe: int) -> None:
    """One request, in a process of its own that ends without interpreter teardown (it takes seconds, and there is nothing to save)."""
    os.setpgid(0, 0)
    _die_with_parent()
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - for the life of the process
    request = ask.request
    with os.fdopen(pipe, "wb") as replies:
        from kvdoctor.dryrun import memory
        from kvdoctor.dryrun.confine import confine
        from kvdoctor.dryrun.session import assess

        confine(network=not request.offline and request.model is not None and request.model.kind == "hub")
        memory.bound()
        at = ["starting"]

        def report(step: str) -> None:
            at.append(step)
            _send(replies, AtStep(id=ask.id, step=step))

        known = set(sys.modules)
        try:
            _send(replies, Planned(id=ask.id, plan=assess(ask, report)))
            replies.write(imported(sorted(name for name in sys.modules.keys() - known if name.startswith("vllm."))))
            replies.flush()
        except KvdoctorError as error:
            _trace()
            _fail(replies, ask.id, error)
        except BaseException as error:  # noqa: BLE001 - the child's last word; nothing above it could report
            _trace()
            _fail(replies, ask.id, _last_words(error, at[-1], request))
    sys.stderr.flush()
    os._exit(0)


def _last_words(error: BaseException, step: str, request: LaunchRequest) -> KvdoctorError:
    """Tell what ended a child that nothing has judged: memory, the launch's own code (``sys.exit`` is no ``Exception``), or our own."""
    from kvdoctor.dryrun import memory, own_code

    try:
        memory.raise_if_out(error, step)
        own_code.raise_if_own(error, step, request)
    except KvdoctorError as known:
        return Unassessed(known.message, hint=known.hint)
    return Bug(f"{type(error).__name__}: {error}", hint="Please report this with the command line.")


def _share(modules: list[str]) -> None:
    """Import here what a child had to: the next child shares it. A model's modules are a third of the time that its plan takes."""
    new = [name for name in modules if name not in sys.modules]
    if not new or not _import_quietly_in_a_fork(new):
        return
    for name in new:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _import_quietly_in_a_fork(names: list[str]) -> bool:
    """Whether the modules can be imported before a launch: some ask for a CUDA context then, and would take themselves for useless."""
    from kvdoctor.dryrun.stand_in import asked_in_vain

    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        before, code = len(asked_in_vain), 1
        try:
            for name in names:
                importlib.import_module(name)
            code = 0 if len(asked_in_vain) == before else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return status == 0


def _ahead(what: Any, *arguments: Any) -> None:
    """Do for all children what each would do; where it fails, the child in need of it says why."""
    try:
        what(*arguments)
    except Exception:  # noqa: BLE001 - whatever is wrong is told where it matters
        _trace()


def _trace() -> None:
    import traceback

    traceback.print_exc()


def _fail(replies: BinaryIO, request_id: int | None, error: KvdoctorError) -> None:
    _send(replies, Failed(id=request_id, failure=failure(error)))


def _send(replies: BinaryIO, message: Reply) -> None:
    replies.write(encode(message))
    replies.flush()


def _claim_stdout() -> BinaryIO:
    """Keep the reply pipe to ourselves: from here on, whatever prints to stdout prints to stderr."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent is gone (Linux): a killed command leaves nothing behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
