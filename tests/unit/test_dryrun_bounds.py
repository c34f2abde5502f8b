"""What bounds a dry launch: its memory, and the blocks of the pool it builds. And whose code failed in it."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def outcome(body: str, **options: Any) -> Any:
    """Run the body in a process of its own, since a bound holds for the life of one."""
    command = [sys.executable, "-c", "import json\n" + textwrap.dedent(body)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the bound is Linux's")
def test_a_launch_that_takes_more_memory_than_its_bound_is_not_assessed() -> None:
    body = """
    from kvdoctor.dryrun import memory
    from kvdoctor.errors import Unassessed
    memory._MOST_BYTES = memory._LEAST_BYTES = 2**28
    memory.bound()
    small = bytearray(2**26)
    try:
        large = bytearray(2**29)
    except MemoryError as error:
        try:
            memory.raise_if_out(RuntimeError("wrapped").with_traceback(None), "planning")
            try:
                raise RuntimeError("wrapped") from error
            except RuntimeError as outer:
                memory.raise_if_out(outer, "planning")
        except Unassessed as told:
            print(json.dumps(told.message))
    """
    assert outcome(body) == "the dry launch needs more memory than the 0.2 GiB it may take (at 'planning')"


@pytest.mark.parametrize(
    ("error", "is_out"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (ValueError("No available memory for the cache blocks"), False),
        (RuntimeError("CUDA out of memory"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_vllms_words_on_memory(error: Exception, is_out: bool) -> None:
    from kvdoctor.dryrun import memory  # noqa: PLC0415 - nothing else of the dry launch is imported

    assert memory.ran_out(error) is is_out


POOL = """
import sys, types
sys.modules["kvdoctor.dryrun.settled"] = types.SimpleNamespace(Settled=object)
from types import SimpleNamespace as N
from kvdoctor.dryrun.pool_size import pool_config

def pool(blocks, *, sequences=1024, sizes=(16,), unit=16, connector=None, question=None):
    groups = [N(kv_cache_spec=N(block_size=size)) for size in sizes]
    planned = N(num_blocks=blocks, kv_cache_groups=groups)
    scheduler = N(max_num_seqs=sequences)
    config = N(kv_transfer_config=connector, scheduler_config=scheduler)
    made = pool_config(N(scheduler_config=planned, prefix_hit_tokens=unit, config=config, request=N(prefix=question)))
    assert planned.num_blocks == blocks
    assert made.kv_cache_groups is groups
    return made.num_blocks
"""


@pytest.mark.parametrize(
    ("call", "blocks"),
    [
        ("pool(30_000)", 30_000),
        ("pool(2**18)", 2**18),
        ("pool(50_000_000)", 2**18),
        ("pool(50_000_000, connector='any')", 50_000_000),
        # Far above the sequences of a batch, with which vLLM compares it, and above what the probe's prompts hold.
        ("pool(50_000_000, sequences=100_000)", 1_600_000),
        ("pool(50_000_000, sizes=(1, 1), unit=16_384)", 4 * 72 * 16_384),
        ("pool(50_000_000, question=N(requests=32, prompt_tokens=2**17, turns=1))", 2 * (72 + 33 * 2**13)),
        ("pool(50_000_000, unit=None, sizes=())", 2**18),
    ],
)
def test_the_pool_is_built_no_larger_than_it_can_come_to_use(call: str, blocks: int) -> None:
    assert outcome(f"{POOL}\nprint(json.dumps({call}))") == blocks


def test_what_the_launchs_own_code_raises_is_neither_vllms_nor_ours(tmp_path: Path) -> None:
    from kvdoctor.dryrun import own_code  # noqa: PLC0415 - as above

    def request(*arguments: str) -> Any:
        return SimpleNamespace(all_args=arguments, trust_remote_code=False)

    words = ((), ("--scheduler-cls", "mine.S"), ("--worker-cls=vllm.x.W",), ("--port", "mine.S"))
    assert [own_code.brings_code(request(*given)) for given in words] == [False, True, False, False]
    (tmp_path / "mine.py").write_text("import sys\ndef fail(): raise KeyError('x')\ndef leave(): sys.exit(7)\n")
    body = """
    from types import SimpleNamespace
    from kvdoctor.dryrun import own_code
    from kvdoctor.errors import Unassessed
    import mine
    told = []
    for act in (mine.fail, mine.leave, lambda: int("x")):
        try:
            act()
        except BaseException as error:
            try:
                own_code.raise_if_own(error, "scheduler", SimpleNamespace(all_args=(), trust_remote_code=False))
            except Unassessed as ours:
                told.append(ours.message)
    print(json.dumps(told))
    """
    where = f"code that comes with the launch failed at 'scheduler' ({tmp_path.name}/mine.py"
    assert outcome(body, env={"PYTHONPATH": str(tmp_path)}) == [f"{where}:2): KeyError: 'x'", f"{where}:3): SystemExit: 7"]
