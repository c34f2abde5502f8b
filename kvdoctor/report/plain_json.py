"""Comparisons, sweeps and verified boots as JSON, and their schemas."""

import json
from importlib import resources
from typing import Any, Literal, cast

from kvdoctor.plain import to_plain
from kvdoctor.report.untrusted import json_text


def render_plain_json(value: object) -> str:
    """Render a frozen dataclass; ASCII only, so that no terminal or pipe can misread it."""
    return json_text(json.dumps(to_plain(value), indent=2, allow_nan=False)) + "\n"


def load_schema_of(what: Literal["compare", "compare_all", "sweep", "verify"]) -> dict[str, Any]:
    """Load the JSON Schema of what a command writes."""
    text = resources.files("kvdoctor.report").joinpath(f"{what}_schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
