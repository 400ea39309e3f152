"""The language model inside what others wrap around it, and its use by one thread at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

_INSIDE = ("_orig_mod", "module", "pretrained_model")  # of torch.compile, of DataParallel and its kin, of a value head
_SERVED = ("vllm", "openai", "anthropic", "sglang", "llama_cpp", "litellm")  # packages of served models
SERVED = (
    "a served model (vLLM, an API) shows no states, so it cannot be explained: load its weights with load_model, and "
    "give the answer that was served as response= (--response FILE)"
)
_BACKENDS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # what multiplies float32 by its own setting
_FOUND: list[tuple[str, list[str]]] = []  # the caller's settings, once for every use of a model that goes on
_COUNTING = Lock()
_LOCKS: dict[int, RLock] = {}  # by the id of the configuration, which wrappers of peft and several models may share


def unwrap(model: Any) -> nn.Module:
    """The causal language model inside compiled code, data parallelism or a value head.

    Parameters
    ----------
    model : nn.Module
        A model of transformers, as it is, with adapters of peft, or wrapped.

    Returns
    -------
    transformers.PreTrainedModel or peft.PeftModel

    Raises
    ------
    ValueError
        If there is none inside, its weights are spread over processes, or it does not predict the next token.
    """
    kind = type(model).__name__
    if str(model).startswith("http") or type(model).__module__.split(".")[0] in _SERVED:
        raise ValueError(SERVED)
    parts = model.modules() if isinstance(model, nn.Module) else ()
    if any(type(m).__name__.startswith(("FSDP", "FullyShardedDataParallel")) for m in parts) or (
        isinstance(model, nn.Module) and any(hasattr(p, "ds_id") for p in model.parameters())
    ):
        raise ValueError(
            f"the weights of {kind} are sharded over processes (FSDP, ZeRO-3), and attribution reads whole ones: save "
            "the model with its full state, and load it with load_model"
        )
    while not hasattr(type(model), "get_input_embeddings"):
        inside = [m for name, m in getattr(model, "_modules", {}).items() if name in _INSIDE]
        if not inside:
            break
        model = inside[0]
    _check_predicts(model)
    return model


def _check_predicts(model: Any) -> None:
    """ValueError unless ``model`` is one that predicts the next token."""
    if not hasattr(model, "get_input_embeddings"):
        held = {**getattr(model, "__dict__", {}), **getattr(model, "_modules", {})}
        inside = [f".{name}" for name, m in held.items() if hasattr(m, "get_input_embeddings")]
        raise ValueError(
            f"{type(model).__name__} is no causal language model of transformers: pass "
            + (f"the one that it holds ({', '.join(inside)})" if inside else "one that load_model(name) returns")
        )
    base = without_peft(model)
    headless = isinstance(base, PreTrainedModel) and base.get_output_embeddings() is None and not base.can_generate()
    if headless or getattr(getattr(base, "config", None), "is_encoder_decoder", False):
        raise ValueError(
            f"{type(base).__name__} is no decoder with a head that predicts the next token: load the model with "
            "AutoModelForCausalLM.from_pretrained, or load_model"
        )


def without_peft(model: nn.Module) -> nn.Module:
    """The model of transformers that a wrapper of peft holds, adapters in its layers included; else the model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def has_virtual_tokens(model: nn.Module) -> bool:
    """Whether prompt, prefix or p-tuning of peft puts tokens before the text."""
    config = None if getattr(model, "_adapters_disabled", False) else getattr(model, "active_peft_config", None)
    return bool(getattr(config, "is_prompt_learning", False))


@contextmanager
def in_use(model: Any) -> Iterator[nn.Module]:
    """The model itself (`unwrap`), for this thread alone, as its code is written: not compiled, nor in other dtypes.

    Methods listen to forward passes and change how they run, so a second thread waits; one that holds the model may
    enter again. Passes of the caller's own in other threads go on meanwhile (`interception`).
    """
    model = unwrap(model)
    if torch.get_default_dtype() != torch.float32:
        raise ValueError("attribution computes in float32: call torch.set_default_dtype(torch.float32) first")
    lock = _LOCKS.setdefault(id(getattr(without_peft(model), "config", model)), RLock())
    kind = next(model.parameters()).device.type.replace("meta", "cpu")  # meta: weights that are loaded when needed
    with lock, _uncompiled(model), _whole_products(), torch.autocast(kind, enabled=False):
        yield model


@contextmanager
def _whole_products() -> Iterator[None]:
    """Products of float32 in float32, though the caller's settings allow TF32 or bfloat16."""
    with _COUNTING:
        _FOUND.append(_FOUND[0] if _FOUND else _precision())
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        with _COUNTING:
            general, own = _FOUND.pop()
            if not _FOUND:  # the last one out
                torch.set_float32_matmul_precision(general)
                for backend, precision in zip(_BACKENDS, own, strict=True):
                    backend.fp32_precision = precision


def _precision() -> tuple[str, list[str]]:
    """Precision of float32 products: the one name for all, and each backend's."""
    own = [backend.fp32_precision for backend in _BACKENDS]
    try:
        return torch.get_float32_matmul_precision(), own
    except RuntimeError:  # what the backends were told one by one has no name
        return "highest", own


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """Run the modules' own code, for a text: what is compiled before a hook or another attention does not see it."""
    plain = []
    for module in model.modules():
        own = vars(module)
        written = getattr(own.get("forward"), "_torchdynamo_orig_callable", None)  # torch.compile(module[.forward])
        plain += [] if written is None else [(own, "forward", written)]
        plain += [(own, "_compiled_call_impl", None)] if own.get("_compiled_call_impl") else []  # module.compile()
        plain += [(own, "rope_deltas", None)] if "rope_deltas" in own else []  # by which the last picture moved a text
    compiled = [(own, name, own[name]) for own, name, _ in plain]
    try:
        for own, name, value in plain:
            own[name] = value
        yield
    finally:
        for own, name, value in compiled:
            own[name] = value
