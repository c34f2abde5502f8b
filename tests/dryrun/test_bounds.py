"""A launch is planned within bounds, tells no secret, and is told the same way twice."""

import json
from pathlib import Path

from kvdoctor.plain import to_plain
from tests.launches import TIMEOUT_SECONDS, Launches, launch_request

# A toy: 8 KiB a block, so that an 80 GB GPU holds millions.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 128,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}
SECRET = "sk-live-4f9a"  # noqa: S105 - made up


def test_a_pool_of_millions_of_blocks_is_planned_at_once_and_without_the_secrets_of_the_launch(launches: Launches, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    worker = launches.worker()
    args = ("--api-key", SECRET, "--hf-overrides", json.dumps({"made_up_password": SECRET}))
    request = launch_request(tmp_path, args, kv_cache_memory=2**36)
    first = worker.plan(request, timeout_seconds=TIMEOUT_SECONDS)
    again = worker.plan(request, timeout_seconds=TIMEOUT_SECONDS)
    assert (first.num_blocks, first.min_reusable_prefix_tokens, first.refusal) == (2**23, 16, None)
    assert first == again
    assert SECRET not in json.dumps(to_plain(first))
