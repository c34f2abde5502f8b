"""``kvdoctor verify`` as its users meet it."""

import json
from pathlib import Path

from tests.cli.conftest import FakeEngine, Run, answers

LOG = """\
vllm-1  | (APIServer pid=1) INFO 06-02 10:00:00 [startup.py:44] vLLM server version 0.33.0, serving model /models/m
vllm-1  | (APIServer pid=1) INFO 06-02 10:00:01 [startup.py:96] non-default args: {'model_tag': '/models/m', 'model': '/models/m', \
'api_key': ['sk-1'], 'max_model_len': 8192}
vllm-1  | (EngineCore pid=7) INFO 06-02 10:00:09 [gpu_worker.py:773] Available KV cache memory: 40.0 GiB
vllm-1  | (EngineCore pid=7) INFO 06-02 10:00:09 [kv_cache_utils.py:1148] GPU KV cache size: 16,000 tokens, \
Maximum concurrency for 8,192 tokens per request: 2.95x
"""
# The engine that answers has no log of its own, so its figures are put into the plan that it gives.
LOGS_TOO = """
def plan(name):
    made = json.load(open(os.path.join(HERE, name + ".json")))
    words = "GPU KV cache size: 16,000 tokens, Maximum concurrency for 8,192 tokens per request: 2.95x"
    made["vllm_log"] = [{"level": "INFO", "message": words}]
    return made
"""
ASKED = 'json.dump([message["request"][n] for n in ("vllm_args", "kv_cache_memory_bytes")], open(os.path.join(HERE, "asked"), "w"))'


def engine(fake_engine: FakeEngine) -> str:
    return fake_engine(LOGS_TOO + answers("llama", before=ASKED))


def test_a_log_on_stdin_is_compared_with_its_launch(kvdoctor: Run, fake_engine: FakeEngine, config: Path, tmp_path: Path) -> None:
    result = kvdoctor("verify", "-", str(config), "--gpu", "h100-80g", "--vllm", engine(fake_engine), input=LOG)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "agrees: 3 of 3 figures that both have are the same"
    assert json.loads((tmp_path / "engine" / "asked").read_text()) == [["--max-model-len=8192"], 42_949_672_960]
    assert "sk-1" not in result.stdout


def test_arguments_behind_the_dashes_are_added_to_the_logs(kvdoctor: Run, fake_engine: FakeEngine, config: Path, tmp_path: Path) -> None:
    (tmp_path / "boot.log").write_text(LOG)
    result = kvdoctor(
        "verify", "boot.log", str(config), "--gpu", "b200", "--vllm", engine(fake_engine), "--format", "json", "--", "--block-size", "32"
    )
    report = json.loads(result.stdout)
    assert (result.returncode, report["verdict"], report["log"]["name"]) == (0, "agrees", "boot.log")
    assert report["plan"]["vllm_args"] == ["--max-model-len=8192", "--block-size", "32"]


def test_what_the_log_does_not_say_is_named_with_what_gives_it(kvdoctor: Run) -> None:
    result = kvdoctor("verify", "-", input=LOG.replace("version 0.33.0", "version 0.33.1.dev7+gabc").replace("non-default args", "args"))
    assert (result.returncode, result.stdout) == (3, "")
    first, second = result.stderr.splitlines()
    for missing in ("a release (it says 0.33.1.dev7+gabc)", "which GPU", "model /models/m does not exist", "arguments"):
        assert missing in first
    assert second == "  Give --vllm ENGINE; --gpu NAME; MODEL behind BOOT_LOG; them after --, or -- alone if there were none."


def test_a_log_that_breaks_off_is_not_enough(kvdoctor: Run, config: Path) -> None:
    result = kvdoctor("verify", "-", str(config), "--gpu", "b200", input="".join(LOG.splitlines(keepends=True)[:-2]))
    assert result.returncode == 3
    assert "how the start ended" in result.stderr


def test_two_services_in_one_log_are_too_much(kvdoctor: Run) -> None:
    result = kvdoctor("verify", "-", input=LOG + LOG.replace("vllm-1", "other-1"))
    assert result.returncode == 3
    assert "2 services: vllm-1, other-1" in result.stderr


def test_what_is_no_log_of_vllm_is_a_wrong_request(kvdoctor: Run, tmp_path: Path) -> None:
    for name in ("README.md", "missing.log", "."):
        (tmp_path / "README.md").write_text("hello\x1b[2J\n")
        result = kvdoctor("verify", name)
        assert (result.returncode, result.stdout) == (2, "")
        assert "\x1b" not in result.stderr
