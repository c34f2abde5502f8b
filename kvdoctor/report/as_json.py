"""The report as JSON, its schema, and the way back."""

import json
from importlib import resources
from typing import Any, cast

from kvdoctor.diagnosis import SCHEMA_VERSION, Diagnosis
from kvdoctor.errors import BadRequest
from kvdoctor.plain import from_plain, to_plain

_AGAIN = "Write it again with `kvdoctor inspect --format json`."


def render_json(diagnosis: Diagnosis) -> str:
    """Render the report; ASCII only, so that no terminal or pipe can misread it."""
    return json.dumps(to_plain(diagnosis), indent=2, allow_nan=False) + "\n"


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
        return from_plain(Diagnosis, data)
    except ValueError as error:
        raise BadRequest(f"{what} does not have the shape of one: {error}", hint=_AGAIN) from error


def load_schema() -> dict[str, Any]:
    """Load the JSON Schema of the report."""
    text = resources.files("kvdoctor.report").joinpath("schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
