"""Advice that was tried, in words."""

from kvdoctor.rules import Finding, Suggestion
from kvdoctor.rules.numbers import grouped, percent


def suggestion_lines(finding: Finding) -> tuple[str, ...]:
    """One line for each change that vLLM took, the best first."""
    return tuple(f"tried: {suggestion.change}: {effect(suggestion)}" for suggestion in finding.suggestions)


def effect(suggestion: Suggestion) -> str:
    """Say what came of it, as far as vLLM settled it."""
    parts = []
    if suggestion.kv_cache_tokens is not None:
        parts.append(f"{grouped(suggestion.kv_cache_tokens)} tokens")
    if suggestion.max_concurrency is not None:
        parts.append(f"{suggestion.max_concurrency:.2f} full requests")
    if suggestion.min_reusable_prefix_tokens is not None:
        parts.append(f"prefixes from {grouped(suggestion.min_reusable_prefix_tokens)} tokens")
    if suggestion.empty_percent is not None:
        parts.append(f"{percent(suggestion.empty_percent)} empty")
    return "launches" + (f" with {', '.join(parts)}" if parts else "")
