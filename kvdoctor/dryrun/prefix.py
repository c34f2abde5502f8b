"""The smallest prefix that vLLM would reuse, asked of its real scheduler and KV-cache manager.

Two prompts with the same beginning go through the scheduler step by step as in a running engine; then the manager is asked how much of a
third would be taken from the cache. Two, because vLLM keeps a mamba state at a shared prefix's end only once a second prompt has shown
that it is shared. Mamba states, sliding windows and the last block that EAGLE drops are all vLLM's to judge.
"""

from collections.abc import Iterator
from typing import Any

from kvdoctor.dryrun import compat
from kvdoctor.dryrun.settled import Settled
from kvdoctor.launches.request import PrefixQuestion
from kvdoctor.plan import PrefixHit

# Prefixes up to this many hit units are tried: EAGLE needs two, a window may need a few more.
MOST_UNITS = 8
# A longer first prompt is beyond what the question is worth, and beyond many context lengths.
MOST_TOKENS = 2**17
_MOST_STEPS = 4096
# The one token that every prompt is answered with.
_ANSWER = 1


def smallest_reusable(settled: Settled, scheduler: Any) -> int | None:
    """Tokens of the shortest prefix that a third prompt takes from the cache, in whole hit units; ``None`` if none of those tried is.

    Each prompt goes on after the prefix with a token of its own: that is how a shared system prompt is met.
    """
    config, unit = settled.config, settled.prefix_hit_tokens
    limit = min(config.model_config.max_model_len - 2, MOST_TOKENS)
    if not config.cache_config.enable_prefix_caching or not settled.scheduler_config.kv_cache_groups or not unit:
        return None
    hasher = _block_hasher(settled)
    for number in range(1, MOST_UNITS + 1):
        length = number * unit
        if length > limit:
            return None
        prefix = [number * 1_000 + position % 997 for position in range(length)]
        prompts = [_request(config, f"prompt-{number}-{own}", [*prefix, own], hasher) for own in range(3)]
        for prompt in prompts[:2]:
            _serve(scheduler, prompt)
        if scheduler.kv_cache_manager.get_computed_blocks(prompts[2])[1] > 0:
            return length
    return None


def hits(settled: Settled, scheduler: Any, question: PrefixQuestion) -> Iterator[PrefixHit]:
    """Serve prompts that share a prefix, then a conversation whose every turn repeats the one before; read what each took from the cache.

    Prompts longer than the launch allows are not served. The tokens are none that :func:`smallest_reusable` uses.
    """
    limit = min(settled.config.model_config.max_model_len - 2, MOST_TOKENS)
    hasher, own = _block_hasher(settled), question.prompt_tokens - question.shared_tokens
    shared = _tokens(20_000, question.shared_tokens)
    for number in range(1, question.requests + 1):
        prompt = [*shared, *_tokens(20_000 + 1_000 * number, own)]
        if len(prompt) <= limit:
            yield PrefixHit(
                scenario="shared prefix",
                number=number,
                prompt_tokens=len(prompt),
                cached_tokens=_cached(settled, scheduler, prompt, hasher),
            )
    history: list[int] = _tokens(900_000, question.shared_tokens)
    for number in range(1, question.turns + 1):
        history += _tokens(900_000 + 1_000 * number, own)
        if len(history) <= limit:
            cached = _cached(settled, scheduler, history, hasher)
            yield PrefixHit(scenario="conversation", number=number, prompt_tokens=len(history), cached_tokens=cached)
        history.append(_ANSWER)


def _tokens(first: int, count: int) -> list[int]:
    return [first + position % 997 for position in range(count)]


def _cached(settled: Settled, scheduler: Any, prompt: list[int], hasher: Any) -> int:
    """Serve a prompt, and give vLLM's own count of the tokens that were computed before its first step."""
    request = _request(settled.config, f"asked-{len(prompt)}-{prompt[-1]}", list(prompt), hasher)
    return _serve(scheduler, request)


def _block_hasher(settled: Settled) -> Any:
    """As ``EngineCore`` makes it (``vllm/v1/engine/core.py``); the lookahead of drafters came with 0.33."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    config = settled.config
    function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
    init_none_hash(function)
    lookahead = getattr(config, "num_hash_lookahead_tokens", 0)
    return get_request_block_hasher(settled.hash_block_size, function, *((lookahead,) if lookahead else ()))


def _request(config: Any, name: str, tokens: list[int], hasher: Any) -> Any:
    from vllm.pooling_params import PoolingParams
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    pooling = config.model_config.runner_type == "pooling"
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=None if pooling else SamplingParams(max_tokens=1),
        pooling_params=PoolingParams() if pooling else None,
        block_hasher=hasher,
    )


def _serve(scheduler: Any, request: Any) -> int:
    """Let the scheduler take the request to its end, answering each step as a model runner would; give what it took from the cache."""
    scheduler.add_request(request)
    cached = 0
    for _ in range(_MOST_STEPS):
        if request.is_finished():
            break
        output = scheduler.schedule()
        cached = next((new.num_computed_tokens for new in output.scheduled_new_reqs), cached)
        scheduler.update_from_output(output, _answer(request, output))
    return cached


def _answer(request: Any, output: Any) -> Any:
    """What a model runner returns for the step: one token once the whole prompt is computed."""
    import torch

    names = list(output.num_scheduled_tokens)
    whole = request.num_computed_tokens >= request.num_prompt_tokens
    pooled = [torch.zeros(1) if whole else None for _ in names] if request.pooling_params is not None else []
    sampled = [[_ANSWER] if whole and request.pooling_params is None else [] for _ in names]
    return compat.runner_output(names, sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=pooled)
