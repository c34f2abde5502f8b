"""A real start-up log of vLLM, read: which launch it was, and what vLLM found."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvdoctor.launches.gpus import CATALOGUE
from kvdoctor.secrets import is_secret, without_secrets
from kvdoctor.vllm_text.boot_refusal import BootRefusal, read_boot_refusal
from kvdoctor.vllm_text.figures import Value, read_figures
from kvdoctor.vllm_text.log_lines import LogLine, read_lines
from kvdoctor.vllm_text.python_repr import NotReadable, read_repr

MAX_BYTES = 32 * 2**20

_VERSION = r"v?(?P<version>\d{1,4}\.[\w.+-]{1,60}?)"
# "vLLM API server version" until 0.16, a logo since then where the log is formatted, and one line where it is not.
_BANNER = re.compile(
    rf"vLLM (?:API )?server version {_VERSION}(?:, serving model (?P<model>\S{{1,400}}))?\s*$"
    rf"|[█▄▀]\s+version\s+{_VERSION.replace('version>', 'logo>')}\s*$"
)
_LOGO_MODEL = re.compile(r"[█▄▀]\s+model\s+(\S.{0,400}?)\s*$")
_ENGINE = re.compile(rf"Initializing a V1 LLM engine \({_VERSION}\) with config: (?:model='(?P<model>[^']{{1,400}})')?")
_ARGUMENTS = re.compile(r"non-default args: (?P<value>\{.*)$")
_AVAILABLE = re.compile(r"Available KV cache memory: (-?\d{1,6}\.\d{1,2}) GiB")
_AFTER_WARMUP = re.compile(r"Memory after warmup: .{0,600}?; (\d{1,12}) KV cache blocks \((\d{1,6}\.\d{1,2}) GiB\) fit")
_WEIGHTS = re.compile(r"Model loading took (\d{1,6}\.\d{1,6}) (?:GiB|GB)")


@dataclass(frozen=True, kw_only=True)
class BootLog:
    """One start of vLLM, as the log has it; ``None`` or empty where the log does not say.

    ``arguments`` are vLLM's by its own names, without secrets. ``available_gib`` is the KV-cache budget of each rank that printed one,
    rounded to two decimals by vLLM; ``measured_blocks`` what 0.34 counts after its warm-up, where it sizes the cache only then.
    ``starts`` counts the log's starts, and this is number ``start``.
    """

    starts: int
    start: int
    complete: bool
    version: str | None
    usage: str
    model: str | None
    arguments: dict[str, Any] | None
    arguments_unreadable: str | None
    gpus: tuple[str, ...]
    available_gib: tuple[float, ...]
    measured_blocks: int | None
    weights_gib: tuple[float, ...]
    figures: dict[str, tuple[Value, ...]]
    refusal: BootRefusal | None


@dataclass(kw_only=True)
class _Start:
    """The lines of one start, and which of its marks were seen: a mark that comes again begins the next one."""

    lines: list[LogLine] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)


def sources(text: str) -> tuple[str, ...]:
    """Name the services or pods in the log whose vLLM starts there."""
    return tuple(dict.fromkeys(line.source for line in read_lines(text) if line.source and _mark(line)))


def read_boot_log(text: str) -> BootLog | None:
    """Read the last complete start in a log, or the last one where none is complete; nothing if no vLLM started there."""
    starts = _starts(read_lines(text))
    found = [_read_start(start, number, len(starts)) for number, start in enumerate(starts, start=1)]
    return next((boot for boot in reversed(found) if boot.complete), found[-1] if found else None)


def release_of(version: str | None) -> str | None:
    """Give the release that a boot's version names; a development build names none."""
    found = re.fullmatch(r"(\d+\.\d+\.\d+(?:rc\d+|\.post\d+)?)(?:\+(?:cu|cpu|precompiled)\w*)?", version or "", re.ASCII)
    return found[1] if found else None


def _starts(lines: Iterable[LogLine]) -> list[_Start]:
    starts: list[_Start] = []
    before: list[LogLine] = []
    for line in lines:
        mark = _mark(line)
        if mark and (not starts or mark in starts[-1].marks or (mark == "banner" and starts[-1].marks)):
            starts.append(_Start())
        if not starts:
            before.append(line)
            continue
        if mark:
            starts[-1].marks.add(mark)
        starts[-1].lines.append(line)
    if starts:
        starts[0].lines[:0] = before  # what the machine said of itself (nvidia-smi) comes before
    return starts


def _mark(line: LogLine) -> str | None:
    if line.process and re.search(r"(?:ApiServer|APIServer)_[1-9]", line.process):
        return None  # another front end of the same start
    if _BANNER.search(line.text):
        return "banner"
    if _ARGUMENTS.search(line.text):
        return "arguments"
    return "engine" if _ENGINE.search(line.text) else None


def _read_start(start: _Start, number: int, starts: int) -> BootLog:
    lines = start.lines
    texts = [line.text for line in lines]
    banner, engine = _first(_BANNER, texts), _first(_ENGINE, texts)
    arguments, unreadable = _arguments(texts)
    figures = read_figures(texts)
    refusal = read_boot_refusal(lines)
    after = [match for text in texts if (match := _AFTER_WARMUP.search(text))]
    logo = _first(_LOGO_MODEL, texts)
    version = (banner and (banner["version"] or banner["logo"])) or (engine and engine["version"]) or None
    said = (
        (arguments or {}).get("model_tag"),
        (arguments or {}).get("model"),
        engine and engine["model"],
        banner and banner["model"],
        logo and logo[1],
    )
    serves = banner is not None or any(line.process and line.process.lower().startswith("apiserver") for line in lines)
    return BootLog(
        starts=starts,
        start=number,
        complete="kv_cache_tokens" in figures or refusal is not None,
        version=version,
        usage="serve" if serves or "model_tag" in (arguments or {}) else "llm",
        model=next((model for model in said if isinstance(model, str) and model), None),
        arguments=arguments,
        arguments_unreadable=unreadable,
        gpus=_gpus(texts),
        available_gib=_floats(_AVAILABLE, texts),
        measured_blocks=min((int(match[1]) for match in after), default=None),
        weights_gib=_floats(_WEIGHTS, texts),
        figures=figures,
        refusal=refusal,
    )


def _first(pattern: re.Pattern[str], texts: Sequence[str]) -> re.Match[str] | None:
    return next((match for text in texts if (match := pattern.search(text))), None)


def _floats(pattern: re.Pattern[str], texts: Sequence[str]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(float(match[1]) for text in texts if (match := pattern.search(text))))


def _arguments(texts: Sequence[str]) -> tuple[dict[str, Any] | None, str | None]:
    found = _first(_ARGUMENTS, texts)
    if found is None:
        return None, None
    try:
        value = read_repr(found["value"])
    except NotReadable as error:
        return None, str(error)
    return (_without_secrets(value), None) if isinstance(value, dict) else (None, "it is no dictionary")


def _without_secrets(value: Any) -> Any:
    """Leave out what a secret's name holds: unlike in a report, a placeholder here would be planned with."""
    if isinstance(value, dict):
        return {without_secrets(key): _without_secrets(item) for key, item in value.items() if not is_secret(key)}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value


def _gpus(texts: Sequence[str]) -> tuple[str, ...]:
    """Name the catalogue's GPUs whose product name the log holds: from nvidia-smi, or in the name of an MoE kernel's config file."""
    patterns = [(gpu.name, re.compile(re.escape(gpu.device_name).replace(r"\ ", "[ _]") + r"(?![\w-]| \w|_)")) for gpu in CATALOGUE]
    likely = [text for text in texts if "NVIDIA" in text or "Tesla" in text]
    return tuple(name for name, pattern in patterns if any(pattern.search(text) for text in likely))
