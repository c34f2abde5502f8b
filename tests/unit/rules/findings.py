"""What tests of rules share: vLLM's refusals, and a rule's findings on a plan."""

import dataclasses
from typing import Any

from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import Plan
from kvdoctor.rules import Finding
from tests.unit import plans

CONTEXT_REFUSAL = (
    "To serve at least one request with the model's max seq len (131072), (13.32 GiB KV cache is needed, which is larger than the "
    "available KV cache memory (12.0 GiB). Based on the available memory, the estimated maximum model length is 109472. "
    "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` "
    "when initializing the engine."
)
SEQUENCES_REFUSAL = (
    "max_num_seqs (1024) exceeds available Mamba cache blocks (758). Each decode sequence requires one Mamba cache block, so CUDA graph "
    "capture cannot proceed. Please lower max_num_seqs to at most 758 or increase gpu_memory_utilization."
)
PAGE_REFUSAL = (
    "Layer draft.layers.0.self_attn.attn: page size is not divisible by the maximum page size and cannot be padded. "
    "Padding is only supported for non-MLA attention layers."
)
REMOTE_CODE_REFUSAL = (
    "Failed to load the model config. If the model is a custom model not yet available in the HuggingFace transformers library, consider "
    "setting `trust_remote_code=True` in LLM or using the `--trust-remote-code` flag in the CLI."
)
NO_MEMORY_REFUSAL = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def found(plan: Plan, rule: str, **request: Any) -> list[Finding]:
    return [finding for finding in diagnose(plans.request(**request), plan).findings if finding.rule == rule]


def the(plan: Plan, rule: str, **request: Any) -> Finding:
    """The rule's only finding, which is also the only error."""
    made = diagnose(plans.request(**request), plan).findings
    (finding,) = [finding for finding in made if finding.rule == rule]
    assert [other.rule for other in made if other.severity == "error"] in ([], [rule])
    return finding


def reason(plan: Plan, rule: str) -> str | None:
    """Why the rule was skipped."""
    skipped = diagnose(plans.request(), plan).skipped_rules
    return next((other.reason for other in skipped if other.rule == rule), None)


def settled_but(plan: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(plan, **changes)
