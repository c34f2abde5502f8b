"""A boot beside its plan: what agrees, what does not, and what nobody can say."""

import dataclasses
import json
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from kvdoctor.plan import LogRecord, Plan, Refusal
from kvdoctor.report import render_verification
from kvdoctor.report.plain_json import load_schema_of
from kvdoctor.verify import Verification, verify
from kvdoctor.verify_budget import budget_of, find_plan
from kvdoctor.vllm_text.boot_log import BootLog, read_boot_log
from tests.unit import plans

GIB = 2**30
BLOCK = 2**21  # Llama-3.1-8B's: 16 tokens of 128 KiB
LENGTH = 131_072
HEAD = "INFO 06-02 10:00:00 [a.py:1] "
BANNER = f"{HEAD}vLLM server version 0.33.0, serving model org/model\n"


def log(tokens: int | None, *, gib: str | None = "56.21", args: str = "{}", more: str = "") -> BootLog:
    text = f"{BANNER}{HEAD}non-default args: {args}\n"
    text += f"{HEAD}Available KV cache memory: {gib} GiB\n" if gib else ""
    if tokens is not None:
        text += (
            f"{HEAD}GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {LENGTH:,} tokens per request: {tokens / LENGTH:.2f}x\n"
        )
    boot = read_boot_log(text + more)
    assert boot is not None
    return boot


def plan_of(size: int | None) -> Plan:
    """The plan of a dense model with ``size`` bytes for its cache."""
    blocks = (40 * GIB if size is None else size) // BLOCK
    words = f"GPU KV cache size: {blocks * 16:,} tokens, Maximum concurrency for {LENGTH:,} tokens per request: {blocks * 16 / LENGTH:.2f}x"
    return dataclasses.replace(
        plans.llama(),
        num_blocks=blocks,
        bytes_per_block=BLOCK,
        kv_cache_tokens=blocks * 16,
        vllm_log=(LogRecord(level="INFO", message="Using max model len 131072"), LogRecord(level="INFO", message=words)),
    )


def refused(size: int | None) -> Plan:
    """The plan of a launch whose longest request does not fit."""
    largest = ((size or 0) // BLOCK) * 16
    message = (
        f"max seq len ({LENGTH}), (16.0 GiB KV cache is needed, larger than the available memory ({(size or 0) / GIB:.2f} GiB). "
        f"the estimated maximum model length is {largest}."
    )
    return dataclasses.replace(
        plan_of(size), refusal=Refusal(stage="planning", exception="ValueError", message=message, accident=False), vllm_log=()
    )


def verified(boot: BootLog, plan_at: Callable[[int | None], Plan] = plan_of, *, left_out: tuple[str, ...] = ()) -> Verification:
    budget = budget_of(boot)
    found = find_plan(boot, budget, plan_at)
    return verify(boot, found, budget, request=plans.request(), log_name="boot.log", left_out=left_out, notes=())


def statuses(verification: Verification) -> dict[str, str]:
    return {figure.key: figure.status for figure in verification.figures}


def test_a_boot_that_the_plan_reproduces_agrees() -> None:
    made = verified(log(460_464))
    assert (made.verdict, made.plan.plans, made.summary) == ("agrees", 1, "agrees: 3 of 3 figures that both have are the same")
    assert statuses(made) == {"kv_cache_tokens": "same", "concurrency_length": "same", "max_concurrency": "same"}


@pytest.mark.parametrize("tokens", range(460_416, 460_528, 16))
def test_every_budget_that_rounds_to_the_printed_one_counts(tokens: int) -> None:
    made = verified(log(tokens))
    assert made.verdict == "agrees"
    assert made.plan.kv_cache_bytes is not None
    assert round(made.plan.kv_cache_bytes / GIB, 2) == 56.21


@pytest.mark.parametrize("tokens", [460_463, 460_465, 460_400, 460_528, 230_232])
def test_a_figure_that_no_such_budget_gives_differs(tokens: int) -> None:
    made = verified(log(tokens))
    assert made.verdict == "differs"
    assert statuses(made)["kv_cache_tokens"] == "not_same"
    assert made.plan.plans <= 16


def test_a_rank_that_printed_no_budget_may_have_had_less() -> None:
    made = verified(log(459_984, args="{'tensor_parallel_size': 2}"))
    assert (made.verdict, statuses(made)["kv_cache_tokens"]) == ("agrees", "not_comparable")
    assert made.figures[0].why == (
        "the log prints the budget of one rank of 2, and the smallest counts: with 0.05 GiB less, the plan logs the same"
    )
    assert verified(log(459_985, args="{'tensor_parallel_size': 2}")).verdict == "differs"
    assert verified(log(460_528, args="{'tensor_parallel_size': 2}")).verdict == "differs"


def test_without_a_budget_capacity_is_not_compared() -> None:
    made = verified(log(460_464, gib=None))
    assert statuses(made) == {"kv_cache_tokens": "not_comparable", "concurrency_length": "same", "max_concurrency": "not_comparable"}


def test_the_logs_count_of_blocks_is_an_exact_budget() -> None:
    blocks = f"{HEAD}Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 28779\n"
    assert statuses(verified(log(460_464, more=blocks)))["kv_cache_tokens"] == "same"
    made = verified(log(460_448, more=blocks))
    assert (made.verdict, statuses(made)["num_blocks"]) == ("differs", "not_comparable")


def test_a_difference_under_arguments_left_out_proves_nothing() -> None:
    made = verified(log(460_463), left_out=("worker_cls",))
    assert (made.verdict, made.summary) == (
        "unassessed",
        "not settled: tokens differ, and worker_cls of the log's arguments were left out of the plan",
    )


def failed(words: str, exception: str = "ValueError") -> str:
    return f"ERROR 06-02 10:00:00 [core.py:1] EngineCore failed to start.\nERROR 06-02 10:00:00 [core.py:1] {exception}: {words}\n"


def test_the_same_refusal_with_the_same_figures_agrees() -> None:
    words = (
        f"max seq len ({LENGTH}), (16.0 GiB KV cache is needed, larger than the available memory (8.04 GiB). "
        "the estimated maximum model length is {}."
    )
    made = verified(log(None, gib="8.04", more=failed(words.format(65_840))), refused)
    assert statuses(made) == {"refusal": "same", "needed_gib": "same", "estimated_max_model_len": "same"}
    made = verified(log(None, gib="8.04", more=failed(words.format(65_841))), refused)
    assert (made.verdict, statuses(made)["estimated_max_model_len"]) == ("differs", "not_same")


def test_a_refusal_on_one_side_alone_differs() -> None:
    assert verified(log(460_464), refused).verdict == "differs"
    assert verified(log(None, more=failed("block_size is wrong"))).verdict == "differs"


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory"),
        ("ValueError", "Free memory on device cuda:0 is less than desired"),
        ("OSError", "x"),
    ],
)
def test_what_happened_on_the_machine_is_not_compared(exception: str, words: str) -> None:
    made = verified(log(None, more=failed(words, exception)))
    assert (made.verdict, statuses(made)["refusal"]) == ("unassessed", "not_comparable")


def test_a_lack_of_memory_on_the_machine_is_no_match_for_a_plan_on_an_estimate() -> None:
    made = verified(log(None, gib=None, more=failed("CUDA out of memory", "OutOfMemoryError")), refused)
    assert (made.verdict, statuses(made)["refusal"]) == ("unassessed", "not_comparable")
    assert verified(log(460_464, gib=None), refused).verdict == "unassessed"


def test_a_check_that_the_plan_passes_and_the_boot_did_not_differs_without_a_budget_too() -> None:
    words = "max_num_seqs (1024) exceeds available Mamba cache blocks (650). CUDA graph capture cannot proceed: it is not supported"
    assert verified(log(None, gib=None, more=failed(words))).verdict == "differs"


def test_the_json_fits_its_schema_and_the_readable_formats_let_no_escape_through() -> None:
    hostile = dataclasses.replace(log(460_464), model="org/\x1b[2J|m\nodel")
    made = verified(hostile)
    validator = Draft202012Validator(load_schema_of("verify"))
    for verification in (made, verified(log(None, more=failed("a")))):
        validator.validate(json.loads(render_verification(verification, "json", width=80, color=False)))
    for report_format in ("table", "markdown"):
        text = render_verification(made, report_format, width=10_000, color=False)
        assert "\x1b" not in text
        assert made.summary.partition(":")[0] in text
