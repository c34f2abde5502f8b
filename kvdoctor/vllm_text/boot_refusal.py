"""Why a boot failed, as its log has it: the exception that vLLM raised, not those that follow from it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvdoctor.vllm_text.figures import Value, number
from kvdoctor.vllm_text.log_lines import LogLine

_MAX_LINES = 8
_MAX_CHARACTERS = 2_000
_FAILED = re.compile(
    r"EngineCore failed to start|WorkerProc failed to start|EngineCore encountered a fatal error|WorkerProc hit an exception"
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w{0,60}\.){0,8}(?P<name>[A-Z]\w{0,80}(?:Error|Exception|Timeout|Interrupt))(?:: ?(?P<words>.*))?$")
# Raised because another process failed: the words are there, further up.
_SECONDARY = re.compile(
    r"Engine core initialization failed|Engine process failed to start|Worker failed with error|WorkerProc initialization failed"
    r"|Executor failed|API server exited"
)
_OVER = re.compile(r"^(?:Traceback \(|During handling|The above exception|For further information|\s*For further information|$)")
# What a validator of pydantic adds to vLLM's words.
_PYDANTIC = re.compile(r"^\s*(?:Value error|Assertion failed), |\s{0,8}\[type=\w+, input_value=.*$", re.DOTALL)

NEEDED = re.compile(r"([\d.]{1,20}) GiB KV\s+cache is needed")
LARGEST = re.compile(r"estimated maximum model length is ([\d,]{1,20})")


@dataclass(frozen=True, kw_only=True)
class BootRefusal:
    """The exception's own name, without its module, and its words."""

    exception: str
    message: str


def refusal_figures(message: str) -> dict[str, Value]:
    """Read the figures that vLLM's words on a lack of memory hold."""
    found = {"needed_gib": NEEDED.search(message), "estimated_max_model_len": LARGEST.search(message)}
    return {key: number(match[1].rstrip(".")) for key, match in found.items() if match}


def read_boot_refusal(lines: Sequence[LogLine]) -> BootRefusal | None:
    """Find what ended a boot: the exception of the first process that says it failed, or else of the last traceback."""
    start = next((at for at, line in enumerate(lines) if _FAILED.search(line.text)), None)
    if start is not None and (found := _last_exception(_same_record(lines, start))):
        return found
    traces = [at for at, line in enumerate(lines) if line.text.startswith("Traceback (most recent call last)")]
    return next((found for at in traces if (found := _last_exception(lines[at:]))), None)


def _same_record(lines: Sequence[LogLine], start: int) -> list[LogLine]:
    """Take what the process wrote from the same place of its source: each line of a traceback has the record's head in front."""
    head = lines[start]
    block = []
    for line in lines[start:]:
        if line.process != head.process:
            continue
        if line.place != head.place and line.place is not None:
            break
        block.append(line)
    return block


def _last_exception(lines: Sequence[LogLine]) -> BootRefusal | None:
    last = None
    for at, line in enumerate(lines):
        found = _EXCEPTION.match(line.text)
        if found and not _SECONDARY.search(line.text):
            last = BootRefusal(exception=found["name"], message=_words(found["words"] or "", lines[at + 1 :], line))
    return last


def _words(first: str, following: Sequence[LogLine], head: LogLine) -> str:
    """Join a message that runs over several lines."""
    words = [first]
    for line in following:
        if line.process != head.process:
            continue
        ends = _OVER.match(line.text) or _EXCEPTION.match(line.text) or line.place != head.place
        if ends or len(words) == _MAX_LINES:
            break
        words.append(line.text)
    if re.match(r"\d+ validation errors? for ", first) and len(words) > 1:
        words = [_PYDANTIC.sub("", word) for word in words[1:]]
    return " ".join(" ".join(words).split())[:_MAX_CHARACTERS]
