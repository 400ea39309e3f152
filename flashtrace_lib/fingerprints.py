"""Stable short hashes of data, samples, models and code: what keys a stored result and tells where it came from."""

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .sample import Sample

# Where the 256 values of a tensor that are hashed stand in it, as shares: Weyl's sequence, even over rows and columns.
PLACES = (torch.arange(256, dtype=torch.float64) * ((5**0.5 - 1) / 2)) % 1
_STORED_AS = {  # of the book's models, whose results were stored when other values were hashed
    "804ff90a3723c396fb36": "007ba9f5a856f43750d5", "7d685b0d24aef45004c2": "5dddf2ad690798fbfc3f",
    "84ba042e0fb17c1446a8": "e6a689c377f0d4978c6f",
}  # fmt: skip
# What may differ between two loads of one model without changing what it computes (dtypes are hashed by tensor).
VOLATILE_CONFIG = (
    "transformers_version", "_name_or_path", "_commit_hash", "_attn_implementation", "architectures",
    "torch_dtype", "dtype",
)  # fmt: skip


def fingerprint(obj: Any) -> str:
    """Stable short hash of nested data: the same in every process and on every machine.

    Parameters
    ----------
    obj : JSON-ready data, tensors, arrays, paths or dataclasses, nested at will
        Tuples count as lists, the order of a dict's keys does not matter.

    Returns
    -------
    str
        20 hexadecimal digits.

    Raises
    ------
    ValueError
        If something in it has no stable form (an open file, a function, a model).
    """
    digest = hashlib.sha256()
    _feed(digest, obj)
    return digest.hexdigest()[:20]


def _feed(digest, obj: Any) -> None:
    """Feed ``obj`` with its type and length, so that no two structures share their bytes."""
    if isinstance(obj, np.generic):
        obj = obj.item()
    if isinstance(obj, torch.Tensor):
        flat = obj.detach().cpu().contiguous().reshape(-1)
        digest.update(f"tensor {obj.dtype} {tuple(obj.shape)} ".encode() + flat.view(torch.uint8).numpy().tobytes())
    elif isinstance(obj, np.ndarray):
        _feed(digest, torch.as_tensor(np.array(obj)))
    elif isinstance(obj, dict):
        digest.update(f"dict {len(obj)} ".encode())
        for key in sorted(obj, key=lambda k: (type(k).__name__, repr(k))):
            _feed(digest, key)
            _feed(digest, obj[key])
    elif isinstance(obj, (list, tuple)):
        digest.update(f"list {len(obj)} ".encode())
        for item in obj:
            _feed(digest, item)
    elif is_dataclass(obj) and not isinstance(obj, type):
        _feed(digest, [type(obj).__name__, {f.name: getattr(obj, f.name) for f in fields(obj)}])
    elif obj is None or isinstance(obj, (bool, int, float, str, Path)):
        text = str(obj) if isinstance(obj, (str, Path)) else repr(obj)
        kind = "str" if isinstance(obj, (str, Path)) else type(obj).__name__
        digest.update(f"{kind} {len(text)} {text} ".encode())
    else:
        raise ValueError(f"{type(obj).__name__} has no stable hash: pass JSON-ready data, tensors or dataclasses")


def model_fingerprint(model: torch.nn.Module) -> str:
    """Hash of the configuration, of values from all over every parameter and saved buffer, and of active adapters.

    Computed afresh on every call (milliseconds), so that training or merging an adapter in place is seen, and which of
    several adapters is active, with what scale, or that they are disabled. Where the model was loaded from, and by
    which version, does not matter; its dtype does.

    Not every change is seen: of each tensor 256 values count, so that an edit of a few rows of a large matrix may lie
    between them, and a buffer that the model does not save (rotary frequencies) counts by the configuration alone.
    Give the results of a model edited in such a way a store of their own.

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers, as it is or with adapters of peft.

    Returns
    -------
    str
        20 hexadecimal digits.
    """
    config = model.config.to_dict() if hasattr(model, "config") else {}
    config, state = json.loads(json.dumps(config, default=str)), {}
    for name, value in model.state_dict().items():
        if value.is_meta:
            raise ValueError(f"the weights of {name} are on disk, not in memory: a stored result needs to know them")
        flat = value.detach().reshape(-1)
        chosen = flat[(PLACES * len(flat)).long()] if len(flat) > len(PLACES) else flat
        state[name] = [str(value.dtype), list(value.shape), chosen.to(torch.float32)]
    adapters = _adapters_in_use(model)  # of a model without any the hash is what it was before adapters counted
    parts = [type(model).__name__, _without(config, VOLATILE_CONFIG), state]
    found = fingerprint([*parts, adapters] if adapters else parts)
    return _STORED_AS.get(found, found)


def _adapters_in_use(model: torch.nn.Module) -> dict[str, list[Any]]:
    """Of each layer that peft has wrapped: active adapters, their scales, merged ones, whether all are disabled."""
    found = {}
    for name, module in model.named_modules():
        disabled = getattr(module, "disable_adapters", None)  # of a model of transformers this is a method
        if isinstance(disabled, bool):
            active, scales = list(module.active_adapters), getattr(module, "scaling", {})
            scales = [float(scales[adapter]) if adapter in scales else None for adapter in active]
            found[name] = [active, scales, list(module.merged_adapters), disabled]
    return found


def sample_fingerprint(sample: Sample) -> str:
    """Hash of ids, segments, sentences, gold, response and mask token, not of the labels.

    Nor of what the metadata call messages and marks: of two samples that differ in these alone, name one otherwise.
    """
    parts = (sample.input_ids, sample.segments, sample.sentences, sample.gold, sample.response, sample.mask_token_id)
    return fingerprint(parts if sample.tokens else (*parts, "no tokens"))  # without, a text has no lines


@lru_cache(maxsize=1)
def code_fingerprint() -> str:
    """Hash of the package's files as they stand: tells which code wrote a record, and is part of no key."""
    root = Path(__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml"))
    return fingerprint({path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files})


def _without(config: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """``config`` without the keys ``names``, at any depth."""
    return {k: _without(v, names) if isinstance(v, dict) else v for k, v in config.items() if k not in names}
