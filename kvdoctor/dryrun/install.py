"""Prepare this process for dry launches: the stand-ins in place, then vLLM imported over them."""

import os

from kvdoctor.dryrun import libcuda


class _State:
    loaded = False


def libraries() -> bool:
    """Whether vLLM's own compiled libraries are loaded (else: empty stand-ins)."""
    return _State.loaded


def prepare() -> None:
    """Import everything a launch needs that does not depend on the GPU, once per worker.

    Raises ``ImportError`` when vLLM is not there or is broken.
    """
    own = os.environ.get("KVDOCTOR_LIBRARIES", "own")
    _State.loaded = own == "own" and libcuda.load_stand_in() and _libraries_load()
    if not _State.loaded:
        from kvdoctor.dryrun import extensions

        extensions.install_modules()

    from kvdoctor.dryrun import device, world

    device.install_torch()
    device.install_platform()
    import vllm.engine.arg_utils
    import vllm.v1.engine.core

    world.install()


def prepare_for_device() -> None:
    """Import what asks about the device while it is imported: the layers and their backends."""
    import vllm._custom_ops
    import vllm.v1.worker.gpu.attn_utils  # noqa: F401

    from kvdoctor.dryrun import extensions, model

    if not _State.loaded:
        extensions.install_operators()
    model.install()
    _inspect_in_process()
    _leave_deep_gemm_alone()


def _libraries_load() -> bool:
    """Whether this vLLM's compiled libraries load: a release unpacked without them, or a CPU build of torch, cannot."""
    try:
        import vllm._C_stable_libtorch  # noqa: F401
    except ImportError:
        return False
    return True


def _inspect_in_process() -> None:
    """vLLM's registry inspects model classes in a fresh process, where none of the stand-ins are (``registry.py``, every release)."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda inspect: inspect()


def _leave_deep_gemm_alone() -> None:
    """DeepGEMM's library asks the driver when vLLM sets an option of its launches, and fills the log with its panic (0.31 and later)."""
    from vllm.utils import deep_gemm

    if hasattr(deep_gemm, "_apply_pdl"):
        deep_gemm._apply_pdl = lambda *_a, **_k: None
