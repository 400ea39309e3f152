"""A model out of a GGUF file, converted once to plain weights in the user's cache, where it is read in seconds."""

import hashlib
import json
import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from .. import files

CONVERTERS = ("gguf", "safetensors", "tokenizers", "torch", "transformers")  # whose version may shape what is made


def converted(gguf: Path, dtype: torch.dtype) -> Path | None:
    """Folder with the model and tokenizer of a GGUF file, made at the first call; None where there can be none.

    Its weights are those that ``from_pretrained(…, gguf_file=…)`` gives, bit by bit. A cache that cannot be written
    costs time and is no error.
    """
    parts = [files.sha256(gguf), str(dtype), *(version(package) for package in CONVERTERS)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
    try:
        folder = files.cache_root() / "models" / f"{gguf.stem}-{key}"
        if not (folder / "config.json").is_file():
            convert(gguf, dtype, folder)
        return folder
    except (OSError, SafetensorError, RuntimeError) as error:  # RuntimeError: no home folder
        logging.getLogger(__name__).info("the weights of %s are not cached: %s", gguf.name, error)
        return None


def convert(
    gguf: Path, dtype: torch.dtype, folder: Path, complete: Callable[[PreTrainedModel, Any, Path], Any] | None = None
) -> None:
    """Save the model and tokenizer of a GGUF file as ``folder``, which is there whole or not at all.

    Parameters
    ----------
    gguf : Path
    dtype : torch.dtype
        Of the weights.
    folder : Path
        Not there yet, or made by another process meanwhile, whose work then stands.
    complete : callable, optional
        (model, tokenizer, folder that is being made) -> None: adds what the file does not say.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        made = Path(temporary) / "made"
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=dtype)
        forget_quantisation(model)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        if complete is not None:
            complete(model, tokenizer, made)
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        files.place_folder(made, folder, "config.json")


def forget_quantisation(model: PreTrainedModel) -> None:
    """Drop the marks of a GGUF, which is dequantised on load: they would stop casts, copies and saves of the model."""
    config = getattr(model.config, "quantization_config", None)
    method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
    if "gguf" not in (getattr(model, "quantization_method", None), str(getattr(method, "value", method))):
        return
    for holder, attribute in ((model.config, "quantization_config"), (model, "hf_quantizer")):
        if hasattr(holder, attribute):
            delattr(holder, attribute)
    model.is_quantized = False
