"""Whether a model can read a context at all: its vocabulary, its positions, and no padding."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..sample import Sample


def longest_context(model: nn.Module) -> int | None:
    """Tokens that ``model`` was made to read, scaling of its rotary embedding included.

    Parameters
    ----------
    model : transformers.PreTrainedModel

    Returns
    -------
    int or None
        None where the configuration sets no limit.
    """
    config = getattr(model, "config", None)
    if config is None:
        return None
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limit = getattr(text, "max_position_embeddings", None)
    if not limit or limit < 0:  # XLNet says -1
        return None
    return max([limit, *(int(scaled) for scaled in _scaled(text, limit))])


def _scaled(config: Any, limit: int) -> Iterator[float]:
    """Lengths that settings of the rotary embedding stretch the positions to."""
    for settings in _rotary(config):
        if settings.get("factor"):
            yield settings["factor"] * settings.get("original_max_position_embeddings", limit)


def _rotary(config: Any) -> list[dict[str, Any]]:
    """Settings of the rotary embedding: one for the model, or one for each type of layer."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return [settings for settings in (rope, *rope.values()) if isinstance(settings, dict)]


def steady_length(model: nn.Module) -> float:
    """Tokens up to which rotary frequencies do not depend on how long a pass is; infinite for most models."""
    config = model.config.get_text_config()
    grown = [r for r in _rotary(config) if r.get("rope_type", r.get("type")) in ("longrope", "dynamic")]
    first = getattr(config, "original_max_position_embeddings", None) or getattr(config, "max_position_embeddings", 0)
    return min((r.get("original_max_position_embeddings") or first for r in grown), default=math.inf)


def vocabulary_size(model: nn.Module) -> int:
    """Number of tokens that have an input embedding, whatever peft has wrapped around it."""
    embedding = model.get_input_embeddings()
    return getattr(embedding, "num_embeddings", None) or len(embedding.weight)


def check_context(model: nn.Module, sample: Sample) -> None:
    """Refuse a context that the model cannot read, or would read as something else.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    sample : Sample

    Raises
    ------
    ValueError
        If a token is not in the vocabulary, the context is longer than the model's positions, or it begins with
        padding, which a model without an attention mask reads as text.
    """
    ids, vocabulary = sample.input_ids, vocabulary_size(model)
    outside = ids[(ids < 0) | (ids >= vocabulary)]
    if len(outside):
        raise ValueError(
            f"sample {sample.id}: token id {int(outside[0])} is outside the model's vocabulary of {vocabulary}; "
            "tokenise the text with the tokenizer of this very model"
        )
    limit = longest_context(model)
    if limit is not None and len(ids) > limit:
        raise ValueError(
            f"sample {sample.id} has {len(ids)} tokens, the model reads {limit} at most: shorten the context, or use a "
            "model with a longer one"
        )
    padding = _left_padding(model, ids)
    if padding:
        raise ValueError(
            f"sample {sample.id} begins with {padding} padding tokens: a sample has no attention mask, so the model "
            "would read them as text; leave them out and move the segments to the left"
        )


def _left_padding(model: nn.Module, ids: torch.Tensor) -> int:
    """Padding tokens before the first other one; a token that begins every text is no padding the first time."""
    pad, begin = (getattr(getattr(model, "config", None), f"{name}_token_id", None) for name in ("pad", "bos"))
    if not isinstance(pad, int) or pad < 0:
        return 0
    others = (ids != pad).nonzero()
    run = int(others[0]) if len(others) else len(ids)
    return 0 if run == 1 and begin in (pad, None) else run


def mask_token(sample: Sample) -> int:
    """Id of the token that stands in for a masked one; ValueError where the sample has none."""
    if sample.mask_token_id is None:
        raise ValueError(
            f"sample {sample.id} has no mask_token_id: build it with the tokenizer's pad token id "
            "(else its end token id), which stands in for a masked token"
        )
    return int(sample.mask_token_id)
