"""One request from start to plan, inside its own process."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kvdoctor.dryrun import convert, device, launch
from kvdoctor.dryrun.install import libraries
from kvdoctor.dryrun.settled import Budget, Refused, Settled
from kvdoctor.dryrun.stand_in import asked_in_vain
from kvdoctor.plan import LogRecord, Plan
from kvdoctor.workers.protocol import Ask

_KEPT_LEVEL = logging.INFO
# A step that vLLM tries and can do without, where a stand-in has no answer: the plan is the one without it.
_IN_VAIN = "what only a GPU answers"


def assess(ask: Ask, report_step: Callable[[str], None]) -> Plan:
    """The plan of the launch that is asked for; a refusal by vLLM is part of it.

    Raises:
        KvdoctorError: the request was wrong, or no answer could be had.
    """
    request = ask.request
    asked_in_vain.clear()  # by this launch, and not while something was imported ahead of it
    settled = Settled(request=request, report_step=report_step, budget=Budget(source="kv_cache_memory"))
    refusal = None
    with _log_into(settled.log):
        try:
            if request.specs is not None:
                from kvdoctor.dryrun import given_specs

                given_specs.run(settled)
            else:
                assert request.model is not None  # noqa: S101 - a request has a model or specs
                launch.run(settled, request.model.name)
        except Refused as refused:
            refusal = refused.refusal
    if asked_in_vain:
        settled.not_checked(_IN_VAIN, f"vLLM went on without an answer: {', '.join(dict.fromkeys(asked_in_vain))}")
    settled.assumptions[:] = (*_assumptions(settled), *settled.assumptions, *ask.notes)
    return convert.to_plan(settled, refusal, source=ask.source)


def _assumptions(settled: Settled) -> Iterator[str]:
    request, gpu = settled.request, settled.request.gpu
    nodes = getattr(settled.config.parallel_config, "nnodes", 1) if settled.config is not None else 1
    yield (
        f"{gpu.device_name}: compute capability {'.'.join(map(str, gpu.compute_capability))}, "
        f"{gpu.memory_bytes / 2**30:.2f} GiB, {gpu.sm_count} SMs, as many as the launch asks for, "
        + ("on one node" if nodes == 1 else f"on {nodes} nodes")
    )
    yield "started by vllm serve" if request.usage == "serve" else "started by LLM()"
    yield f"CUDA {device.cuda_major()}; FlashInfer's kernels as in vLLM's official image"
    yield "vLLM's own compiled libraries, loaded" if libraries() else "stand-ins for vLLM's compiled libraries"
    given = {name: value for name, value in os.environ.items() if name.startswith("VLLM_") and name in request.environment}
    if given:
        yield "environment: " + ", ".join(f"{name}={value}" for name, value in sorted(given.items()))


@contextmanager
def _log_into(log: list[LogRecord]) -> Iterator[None]:
    """Keep what vLLM logs, in order.

    Where records are made, and not by a handler: vLLM takes other handlers away when it configures its logging (in 0.33 with the engine).
    """
    make = logging.getLogRecordFactory()

    def keep(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = make(*arguments, **options)
        if record.levelno >= _KEPT_LEVEL and record.name.partition(".")[0] == "vllm":
            log.append(LogRecord(level=record.levelname, message=_message(record)))
        return record

    logging.setLogRecordFactory(keep)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.setLogRecordFactory(make)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # arguments that do not fit the text; logging would print a complaint and go on
        return str(record.msg)
