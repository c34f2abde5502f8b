"""The smallest prefix that vLLM would reuse, asked of its real KV-cache manager."""

from typing import Any

from kvdoctor.dryrun.settled import Settled


def smallest_reusable(settled: Settled, scheduler: Any) -> int | None:
    """Tokens that a second prompt must share with a first one before vLLM reuses any; ``None`` where nothing is ever reused."""
    if not settled.config.cache_config.enable_prefix_caching or not settled.scheduler_config.kv_cache_groups:
        return None
    del scheduler
    return settled.prefix_hit_tokens
