"""A log verified inside a test, on a worker of the test's own."""

from dataclasses import replace

from kvdoctor.launches.request import LaunchRequest
from kvdoctor.verify import Verification, verify
from kvdoctor.verify_budget import budget_of, find_plan
from kvdoctor.vllm_text.boot_log import read_boot_log
from kvdoctor.vllm_text.launch_arguments import launch_arguments
from kvdoctor.workers.client import Worker


def verified(text: str, worker: Worker, request: LaunchRequest) -> Verification:
    """Verify the log in ``text``; ``request`` names the model and the GPU, and the log the arguments."""
    boot = read_boot_log(text)
    assert boot is not None
    taken = launch_arguments(boot.arguments or {})
    launch = replace(request, vllm_args=taken.words)
    budget = budget_of(boot)
    found = find_plan(boot, budget, lambda size: worker.plan(replace(launch, kv_cache_memory_bytes=size), timeout_seconds=240))
    return verify(boot, found, budget, request=launch, log_name="boot.log", left_out=taken.left_out, notes=())


def statuses(verification: Verification) -> dict[str, str]:
    """The status of each figure."""
    return {figure.key: figure.status for figure in verification.figures}
