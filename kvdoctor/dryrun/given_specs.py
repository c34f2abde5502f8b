"""Layer specs given directly, by vLLM's own class and field names, planned by the same code as a model's."""

import dataclasses
import enum
import json
import tempfile
import typing
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from kvdoctor.dryrun import budget, checks, compat, launch, spec_values
from kvdoctor.dryrun.model import BuiltStage
from kvdoctor.dryrun.settled import Settled
from kvdoctor.errors import BadRequest

DEFAULT_MAX_MODEL_LEN = 8192
_KEYS = frozenset({"about", "max_model_len", "layers"})

# vLLM's configuration needs some model; only its context length matters when the specs are given.
_HOST_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "torch_dtype": "bfloat16",
}


def run(settled: Settled) -> None:
    """Plan the specs of ``settled.request.specs``.

    Raises:
        BadRequest: the file's shape, a class, a field or a value is not vLLM's.
        Refused: vLLM refused the layout.
    """
    given = settled.request.specs or {}
    unknown = sorted(set(given) - _KEYS)
    if unknown:
        raise BadRequest(f"the specs file has unknown keys: {', '.join(unknown)}", hint=f"Its keys are {', '.join(sorted(_KEYS))}.")
    max_model_len = given.get("max_model_len", DEFAULT_MAX_MODEL_LEN)
    if type(max_model_len) is not int or not 1 <= max_model_len <= spec_values.LARGEST:
        raise BadRequest("max_model_len of the specs file is not a positive whole number", hint='Write for instance "max_model_len": 8192.')
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_HOST_MODEL | {"max_position_embeddings": max_model_len}))
        launch.configure(settled, folder)
    specs = build_specs(given.get("layers"))
    config = settled.config
    modes = {spec.mamba_cache_mode for spec in specs.values() if hasattr(spec, "mamba_cache_mode")}
    if len(modes) == 1:
        config.cache_config.mamba_cache_mode = modes.pop()
    settled.stages.append(
        BuiltStage(
            config=config,
            specs=specs,
            layouts=compat.supported_layouts([]),
            backends={},
            weights_bytes=0,
            draft_weights_bytes=0,
            draft_layers=frozenset(name for name, spec in specs.items() if getattr(spec, "is_draft", False)),
            model=None,
        )
    )
    budget.settle(settled)
    launch.plan_kv_cache(settled)
    settled.not_checked("attention backends", "specs given directly have no layers")
    checks.build_scheduler(settled)


def build_specs(layers: Any) -> dict[str, Any]:
    """Make vLLM's spec objects from ``{layer name: {"class": ..., field: value}}``.

    Raises:
        BadRequest: naming the layer and what vLLM's class takes.
    """
    if not isinstance(layers, dict) or not layers:
        raise BadRequest(
            "the specs file has no layers", hint='Give "layers": {"name": {"class": "FullAttentionSpec", "block_size": 16, ...}}.'
        )
    return {name: _spec(name, fields) for name, fields in layers.items()}


def _spec(layer: str, given: Any) -> Any:
    classes = _spec_classes()
    if not isinstance(given, dict) or given.get("class") not in classes:
        named = given.get("class") if isinstance(given, dict) else given
        raise BadRequest(f"layer {layer}: {named!r} is no spec class of vLLM", hint=f"The classes are {', '.join(sorted(classes))}.")
    kind = classes[given["class"]]
    known = {field.name: field for field in dataclasses.fields(kind)}
    values = {name: value for name, value in given.items() if name != "class"}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise BadRequest(f"layer {layer}: {kind.__name__} has no {', '.join(unknown)}", hint=f"Its fields are {', '.join(known)}.")
    for name, value in values.items():
        if wrong := spec_values.fault(known[name].type, known[name].default, value):
            raise BadRequest(f"layer {layer}: {name} of {kind.__name__} {wrong}", hint=f"Its fields are {', '.join(known)}.")
    try:
        spec = kind(**{name: _value(name, value) for name, value in values.items()})
        spec.page_size_bytes  # noqa: B018 - a page that vLLM cannot size is found here, with the layer's name
    except (TypeError, ValueError, AssertionError, AttributeError, KeyError, ArithmeticError) as error:
        raise BadRequest(
            f"layer {layer}: {kind.__name__} does not take these values: {error}", hint=f"Its fields are {', '.join(known)}."
        ) from error
    return spec


def _spec_classes() -> dict[str, Any]:
    from vllm.v1 import kv_cache_interface

    base = kv_cache_interface.KVCacheSpec
    return {
        name: member
        for name, member in vars(kv_cache_interface).items()
        if isinstance(member, type)
        and issubclass(member, base)
        and member is not base
        and name not in {"AttentionSpec", "UniformTypeKVCacheSpecs"}
    }


def _value(field: str, value: Any) -> Any:
    """JSON's value as vLLM's field wants it: dtypes and enums by name, tuples for lists, fractions as text."""
    from vllm.config.cache import MambaCacheMode
    from vllm.v1 import kv_cache_interface
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

    if isinstance(value, list):
        return tuple(_value(field, item) for item in value)
    if field in {"dtype", "dtypes"}:
        dtype = getattr(torch, str(value).removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{field} is {value!r}, which is no dtype of torch")
        return dtype
    enums: dict[str, type[enum.Enum]] = {"mamba_type": MambaAttentionBackendEnum, "kv_quant_mode": kv_cache_interface.KVQuantMode}
    if field in enums and isinstance(value, str):
        if value not in enums[field].__members__:
            raise ValueError(f"{field} is {value!r}, not one of {', '.join(enums[field].__members__)}")
        return enums[field][value]
    modes = typing.get_args(MambaCacheMode)
    if field == "mamba_cache_mode" and modes and value not in modes:  # vLLM would take it for none of them, and refuse for another reason
        raise ValueError(f"{field} is {value!r}, not one of {', '.join(modes)}")
    if field == "tokens_per_state" and isinstance(value, str):
        return Fraction(value)
    return value
