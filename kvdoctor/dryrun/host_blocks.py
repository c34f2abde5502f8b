"""How many blocks a worker's host memory holds for a KV connector: vLLM's own arithmetic, on the planned cache."""

import copy
from typing import Any

CONNECTOR = "SimpleCPUOffloadConnector"


def simple_cpu_blocks(config: Any, worker_config: Any) -> int:
    """The blocks of ``SimpleCPUOffloadConnector`` (asked since 0.33), by the connector's own reading of its options.

    A worker counts the bytes of the buffers that it was given; the scheduler's side counts those of the plan, which are the same.
    """
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
    from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import SimpleCPUOffloadConnector
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

    handler = SimpleCPUOffloadConnector(_with_own_options(config), KVConnectorRole.WORKER, worker_config).worker_handler
    capacity = handler.disk_capacity_bytes if handler.disk_mode else handler.cpu_capacity_bytes
    return int(SimpleCPUOffloadScheduler._derive_cpu_config(worker_config, capacity, handler._num_cpu_blocks_override).num_blocks)


def _with_own_options(config: Any) -> Any:
    """The configuration as the connector sees it: one among several has its options inside those of ``MultiConnector``."""
    from vllm.config import KVTransferConfig

    given = config.kv_transfer_config
    for options in (given.kv_connector_extra_config or {}).get("connectors", ()):
        if options.get("kv_connector") == CONNECTOR:
            config = copy.copy(config)
            config.kv_transfer_config = KVTransferConfig(**{"engine_id": given.engine_id} | options)
    return config
