"""Logs in the wording of the installed release, on the worker that the other dry launches use."""

from kvdoctor.vllm_text.boot_refusal import refusal_figures
from tests.launches import Launches, launch_request
from tests.verifying import statuses, verified

HEAD = "(EngineCore pid=71) INFO 06-02 10:00:09 "
# A public boot's budget and figures; a dense model's have not changed from release to release.
DENSE = f"""\
(APIServer pid=1) INFO 06-02 10:00:00 [startup.py:44] vLLM server version 0.33.0, serving model meta-llama/Llama-3.1-8B-Instruct
(APIServer pid=1) INFO 06-02 10:00:01 [startup.py:96] non-default args: {{'model_tag': 'meta-llama/Llama-3.1-8B-Instruct'}}
{HEAD}[gpu_worker.py:773] Available KV cache memory: 56.21 GiB
{HEAD}[kv_cache_utils.py:1148] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x
"""
REFUSED = "".join(DENSE.splitlines(keepends=True)[:2]) + (
    f"{HEAD}[gpu_worker.py:773] Available KV cache memory: 8.04 GiB\n"
    "(EngineCore pid=71) ERROR 06-02 10:00:31 [core.py:1584] EngineCore failed to start.\n"
    "(EngineCore pid=71) ERROR 06-02 10:00:31 [core.py:1584] ValueError: WORDS\n"
)


def test_a_dense_boot_agrees_and_one_token_more_differs(launches: Launches) -> None:
    worker, request = launches.worker(), launch_request("llama-3.1-8b")
    made = verified(DENSE, worker, request)
    assert (made.verdict, statuses(made)) == (
        "agrees",
        {"kv_cache_tokens": "same", "concurrency_length": "same", "max_concurrency": "same"},
    )
    assert verified(DENSE.replace("460,496", "460,497"), worker, request).verdict == "differs"


def test_a_refusal_agrees_in_words_and_figures(launches: Launches) -> None:
    worker, request = launches.worker(), launch_request("llama-3.1-8b")
    refusal = launches.plan("llama-3.1-8b", kv_cache_memory=round(8.04 * 2**30)).refusal
    assert refusal is not None
    largest = refusal_figures(refusal.message)["estimated_max_model_len"]
    assert largest == 65_840  # 8.04 GiB hold 4,116 blocks of 16 tokens, and one is kept free
    made = verified(REFUSED.replace("WORDS", refusal.message), worker, request)
    assert (made.verdict, statuses(made)) == ("agrees", {"refusal": "same", "needed_gib": "same", "estimated_max_model_len": "same"})
    assert verified(REFUSED.replace("WORDS", refusal.message.replace("65840", "65841")), worker, request).verdict == "differs"
