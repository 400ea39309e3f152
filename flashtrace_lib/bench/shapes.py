"""Models of published sizes with random weights: time and memory do not depend on what the weights say."""

from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

_ALIKE: dict[str, Any] = {
    "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936, "max_position_embeddings": 40_960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip
_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "tie_word_embeddings")
SHAPES = {"qwen3-8b": (36, 4096, 32, 12_288, False), "qwen3-0.6b": (28, 1024, 16, 3072, True)}


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
    sizes = dict(zip(_SIZES, SHAPES[shape], strict=True)) | ({"num_hidden_layers": layers} if layers else {})
    config = Qwen3Config(**_ALIKE, **sizes, dtype=dtype)
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
