"""What a drafter itself checks of the KV-cache plan: whether one set of attention metadata serves all of its layers."""

from typing import Any

from kvdoctor.dryrun import compat
from kvdoctor.dryrun.blame import first_line, innermost, is_accident
from kvdoctor.dryrun.model import BuiltStage, on_meta
from kvdoctor.dryrun.settled import Settled
from kvdoctor.plan import Check

DRAFTER = "drafter's attention groups"

# The drafter's methods that check the plan, in the order in which they are looked for: hidden states (the second) need no attention group.
_CHECKS = ("initialize_attn_backend", "validate_same_kv_cache_group")


def check(settled: Settled, stage: BuiltStage, worker_config: Any, kernel_block_sizes: Any) -> None:
    """Have the drafter take its layers' groups from the plan, as the V1 runner does (``initialize_metadata_builders``).

    The V2 runner's speculators take any groups. Only what the check itself raises is vLLM's word: it runs with a runner of which much
    stands in, and an accident on its way is ours.
    """
    method = next((name for name in _CHECKS if hasattr(stage.speculator, name)), None)
    if method is None or compat.uses_v2_runner(stage.config):
        return
    settled.report_step(DRAFTER)
    own = getattr(stage.speculator, method)
    try:
        with on_meta():
            own(worker_config, **compat.accepted(own, kernel_block_sizes=kernel_block_sizes))
    except Exception as error:
        if not is_its_word(error):
            settled.not_checked(DRAFTER, f"{type(error).__name__}: {first_line(error)}")
            return
        with settled.step(DRAFTER, after_plan=True):
            raise
    settled.checks.append(Check(name=DRAFTER, outcome="passed", note=None))


def is_its_word(error: BaseException) -> bool:
    """Whether a check of the drafter's raised ``error`` on purpose, and not something that it called."""
    trace = innermost(error)
    return trace is not None and trace.tb_frame.f_code.co_name in _CHECKS and not is_accident(error)
