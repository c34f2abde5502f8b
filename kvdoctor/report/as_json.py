"""The report as JSON, its schema, and the way back."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any, cast

from kvdoctor.conceal import with_texts
from kvdoctor.diagnosis import SCHEMA_VERSION, Diagnosis
from kvdoctor.errors import BadRequest
from kvdoctor.plain import from_plain, to_plain
from kvdoctor.report.untrusted import json_text
from kvdoctor.secrets import curtain_for, hide_arguments, hide_environment

# Bytes of a thousand times the largest cluster, and far from where a float loses count of percents.
_MOST = 10**18
_AGAIN = "Write it again with `kvdoctor inspect --format json`."


def render_json(diagnosis: Diagnosis) -> str:
    """Render the report; ASCII only, so that no terminal or pipe can misread it."""
    return json_text(json.dumps(to_plain(diagnosis), indent=2, allow_nan=False)) + "\n"


def read_json(text: str) -> Diagnosis:
    """Read a report that :func:`render_json` wrote.

    Raises:
        BadRequest: the text is no report of this schema version.

    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"the saved report is not JSON: {error}", hint=_AGAIN) from error
    return read_report(data)


def read_report(data: object, *, what: str = "the saved report") -> Diagnosis:
    """Read a report from its parsed JSON; ``what`` names it in the error.

    Raises:
        BadRequest: the data is no report of this schema version.

    """
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise BadRequest(f"{what} has schema_version {version!r}, and this kvdoctor reads {SCHEMA_VERSION}", hint=_AGAIN)
    try:
        _refuse_absurd(data, what)
        return _conceal(from_plain(Diagnosis, data))
    except ValueError as error:
        raise BadRequest(f"{what} does not have the shape of one: {error}", hint=_AGAIN) from error


def _refuse_absurd(data: object, what: str) -> None:
    """Refuse numbers that no launch has, and that arithmetic on the report would fail at.

    Raises:
        BadRequest: there is one.

    """
    level: list[tuple[str, object]] = [("", data)]
    while level:
        for where, value in level:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if number and not -_MOST <= value <= _MOST:  # type: ignore[operator]  # NaN is not within either
                raise BadRequest(f"{what} has a number that no report has: {where.removeprefix('.')} is beyond {_MOST:,}", hint=_AGAIN)
        level = [(f"{where}.{key}", item) for where, value in level if isinstance(value, dict) for key, item in value.items()] + [
            (f"{where}[{index}]", item) for where, value in level if isinstance(value, list) for index, item in enumerate(value)
        ]


def load_schema() -> dict[str, Any]:
    """Load the JSON Schema of the report."""
    text = resources.files("kvdoctor.report").joinpath("schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def _conceal(report: Diagnosis) -> Diagnosis:
    """Hide the secrets of a saved report: one by another hand, or by a kvdoctor that kept them."""
    request = report.request
    curtain = curtain_for(request.vllm_args, request.environment)
    request = replace(request, vllm_args=hide_arguments(request.vllm_args), environment=hide_environment(request.environment))
    findings = tuple(
        replace(finding, message=curtain(finding.message), remediation=curtain(finding.remediation)) for finding in report.findings
    )
    launch = replace(report.launch, model=curtain(report.launch.model))
    return replace(with_texts(report, curtain, curtain), request=request, findings=findings, launch=launch)
