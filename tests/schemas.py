"""The JSON schemas that ship with kvdoctor, made from the dataclasses whose shape they are."""

import json
from typing import Any

import msgspec

from kvdoctor.compare.interface import Comparison
from kvdoctor.compare.many import ManyComparison
from kvdoctor.diagnosis import Diagnosis
from kvdoctor.sweep import Sweep
from kvdoctor.trial import Trial
from kvdoctor.verify import Verification

# By the file's name: what is written, and the command that writes it.
SHIPPED: dict[str, tuple[type, str]] = {
    "schema.json": (Diagnosis, "kvdoctor inspect"),
    "compare_schema.json": (Comparison, "kvdoctor compare"),
    "compare_all_schema.json": (ManyComparison, "kvdoctor compare --all"),
    "sweep_schema.json": (Sweep, "kvdoctor sweep"),
    "verify_schema.json": (Verification, "kvdoctor verify"),
    "trial_schema.json": (Trial, "kvdoctor engines test"),
}


def schema_text(name: str) -> str:
    """Give the text of a schema file."""
    kind, command = SHIPPED[name]
    made = msgspec.json.schema(kind)
    definitions: dict[str, Any] = made["$defs"]
    for definition in definitions.values():
        # Every key is always written, and no other.
        if "properties" in definition:
            definition |= {"required": list(definition["properties"]), "additionalProperties": False}
    root = definitions.pop(kind.__name__)
    root["properties"]["schema_version"] = {"const": 1}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": f"What `{command} --format json` writes, schema version 1",
        "$defs": definitions,
    }
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"
