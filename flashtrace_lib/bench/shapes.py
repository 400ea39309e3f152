"""Models of published sizes with random weights: time and memory do not depend on what the weights say."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

_QWEN3: dict[str, Any] = {
    "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936, "max_position_embeddings": 40_960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-8b": _QWEN3 | {
        "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 12_288,
        "tie_word_embeddings": False,
    },
    "qwen3-0.6b": _QWEN3 | {
        "num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 3072,
        "tie_word_embeddings": True,
    },
}  # fmt: skip


@torch.no_grad()
def random_model(
    shape: str, *, layers: int | None = None, dtype: torch.dtype = torch.bfloat16, device: str = "cpu"
) -> PreTrainedModel:
    """A model of a published configuration whose weights are drawn on the device; nothing is downloaded.

    Parameters
    ----------
    shape : str
        Key of ``SHAPES``.
    layers : int, optional
        Layers, where fewer than the published ones will do.
    dtype : torch.dtype
        Of the weights.
    device : str
        Where they are made.

    Returns
    -------
    transformers.PreTrainedModel
        In evaluation mode.
    """
    config = Qwen3Config(**SHAPES[shape] | ({} if layers is None else {"num_hidden_layers": layers}), dtype=dtype)
    with torch.device("meta"):  # makes no weights that would be overwritten
        model = Qwen3ForCausalLM._from_config(config, dtype=dtype)
    model.to_empty(device=device).tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)  # its buffers are no weights
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.normal_(std=config.initializer_range)
        else:  # of norms
            parameter.fill_(1)
    return model.eval()
