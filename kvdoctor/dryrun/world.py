"""The assumed cluster: vLLM's process groups for TP, PP, DCP, EP and DP, all in one process.

torch's fake process group takes any world size and sends nothing. Each pipeline stage is seen by taking the rank of its
first tensor rank in turn: tensor ranks of one stage have the same specs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore


def install() -> None:
    """Answer for what vLLM wants beside a device group: a gloo group, a message queue, a node count."""
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import shm_broadcast

    real_new_group = dist.new_group

    def fake_new_group(ranks: list[int] | None = None, *_arguments: object, **_options: object) -> Any:
        return real_new_group(ranks, backend="fake")

    dist.new_group = fake_new_group
    shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_a, **_k: None)
    parallel_state._node_count = lambda _group: 1


@contextmanager
def worker_of(config: Any, stage: int) -> Iterator[None]:
    """Be the first worker of pipeline stage ``stage`` of the launch that ``config`` describes: its process groups exist inside the block.

    The steps and their order are those of ``init_worker_distributed_environment`` (``vllm/v1/worker/gpu_worker.py``, 0.33).
    """
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state

    parallel = config.parallel_config
    rank = stage * parallel.tensor_parallel_size * parallel.prefill_context_parallel_size
    world_size = parallel.world_size_across_dp
    dist.init_process_group(
        backend="fake", store=FakeStore(), rank=parallel.data_parallel_rank * parallel.world_size + rank, world_size=world_size
    )
    try:
        with set_current_vllm_config(config):
            parallel_state.init_distributed_environment(
                world_size=parallel.world_size, rank=rank, local_rank=0, distributed_init_method="fake://", backend="fake"
            )
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=parallel.tensor_parallel_size,
                pipeline_model_parallel_size=parallel.pipeline_parallel_size,
                prefill_context_model_parallel_size=parallel.prefill_context_parallel_size,
                decode_context_model_parallel_size=parallel.decode_context_parallel_size,
                backend="fake",
            )
        yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()
        if dist.is_initialized():
            dist.destroy_process_group()
