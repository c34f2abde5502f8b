"""The model on the meta device: built by vLLM's own classes, its layers registered, nothing allocated."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from kvdoctor.dryrun import compat, offload, repack

META = torch.device("meta")


class CudaMeansMeta(TorchFunctionMode):  # type: ignore[misc]  # torch's classes are Any to mypy
    """Redirect an explicit ``device="cuda"`` in layer code, which goes around ``torch.device("meta")``; pinned memory needs a driver."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` with CUDA devices turned into meta."""
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != "pin_memory"}
        if kwargs.get("device") is not None:
            kwargs["device"] = _meta_for_cuda(kwargs["device"])
        if "device" not in kwargs and _holds_numbers(func, args):
            kwargs["device"] = "cpu"
        if func in _MOVES:
            args = tuple(_meta_for_cuda(value) for value in args)
        return func(*args, **kwargs)


def _holds_numbers(func: Any, args: Any) -> bool:
    """Whether a tensor is made whose numbers a layer may read back: a single one mixes with any device, drop rates stay among themselves.

    Gemma 3n reads its activation's threshold and timm's vision tower its drop rates while they are built (0.25 and later).
    """
    return func is torch.linspace or (func is torch.tensor and bool(args) and isinstance(args[0], (int, float)))


_MOVES = frozenset({torch.Tensor.to, torch.Tensor.cuda})


def _meta_for_cuda(value: Any) -> Any:
    """A device in any of torch's spellings (``cuda:0``, an index, an object) as meta if it is CUDA; anything else as it is."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        try:
            device = torch.device(value)
        except RuntimeError:  # a string that names no device, such as a method's other argument
            return value
        return META if device.type == "cuda" else value
    return META if isinstance(value, torch.device) and value.type == "cuda" else value


class Replaced:
    """What :func:`install` takes the place of, for who asks about the launch and not for a model."""

    get_model_loader: ClassVar[Any] = None


def install() -> None:
    """Make vLLM's model loaders build and stop there: no download, no weights.

    Every model, a draft's too, comes through ``get_model_loader``; the load format that the user chose stays in the configuration.
    """
    from vllm.model_executor import model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    class MetaLoader(BaseModelLoader):  # type: ignore[misc]  # vLLM's classes are Any to mypy
        """A loader that leaves the model as it was constructed."""

        def download_model(self, model_config: Any) -> None:
            """Fetch nothing."""

        def load_weights(self, model: Any, model_config: Any) -> None:
            """Load nothing."""

        def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
            """Build the model under the meta device."""
            with set_default_torch_dtype(model_config.dtype), META, CudaMeansMeta(), _nothing_kept_for_a_reload(vllm_config):
                return initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix).eval()

    Replaced.get_model_loader = Replaced.get_model_loader or model_loader.get_model_loader
    model_loader.get_model_loader = MetaLoader


@contextmanager
def _nothing_kept_for_a_reload(vllm_config: Any) -> Iterator[None]:
    """Leave out what a later reload of weights would need, a third of the time of building; quantising while loading needs it as well."""
    from vllm.model_executor.model_loader import utils

    record = utils.record_metadata_for_reloading
    if vllm_config.quant_config is None:
        utils.record_metadata_for_reloading = lambda _model: None
    try:
        yield
    finally:
        utils.record_metadata_for_reloading = record


@dataclass(frozen=True, kw_only=True)
class BuiltStage:
    """What one pipeline stage's worker knows once its model is built: vLLM's objects, inside the fence."""

    config: Any
    specs: dict[str, Any]
    layouts: list[str]
    backends: dict[str, Any]
    weights_bytes: int
    draft_weights_bytes: int
    draft_layers: frozenset[str]
    model: Any
    speculator: Any = None
    weights_notes: tuple[str, ...] = ()


@contextmanager
def on_meta() -> Iterator[None]:
    """Whatever vLLM allocates inside lands on the meta device."""
    with META, CudaMeansMeta():
        yield


def build_stage(config: Any) -> BuiltStage:
    """Build the model of the rank whose process groups exist, and settle its block size and specs.

    The order is that of a worker (``vllm/v1/worker/gpu/model_runner.py``, 0.33): speculator made, model loaded, draft loaded, then the
    block size, which depends on the layers' attention backends, then the specs.
    """
    from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader import get_model
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    with set_current_vllm_config(config):
        _initialize_workspace()
        offloading = offload.install(config)
        speculator = _speculator(config)
        model = get_model(vllm_config=config)
        target_layers = set(config.compilation_config.static_forward_context)
        draft = None
        if speculator is not None and hasattr(speculator, "load_model"):
            with on_meta():
                speculator.load_model(model)
            draft = getattr(speculator, "model", None)
        weights, draft_weights, notes = _loaded_weights(config, [root for root in (model, draft) if root is not None], offloading)
        current_platform.update_block_size_for_backend(config)
    # A worker answers the following with no current configuration set, and backends look at it (FlashInfer's page sizes).
    specs = get_kv_cache_spec(config)
    dcp_size = config.parallel_config.decode_context_parallel_size
    draft_layers = frozenset(set(config.compilation_config.static_forward_context) - target_layers)
    if dcp_size > 1 and getattr(speculator, "dcp_size", dcp_size) == 1:
        specs = _replicate_draft(specs, draft_layers)
    layers = get_layers_from_vllm_config(config, AttentionLayerBase)
    return BuiltStage(
        config=config,
        specs=specs,
        layouts=compat.supported_layouts(compat.current_backends(config)),
        backends={name: layer.get_attn_backend() for name, layer in layers.items() if hasattr(layer, "get_attn_backend")},
        weights_bytes=weights + draft_weights,
        draft_weights_bytes=draft_weights,
        draft_layers=draft_layers,
        model=model,
        speculator=speculator,
        weights_notes=notes,
    )


def _speculator(config: Any) -> Any:
    """The speculator that the last pipeline stage makes; ``None`` where there is none, or nothing of it is a model."""
    from vllm.distributed.parallel_state import get_pp_group

    speculative = config.speculative_config
    if speculative is None or speculative.draft_model_config is None or not get_pp_group().is_last_rank:
        return None
    with on_meta():
        return compat.make_speculator(config, META)


def _replicate_draft(specs: dict[str, Any], draft_layers: frozenset[str]) -> dict[str, Any]:
    """A draft at DCP 1 under a DCP target keeps a whole copy of its cache (``GPUModelRunner.get_kv_cache_spec``, 0.31 and later)."""
    from dataclasses import replace

    return {name: replace(spec, dcp_sharded=False) if name in draft_layers else spec for name, spec in specs.items()}


def _initialize_workspace() -> None:
    """Sparse MLA asks for the workspace while its layers are built; a worker makes it before (``gpu_worker.py``)."""
    from vllm.v1.worker import workspace

    workspace.init_workspace_manager(META)


def _loaded_weights(config: Any, models: list[Any], offloading: offload.Offload | None) -> tuple[int, int, tuple[str, ...]]:
    """Bytes of the target and of the draft on a GPU once all is loaded, and what must be known about the count.

    What a draft shares with its target counts once, as the target's.
    """
    notes = []
    if offloading is not None:
        with on_meta():
            offloading.finish()
        notes.append(offloading.note())
    sizes, counted = [], set[int]()
    for model in models:
        tensors = {repack.storage_key(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        on_gpu = {key: tensor for key, tensor in tensors.items() if offloading is None or not offloading.holds(tensor)}
        sizes.append(sum(tensor.untyped_storage().nbytes() for key, tensor in on_gpu.items() if key not in counted))
        counted |= set(on_gpu)
    if any(repack.is_online(model) for model in models):
        with on_meta():
            repacked = repack.run(models, config.model_config.dtype)
        notes.append(repacked.note)
        sizes = [size + change for size, change in zip(sizes, repacked.changes, strict=True)]
    target, draft = (*sizes, 0)[:2]
    return target, draft, tuple(notes)
