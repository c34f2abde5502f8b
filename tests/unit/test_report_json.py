"""The JSON report has the contract's keys, fits its schema, and can be read back."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from kvdoctor.diagnosis import Diagnosis, diagnose
from kvdoctor.errors import BadRequest
from kvdoctor.plan import Plan
from kvdoctor.report import FORMATS
from kvdoctor.report.as_json import load_schema, read_json, render_json
from tests.unit import plans
from tests.unit.strategies import any_plans

SCHEMA = load_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

# CONTRACT: other people's scripts read these names.
CONTRACT = {
    "": "schema_version kvdoctor_version verdict request engine layout memory refusal findings vllm_log",
    "request": "model vllm_args gpu tensor_parallel_size pipeline_parallel_size max_model_len",
    "engine": "vllm_version source platform compute_capability attention_backends kv_cache_layout",
    "layout": (
        "groups scheduler_block_size hash_block_size prefix_hit_tokens min_reusable_prefix_tokens prefix_caching bytes_per_block "
        "num_blocks kv_cache_tokens max_concurrency blocks_per_request padding_layers"
    ),
    "layout.groups.0": (
        "index kind spec layer_names layer_count padding_layers block_size page_bytes used_bytes wasted_bytes wasted_percent "
        "prefix_cacheable blocks_per_request draft"
    ),
    "memory": "gpu_bytes weights_bytes kv_cache_bytes kv_cache_source needed_for_max_model_len_bytes estimated_max_model_len",
    "refusal": "stage exception message",
    "findings.0": "rule name severity message remediation evidence url",
    "vllm_log.0": "level message",
}


def diagnosis_of(plan: Plan) -> Diagnosis:
    return diagnose(plans.request(), plan)


def report(plan: Plan) -> Any:
    return json.loads(render_json(diagnosis_of(plan)))


@pytest.mark.parametrize("where", CONTRACT)
def test_the_contracts_keys_are_there(where: str) -> None:
    log = dataclasses.replace(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL, vllm_log=(plans.LOG_RECORD,))
    part = report(log)
    for key in filter(None, where.split(".")):
        part = part[int(key)] if key.isdigit() else part[key]
    assert set(CONTRACT[where].split()) <= set(part)


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_leaves_no_object_open_but_those_with_names_of_others() -> None:
    objects = [SCHEMA, *SCHEMA["$defs"].values()]
    assert all(part["additionalProperties"] is False and part["required"] == list(part["properties"]) for part in objects)
    free = [f"{name}.{key}" for name, part in SCHEMA["$defs"].items() for key, value in part["properties"].items() if _is_map(value)]
    assert sorted(free) == [
        "EngineReport.attention_backend_layers",
        "Finding.evidence",
        "GroupLayout.backends",
        "LayerPlan.fields",
        "RequestReport.environment",
    ]


def _is_map(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object"


def test_an_added_key_does_not_fit_the_schema() -> None:
    changed = report(plans.llama())
    changed["layout"]["groups"][0]["page_size"] = 1
    assert [error.message for error in VALIDATOR.iter_errors(changed)] == [
        "Additional properties are not allowed ('page_size' was unexpected)"
    ]


@given(any_plans())
def test_any_report_fits_the_schema_and_is_read_back_equal(plan: Plan) -> None:
    diagnosis = diagnosis_of(plan)
    text = render_json(diagnosis)
    assert [error.message for error in VALIDATOR.iter_errors(json.loads(text))] == []
    assert read_json(text) == diagnosis


def test_bytes_and_tokens_are_integers_and_percentages_floats() -> None:
    hidden = report(plans.pull_request_51108())["layout"]["groups"][2]
    assert (hidden["wasted_bytes"], hidden["wasted_percent"]) == (278_528, 25.0)
    assert (type(hidden["wasted_bytes"]), type(hidden["wasted_percent"])) == (int, float)


def test_a_lone_surrogate_from_a_model_does_not_break_the_report() -> None:
    made = plans.plan(plans.group((plans.layer("layers.0\ud800"),)))
    render_json(diagnosis_of(made)).encode("ascii")


def test_the_formats_are_registered_by_the_contracts_names() -> None:
    assert {"table", "json", "markdown"} <= set(FORMATS)
    diagnosis = diagnosis_of(plans.llama())
    assert FORMATS["json"](diagnosis, width=1, color=True) == render_json(diagnosis)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "schema_version None"),
        ('{"schema_version": 2}', "schema_version 2"),
        ('{"schema_version": 1}', "Diagnosis lacks kvdoctor_version"),
    ],
)
def test_a_text_that_is_no_report_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_json(text)
