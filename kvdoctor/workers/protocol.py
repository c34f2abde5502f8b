"""What a worker and its client say to each other: one JSON object a line, each a dataclass here.

To the worker: :class:`Ask`. From it: :class:`Ready` once vLLM is imported, then for each request any number of :class:`AtStep`, and one
:class:`Planned` or :class:`Failed`. A failure of no request ends the worker. Several requests may be under way.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from kvdoctor.errors import BadRequest, Bug, KvdoctorError, Unassessed
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plain import from_plain, to_plain
from kvdoctor.plan import Plan

REPORT = "Please report this."

Kind = Literal["bad_request", "unassessed", "bug"]
_ERRORS: dict[Kind, type[KvdoctorError]] = {"bad_request": BadRequest, "unassessed": Unassessed, "bug": Bug}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A launch to plan. ``source`` and ``notes`` are what the client knows of the engine: the plan repeats them."""

    id: int
    request: LaunchRequest
    source: str
    notes: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True, kw_only=True)
class Ready:
    """VLLM is imported."""

    vllm_version: str


@dataclass(frozen=True, kw_only=True)
class AtStep:
    """What a request is at."""

    id: int
    step: str


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The answer to a request; a refusal by vLLM is part of the plan."""

    id: int
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An error on its way to the other process."""

    kind: Kind
    message: str
    hint: str

    @property
    def error(self) -> KvdoctorError:
        """The error it was."""
        return _ERRORS[self.kind](self.message, hint=self.hint)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """No answer to a request could be had; without a number, to any."""

    id: int | None
    failure: Failure


Reply = Ready | AtStep | Planned | Failed
_REPLIES: dict[str, type[Reply]] = {"ready": Ready, "step": AtStep, "plan": Planned, "failure": Failed}


def failure(error: KvdoctorError) -> Failure:
    """Make ``error`` ready to be sent."""
    kind: Kind = next((kind for kind, known in _ERRORS.items() if isinstance(error, known)), "bug")
    return Failure(kind=kind, message=error.message, hint=error.hint)


def encode(message: Ask | Reply) -> bytes:
    """Write a message as a line."""
    named = next(({"event": event} for event, kind in _REPLIES.items() if isinstance(message, kind)), {})
    return json.dumps(named | to_plain(message)).encode("ascii") + b"\n"


def read_ask(line: bytes) -> Ask:
    """Read what a client sent."""
    return from_plain(Ask, json.loads(line))


def event_of(line: bytes) -> tuple[str, Any]:
    """Give the kind of a message from a worker's child, and the step that it tells of or the modules, without reading a plan as well."""
    message: dict[str, Any] = json.loads(line)
    return message["event"], message.get("step", message.get("modules"))


def imported(modules: list[str]) -> bytes:
    """Write what a child tells its worker after its answer: the modules that it had to import, so that the next finds them there."""
    return json.dumps({"event": "imported", "modules": modules}).encode("ascii") + b"\n"


def read_reply(line: bytes) -> Reply:
    """Read what a worker sent.

    Raises:
        Bug: it is none of these messages.

    """
    try:
        message: dict[str, Any] = json.loads(line)
        kind = _REPLIES[message["event"]]
    except (ValueError, TypeError, KeyError):
        shown = line[:200].decode("utf-8", errors="replace")
        raise Bug(f"the worker sent something that is not its protocol: {shown}", hint=REPORT) from None
    try:
        reply: Reply = from_plain(kind, message)
    except (ValueError, TypeError) as error:
        raise Bug(f"the worker's {message['event']} has not the expected shape: {error}", hint=REPORT) from None
    return reply
