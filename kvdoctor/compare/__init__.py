"""Two reports -> what changed from one to the other, and whether that is worse."""

from dataclasses import replace

from kvdoctor import __version__
from kvdoctor.compare.figures import compare_figures
from kvdoctor.compare.findings import compare_findings, find_new_errors
from kvdoctor.compare.groups import compare_groups
from kvdoctor.compare.interface import SCHEMA_VERSION, Comparison, Limits, Side
from kvdoctor.compare.judge import comparison_line, hold_limits
from kvdoctor.compare.reasons import find_reasons
from kvdoctor.diagnosis import Diagnosis, verdict_line

__all__ = ["Comparison", "Limits", "compare"]

_NO_LIMITS = Limits()


def compare(before: Diagnosis, after: Diagnosis, limits: Limits = _NO_LIMITS) -> Comparison:
    """Compare two reports. Either may be of a launch that was refused: what it had not settled is ``None``."""
    changes, unchanged = compare_figures(before, after)
    groups = compare_groups(before, after)
    findings = compare_findings(before, after)
    regressions, unchecked = hold_limits(before, after, limits)
    made = Comparison(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version=__version__,
        verdict="",
        before=_side(before),
        after=_side(after),
        changes=changes,
        unchanged=unchanged,
        groups=groups,
        findings=findings,
        reasons=find_reasons(before, after, changes, groups_changed=bool(groups.changes)),
        new_errors=find_new_errors(before, after, findings),
        regressions=regressions,
        unchecked_limits=unchecked,
    )
    return replace(made, verdict=comparison_line(before, after, made))


def _side(diagnosis: Diagnosis) -> Side:
    request, engine = diagnosis.request, diagnosis.engine
    return Side(
        model=request.model,
        revision=request.revision,
        vllm_args=request.vllm_args,
        environment=request.environment,
        usage=request.usage,
        gpu=request.gpu,
        kv_cache_memory_bytes=request.kv_cache_memory_bytes,
        vllm_version=engine.vllm_version,
        torch_version=engine.torch_version,
        transformers_version=engine.transformers_version,
        source=engine.source,
        libraries=engine.libraries,
        prefix_caching=diagnosis.layout.prefix_caching,
        verdict=diagnosis.verdict,
        summary=verdict_line(diagnosis),
        refusal=diagnosis.refusal,
    )
