"""A start-up log's lines, freed of what a terminal, a container runtime or a journal put around them.

A log is written by whoever ran the server, and may have been edited by whoever sends it: it is cut to a size, never evaluated, and no
escape of it goes any further than this module.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINE_CHARACTERS = 100_000

# Colours as vLLM writes them, as rsyslog spells them (``#033[``), and what is left of them where a viewer dropped the escape itself.
_COLOR = re.compile(r"(?:\x1b|#033|\^\[)?\[[0-9]{1,3}(?:;[0-9]{1,3}){0,8}m")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# ``docker compose logs`` puts the service in front and a bar behind it; ``kubectl logs --prefix`` the pod in brackets.
_SOURCE = re.compile(r"^(?:(?P<service>[\w.-]{1,128}) {0,64}\| ?|\[pod/(?P<pod>[\w./-]{1,256})\] )")
# ``--timestamps`` of docker and kubectl; containerd's own files add the stream and a flag.
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? (?:(?:stdout|stderr) [FP] )?")
_JOURNAL = re.compile(r"^(?:\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,32}) [\w.-]{1,64} [\w.@/-]{1,64}(?:\[\d{1,10}\])?: ")
_PROCESS = re.compile(r"^\((?P<process>[A-Za-z][\w .=-]{0,60}?) pid=\d{1,10}(?:, ip=[\w.:]{1,64})?\) ?")
_HEAD = re.compile(
    r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})? )?"
    r"\[(?P<place>[^\]\s]{1,200}:\d{1,6})\] ?"
)


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line: who wrote it (service or pod, process), at which place of vLLM's source, and what.

    ``place`` is ``None`` where the line is no record of vLLM's logger: a traceback, another program's words.
    """

    source: str | None
    process: str | None
    place: str | None
    text: str


def read_lines(text: str) -> Iterator[LogLine]:
    """Split a log into its lines."""
    for raw in text.split("\n"):
        yield _read_line(raw[:MAX_LINE_CHARACTERS])


def _read_line(raw: str) -> LogLine:
    line = _CONTROL.sub("", _ESCAPE.sub("", _COLOR.sub("", _unwrapped(raw))))
    source = None
    if found := _SOURCE.match(line):
        source, line = found["service"] or found["pod"], line[found.end() :]
    for pattern in (_TIMESTAMP, _JOURNAL, _TIMESTAMP):
        if found := pattern.match(line):
            line = line[found.end() :]
    process = place = None
    if found := _PROCESS.match(line):
        process, line = found["process"], line[found.end() :]
    if found := _HEAD.match(line):
        place, line = found["place"], line[found.end() :]
    return LogLine(source=source, process=process, place=place, text=line)


def _unwrapped(raw: str) -> str:
    """Take the line out of docker's own log file, where each is a JSON object."""
    if not raw.startswith('{"log":'):
        return raw
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    inner = record.get("log") if isinstance(record, dict) else None
    return inner.rstrip("\n") if isinstance(inner, str) else raw
