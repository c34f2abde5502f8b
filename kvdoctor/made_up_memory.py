"""A plan less what vLLM said about memory that no GPU has.

Weights that do not fit leave nothing for a KV cache; the layout is planned all the same, with a budget that was made up. vLLM's word about
that budget is no word about the deployment: the weights are what keeps it from launching.
"""

import dataclasses
import re

from kvdoctor.plan import Check, Plan
from kvdoctor.rules.refusal_text import ContextDoesNotFit, NoMemoryForBlocks, TooManySequences, read_refusal

_ABOUT_MEMORY = re.compile(r"GPU KV cache size|[Mm]aximum concurrency|KV cache memory|num_gpu_blocks|Mamba cache blocks")
_NOT_CHECKED = "the weights do not fit, so there is no real memory to check"


def without_made_up_memory(plan: Plan) -> Plan:
    """Drop vLLM's figures, log lines and refusal about memory from a plan whose weights do not fit; other plans stay as they are."""
    if plan.memory.weights_fit is not False:
        return plan
    log = tuple(record for record in plan.vllm_log if not _ABOUT_MEMORY.search(record.message))
    plan = dataclasses.replace(plan, vllm_log=log, memory=dataclasses.replace(plan.memory, estimated_max_model_len=None))
    if not isinstance(read_refusal(plan.refusal), ContextDoesNotFit | TooManySequences | NoMemoryForBlocks):
        return plan
    checks = tuple(
        Check(name=check.name, outcome="not_checked", note=_NOT_CHECKED) if check.outcome == "refused" else check for check in plan.checks
    )
    return dataclasses.replace(plan, refusal=None, checks=checks)
