"""How many blocks the scheduler's pool is built with: vLLM makes a Python object for each, and its layout needs few of them.

A toy model has tens of millions of blocks on an 80 GB GPU: minutes and gigabytes for a pool of which the prefix probe uses some hundreds.
"""

import copy
from typing import Any

from kvdoctor.dryrun import prefix
from kvdoctor.dryrun.settled import Settled

# Built within a second; more than most launches have.
ENOUGH_BLOCKS = 2**18
# What the probe's prompts hold in all, in hit units and at most in tokens: two prompts of 1 to 8 units.
_PROBED_UNITS = 2 * sum(range(1, prefix.MOST_UNITS + 1))
_PROBED_TOKENS = 2 * prefix.MOST_UNITS * prefix.MOST_TOKENS


def pool_config(settled: Settled) -> Any:
    """Give the scheduler its KV-cache configuration, or a copy with fewer blocks where more are planned than it can come to use.

    Every check of vLLM's on the number of blocks is made before, with the real one, or compares it with the sequences of a batch, of
    which the copy has many times as many. A connector reads sizes out of tensors and blocks together, and gets the real ones.
    """
    planned, config = settled.scheduler_config, settled.config
    if config.kv_transfer_config is not None:
        return planned
    tokens = min(_PROBED_UNITS * (settled.prefix_hit_tokens or 0), _PROBED_TOKENS)
    if (question := settled.request.prefix) is not None:
        tokens += question.requests * question.prompt_tokens + question.turns * question.turns * question.prompt_tokens
    probed = sum(-(-tokens // max(1, group.kv_cache_spec.block_size)) for group in planned.kv_cache_groups)
    sequences = config.scheduler_config.max_num_seqs * max(1, len(planned.kv_cache_groups))
    needed = max(ENOUGH_BLOCKS, 2 * probed, 16 * sequences)
    if planned.num_blocks <= needed:
        return planned
    capped = copy.copy(planned)
    capped.num_blocks = needed
    return capped
