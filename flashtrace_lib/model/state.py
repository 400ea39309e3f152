"""State of a model around a computation: evaluation mode, and the memory that may be used."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def default_budget(device: torch.device) -> int:
    """1 GiB on a CPU (a larger batch is no faster there); on a GPU a quarter of what is free."""
    if device.type != "cuda":
        return 2**30
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # free to us, in the allocator
    return (free + held) // 4


def model_budget(model: nn.Module) -> int:
    """The smallest `default_budget` of the devices that the model is spread over."""
    return min(default_budget(device) for device in {p.device for p in model.parameters()})


def input_device(model: nn.Module) -> torch.device:
    """Where token ids are read: the device of the input embeddings, or where offloaded ones are brought for a pass."""
    embedding = model.get_input_embeddings()
    device = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    return embedding.weight.device if device is None else torch.device(device)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout) for the duration, every module's own flag restored afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def mlp_width(config: Any) -> int:
    """Channels within an MLP, of the widest layer."""
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return inner if isinstance(inner, int) else max(inner)  # Gemma-3n: one a layer


def eager_maps(config) -> int:
    """Attention maps [N, N] that a layer forms at once: one a head where it runs eagerly; a recurrent one has none."""
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return getattr(config, "num_attention_heads", 0) if eager else 0
