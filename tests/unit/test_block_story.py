"""How the block sizes came about, from the groups, their common block, and vLLM's log."""

import dataclasses

from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import LogRecord, Plan
from kvdoctor.report.block_story import block_story
from tests.unit import plans


def story(plan: Plan) -> list[tuple[str, str]]:
    told = block_story(diagnose(plans.request(), plan))
    return [] if told is None else list(told.rows)


def test_groups_alike_are_told_once_and_the_common_blocks_with_their_reason() -> None:
    assert story(plans.qwen3_next()) == [
        ("groups 0-2", "mamba: 576 tokens; a state of 1,097,728 bytes in a page of 1,179,648, 6.9 % of it padding"),
        ("group 3", "full attention: 576 tokens; 2,048 bytes a token make a page of 1,179,648"),
        ("scheduler block", "576 tokens, the least common multiple of the groups' blocks"),
        ("hash block", "576 tokens, their greatest common divisor"),
    ]


def test_vllms_words_about_blocks_and_pages_are_quoted_once_and_no_others() -> None:
    said = "Setting attention block size to 576 tokens to ensure that attention page size is >= mamba page size."
    lines = (said, said, "kv cache group sizes (576, 576)", "Using Flash Attention")
    plan = dataclasses.replace(plans.qwen3_next(), vllm_log=tuple(LogRecord(level="INFO", message=line) for line in lines))
    assert story(plan)[-1] == ("vLLM says", said)
    assert len(story(plan)) == 5


def test_a_block_that_was_set_otherwise_is_told_without_a_reason() -> None:
    assert ("hash block", "64 tokens") in story(dataclasses.replace(plans.qwen3_next(), hash_block_size=64))


def test_nothing_is_told_without_groups() -> None:
    assert story(plans.plan()) == []
