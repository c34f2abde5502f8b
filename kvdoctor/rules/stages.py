"""Pipeline stages that lack the layers which settle blocks and pages."""

import re

from kvdoctor.plan import Plan


def stage_advice(plan: Plan, message: str) -> str:
    """Name the pipeline stages that have no attention layer, where a refusal is about blocks or pages, which those layers settle."""
    stages = stages_without_attention(plan)
    if not stages or not re.search(r"block|page", message, re.IGNORECASE):
        return ""
    which = f"pipeline stage {stages[0]} has" if len(stages) == 1 else f"pipeline stages {', '.join(map(str, stages))} have"
    return f"; {which} no attention layer: change --pipeline-parallel-size or VLLM_PP_LAYER_PARTITION"


def stages_without_attention(plan: Plan) -> tuple[int, ...]:
    """The pipeline stages whose KV layers are recurrent only, while other stages have attention layers."""
    if len(plan.stages) == 1 or sum(stage.layer_count for stage in plan.stages) != len(plan.layers):
        return ()
    without, start = [], 0
    for stage in plan.stages:
        layers = plan.layers[start : start + stage.layer_count]
        start += stage.layer_count
        if layers and all(layer.kind == "mamba" for layer in layers):
            without.append(stage.index)
    return tuple(without) if len(without) < len(plan.stages) else ()
