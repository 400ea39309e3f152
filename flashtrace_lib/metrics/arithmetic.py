"""In which arithmetic a deletion curve is computed: what the model has, and what the CPU is fast at."""

from __future__ import annotations

import copy

import torch
from torch import nn


def bfloat16_copy(model: nn.Module) -> nn.Module:
    """A copy with bfloat16 parameters; buffers (rotary frequencies) stay as they are, as on a bfloat16 load."""
    # Seeding the memo with the cast parameters avoids a float32 copy on the way and keeps tied weights tied.
    memo = {id(p): nn.Parameter(p.detach().to(torch.bfloat16), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, memo)


def without_emulation(dtype: str, model: nn.Module) -> str:
    """``dtype``, or float32 in the place of a bfloat16 that this CPU would emulate, many times slower than float32."""
    return "float32" if dtype == "bfloat16" and _cpu_float32(model) and not _native_bfloat16() else dtype


def no_choice(model: nn.Module) -> str:
    """Reason why bfloat16 is no option; empty where it is one."""
    if not _cpu_float32(model):
        return "the model's own dtype: not a float32 model on a CPU"
    return "" if _native_bfloat16() else "float32: this CPU has no bfloat16 arithmetic"


def _cpu_float32(model: nn.Module) -> bool:
    return all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())


def _native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (emulation is slower than float32)."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def dtype_name(model: nn.Module) -> str:
    """Name of the dtype of a model's parameters, such as ``"float32"``."""
    return str(next(model.parameters()).dtype).removeprefix("torch.")
