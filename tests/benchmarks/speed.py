"""How fast kvdoctor is, as ratios within one run: `python tests/benchmarks/speed.py [--rounds N]`.

Run it with the interpreter of an environment that has kvdoctor and vLLM. Nothing here is a test: machines differ, and a ratio
is read by a person. The two commands of a ratio are run in turn, so that a machine that slows down slows both.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from kvdoctor.engines.find import find_engine
from kvdoctor.launches.gpus import find_gpu
from kvdoctor.launches.model_reference import find_model
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.workers.client import Worker

SAMPLES = Path(__file__).parents[2] / "sample_configs"
IMPORT = [sys.executable, "-c", "import vllm.engine.arg_utils, vllm.v1.engine.core"]
KVDOCTOR = [sys.executable, "-m", "kvdoctor"]


def main() -> None:
    """Print one line for each of the promises about speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds

    cold = [*KVDOCTOR, "inspect", str(SAMPLES / "llama-3.1-8b"), "--quiet"]
    print_ratio("cold inspect of Llama-3.1-8B / importing vLLM", [(seconds(cold), seconds(IMPORT)) for _ in range(rounds)], limit=1.3)
    helps = [seconds([*KVDOCTOR, "--help"]) for _ in range(rounds)]
    print(f"--help: median {statistics.median(helps):.3f} s (limit 0.3)")
    plans = warm_plans(rounds)
    print(f"one more plan of Llama-3.1-8B in the same worker: median {statistics.median(plans):.2f} s (limit 1)")
    print(f"peak memory of one process for a 671B model: {peak_bytes(SAMPLES / 'deepseek-v3') / 2**30:.2f} GiB (limit 1.5)")


def seconds(command: list[str]) -> float:
    """Wall time of a command whose output is thrown away."""
    start = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def print_ratio(what: str, pairs: list[tuple[float, float]], *, limit: float) -> None:
    """The median of the pairwise ratios, with both medians."""
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{what}: median ratio {ratio:.2f} (limit {limit}); {ours:.2f} s / {theirs:.2f} s")


def warm_plans(rounds: int) -> list[float]:
    """Times of further plans in a worker that has made one."""
    request = LaunchRequest(
        model=find_model(str(SAMPLES / "llama-3.1-8b")),
        specs=None,
        vllm_args=(),
        environment={},
        gpu=find_gpu("h100-80g"),
        usage="serve",
        kv_cache_memory_bytes=None,
        trust_remote_code=False,
        offline=True,
    )
    with Worker(find_engine(None), environment={}, network=False) as worker:
        times = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            worker.plan(request, timeout_seconds=300, on_step=lambda _step: None)
            times.append(time.perf_counter() - start)
        return times[1:]


def peak_bytes(model: Path) -> int:
    """The largest resident size of any process of an inspection."""
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [*KVDOCTOR, "inspect", str(model), "--quiet", "--output", os.devnull])
    os.waitpid(pid, 0)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


if __name__ == "__main__":
    main()
