"""Models whose weights came out of a GGUF file: plain tensors, which transformers still takes for packed ones."""

from __future__ import annotations

import logging

from transformers import PreTrainedModel


def forget_quantisation(model: PreTrainedModel) -> None:
    """A GGUF is dequantised on load; drop the marks that would stop casts, copies and saves of a plain model."""
    if getattr(model, "quantization_method", None) != "gguf" and not _from_gguf(model):
        return
    for holder, attribute in ((model.config, "quantization_config"), (model, "hf_quantizer")):
        if hasattr(holder, attribute):
            delattr(holder, attribute)
    model.is_quantized = False
    logging.getLogger(__name__).debug("GGUF weights dequantised to %s", model.dtype)


def _from_gguf(model: PreTrainedModel) -> bool:
    """Whether the weights came out of a GGUF file and are plain tensors now."""
    config = getattr(model.config, "quantization_config", None)
    method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
    return str(getattr(method, "value", method)) == "gguf"
