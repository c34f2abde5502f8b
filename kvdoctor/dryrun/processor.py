"""A multimodal model whose tokenizer and processor are not beside its config: it stays a multimodal model.

vLLM asks the model's class which modalities it takes, and makes a tokenizer for the question. Where that fails it plans the model
text-only, with other attention backends; a boot has the files, and does not.
"""

from typing import Any

from kvdoctor.dryrun.blame import lacks_file


def install() -> None:
    """Let vLLM ask without the files: no tokenizer is as good as the real one, and unknown limits are not zero."""
    from vllm.config import ModelConfig
    from vllm.multimodal import registry

    registry.cached_tokenizer_from_config = _or_if_lacking(registry.cached_tokenizer_from_config, None)
    # Moved to the model's configuration in 0.31.
    for owner, name in ((ModelConfig, "_supports_multimodal_inputs"), (registry.MultiModalRegistry, "supports_multimodal_inputs")):
        if hasattr(owner, name):
            setattr(owner, name, _or_if_lacking(getattr(owner, name), True))
    _let_the_norm_be_absent()


def _let_the_norm_be_absent() -> None:
    """Vision models read the means of their pixels from the processor's file while they are built (0.28 and later): six numbers."""
    from vllm.model_executor.models import vision

    norm = getattr(vision, "FusedInputNorm", None)  # 0.28 to 0.30
    if norm is not None:
        norm.from_model_config = _or_if_lacking(norm.from_model_config, norm.identity())
    try:
        from vllm.model_executor.layers.fusion import mm_input_norm  # 0.31 and later
    except ImportError:
        return
    any_means = mm_input_norm.NormParams(image_mean=[0.0] * 3, image_std=[1.0] * 3, rescale_factor=1 / 255)
    mm_input_norm._load_norm_params = _or_if_lacking(mm_input_norm._load_norm_params, any_means)


def _or_if_lacking(ask: Any, answer: Any) -> Any:
    def asked(*arguments: Any, **options: Any) -> Any:
        try:
            return ask(*arguments, **options)
        except Exception as error:
            if lacks_file(error):
                return answer
            raise

    return asked
