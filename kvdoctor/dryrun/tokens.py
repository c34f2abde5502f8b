"""A tokenizer that is not beside the config: what the engine's configuration asks of it does not bear on the plan."""

import argparse
import re
from pathlib import Path
from typing import Any

from kvdoctor.dryrun.blame import is_accident, lacks_file
from kvdoctor.dryrun.settled import Settled
from kvdoctor.plan import NOT_ON_THIS_MACHINE

# The files of any kind of tokenizer: tokenizer.json, tokenizer.model, vocab.json, merges.txt, tekken.json, qwen.tiktoken, spiece.model.
_TOKENIZER_FILE = re.compile(r"tokenizer|vocab|merges\.txt|tekken|\.tiktoken$|\.model$", re.IGNORECASE)
# Transformers makes some tokenizers out of nothing (0 to a few dozen special tokens); a real one has the 256 bytes at least.
_SMALLEST_VOCABULARY = 256


def leave_out_absent(settled: Settled, given: argparse.Namespace) -> None:
    """Take a tokenizer that only the machine of the launch can have out of ``given``: vLLM would take its path for an id of the hub."""
    path = getattr(given, "tokenizer", None)
    if path and Path(path).is_absolute() and not Path(path).exists():
        settled.not_checked(f"--tokenizer {path}", NOT_ON_THIS_MACHINE)
        given.tokenizer = None


def make_optional(settled: Settled) -> None:
    """Where the tokenizer's files are missing, have vLLM look up the reasoning parser and leave its tokens.

    For the whole launch: a multimodal model may make a second configuration for its language model (Kimi-K2.5 up to 0.32).
    """
    try:
        from vllm.config.reasoning import ReasoningConfig
    except ImportError:  # named so in another release; what it asks there is met where it asks
        return
    from vllm.reasoning import ReasoningParserManager

    initialize = ReasoningConfig.initialize_token_ids

    def look_up(config: Any, model_config: Any, *more: Any, **options: Any) -> None:
        if settled.unread_reasoning_plugin:
            config._enabled = True
            return
        lacking = _lacking(model_config)
        if lacking is None:
            initialize(config, model_config, *more, **options)
            return
        if config.reasoning_parser:
            ReasoningParserManager.get_reasoning_parser(config.reasoning_parser)
        config._enabled = True  # as after the tokens are known; a boot has the files
        settled.not_checked("reasoning tokens", lacking)

    ReasoningConfig.initialize_token_ids = look_up


def _lacking(model_config: Any) -> str | None:
    """Why there is no tokenizer here. ``None`` where there is one, or where the launch wants none."""
    from vllm.tokenizers import cached_tokenizer_from_config

    if model_config.skip_tokenizer_init:
        return None
    place = Path(model_config.tokenizer)
    if place.is_dir() and not any(_TOKENIZER_FILE.search(file.name) for file in place.iterdir()):
        return "the model's tokenizer is not beside the config"
    try:
        tokenizer = cached_tokenizer_from_config(model_config)
    except Exception as error:
        if lacks_file(error) or is_accident(error):
            return "the model's tokenizer could not be had"
        raise
    return "the model's tokenizer is not complete" if len(tokenizer) < _SMALLEST_VOCABULARY else None
