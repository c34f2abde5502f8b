"""The options that commands share, each declared once, and what they mean."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvdoctor.errors import EXIT_FINDING, EXIT_OK, EXIT_UNASSESSED

DEFAULT_TIMEOUT_SECONDS = 300.0


class Format(StrEnum):
    """What a report is written as."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


class ListFormat(StrEnum):
    """What a list is written as."""

    TABLE = "table"
    JSON = "json"


class FailOn(StrEnum):
    """From which severity on a finding makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class Usage(StrEnum):
    """How vLLM is started: its defaults for batch sizes differ."""

    SERVE = "serve"
    LLM = "llm"


Model = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="A hub id (org/name, org/name@revision), a directory with a config.json, or a config.json."),
]
Vllm = Annotated[
    str | None,
    typer.Option(
        "--vllm",
        metavar="ENGINE",
        help="Which vLLM answers: the installed one if not given, a release (0.27.1, fetched if need be), a checkout, or python:PATH.",
    ),
]
GpuName = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="The GPU to assume: see `kvdoctor gpus`, or CAPABILITY:MEMORY. [h100-80g]")
]
KvCacheMemory = Annotated[
    str | None, typer.Option("--kv-cache-memory", metavar="SIZE", help="The exact KV-cache budget per GPU (40GiB), instead of an estimate.")
]
UsageContext = Annotated[Usage, typer.Option("--usage", help="Plan for `vllm serve` or for the LLM class.")]
Specs = Annotated[
    Path | None, typer.Option("--specs", metavar="FILE", help="Layer specs as JSON, by vLLM's class and field names; no model is needed.")
]
ArgsFile = Annotated[
    Path | None,
    typer.Option(
        "--args-file", metavar="FILE", help="vLLM's arguments or its whole command, as in a shell script; before those that follow --."
    ),
]
ListFormatOption = Annotated[ListFormat, typer.Option("--format", help="What to write.")]
ReportFormat = Annotated[Format, typer.Option("--format", help="What to write.")]
Details = Annotated[bool, typer.Option("--details", help="Show layer names, settings, assumptions and steps as well.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE instead of stdout.")]
Select = Annotated[list[str] | None, typer.Option("--select", metavar="RULES", help="Run only these rules: ids or prefixes, with commas.")]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", metavar="RULES", help="Leave these rules out: ids or prefixes, with commas.")]
FailOnSeverity = Annotated[FailOn, typer.Option("--fail-on", help="Exit with 1 on a finding at or above this severity.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Let vLLM run code from the model's repository.")]
NoSuggest = Annotated[bool, typer.Option("--no-suggest", help="Do not have vLLM plan what the findings advise.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use no network: not for a hub id, nor to fetch a release.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1, max=86400, help="Give up on a plan after this long.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what vLLM wrote, and tracebacks.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show neither progress nor notes.")]


def rule_selectors(values: Iterable[str] | None) -> tuple[str, ...]:
    """Split ``--select KV1,KV202 --select KV4`` into its parts."""
    return tuple(part for value in values or () for part in value.split(","))


def exit_code(verdict: str, severities: Iterable[str], fail_on: FailOn) -> int:
    """Turn a verdict and its findings into the exit code of the contract. vLLM's refusal counts as an error."""
    if verdict == "unassessed":
        return EXIT_UNASSESSED
    seen = {*severities, *(["error"] if verdict in ("refused", "failed") else [])}
    failing = {FailOn.ERROR: {"error"}, FailOn.WARNING: {"error", "warning"}, FailOn.NEVER: set()}[fail_on]
    return EXIT_FINDING if seen & failing else EXIT_OK
