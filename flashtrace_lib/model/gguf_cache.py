"""A model out of a GGUF file, converted once: plain weights, configuration and tokenizer in the user's cache.

Reading a GGUF file dequantises every tensor in Python; what that gave is mapped into memory from a safetensors file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..files import cache_root, sha256, write_text
from .gguf import forget_quantisation

MANIFEST = "flashtrace.json"  # size and hash of every other file: what makes a folder one that is used
CONVERTERS = ("gguf", "safetensors", "tokenizers", "torch", "transformers")  # whose version may shape what is made
_ABANDONED = 24 * 3600  # s, after which an unfinished folder belongs to nobody any more


def converted(gguf: Path, dtype: torch.dtype) -> Path | None:
    """Folder with the model and tokenizer of a GGUF file, made at the first call; None where there can be none.

    Its weights are those that ``from_pretrained(…, gguf_file=…)`` gives, bit by bit. A folder that lacks a byte is made
    again; any number of processes may ask at once. A cache that cannot be written costs time and is no error.

    Parameters
    ----------
    gguf : Path
    dtype : torch.dtype
        Of the weights.
    """
    try:
        folder = cache_root() / "models" / f"{gguf.stem}-{_key(gguf, dtype)}"
        if not _is_whole(folder):
            _remove_abandoned(folder.parent)
            _convert(gguf, dtype, folder)
        return folder
    except (OSError, SafetensorError, RuntimeError) as error:  # RuntimeError: no home folder
        logging.getLogger(__name__).info("the weights of %s are not cached: %s", gguf.name, error)
        return None


def _key(gguf: Path, dtype: torch.dtype) -> str:
    """Hash of all that shapes the converted weights."""
    parts = [sha256(gguf), str(dtype), *(version(package) for package in CONVERTERS)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _is_whole(folder: Path) -> bool:
    """Whether every file of the manifest is there, byte by byte."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(listed) and all(_stamp(folder / name) == stamp for name, stamp in listed.items())
    except (OSError, ValueError, AttributeError):
        return False


def _stamp(path: Path) -> list:
    """Size and hash of a file."""
    return [path.stat().st_size, sha256(path)]


def _convert(gguf: Path, dtype: torch.dtype, folder: Path) -> None:
    """Make the folder beside its place and move it there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        made = Path(temporary) / "made"
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=dtype)
        forget_quantisation(model)
        model.save_pretrained(made)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(made)
        stamps = {path.name: _stamp(path) for path in sorted(made.iterdir())}
        write_text(made / MANIFEST, json.dumps(stamps, indent=1))
        _place(made, folder)


def _place(made: Path, folder: Path) -> None:
    """Move a finished folder to its place, in which a damaged one may stand, or that of a process that was faster."""
    try:
        made.rename(folder)
        return
    except OSError:
        if _is_whole(folder):
            return
    try:
        folder.rename(made.with_name("damaged"))  # into the temporary folder, which goes
        made.rename(folder)
    except OSError:
        if not _is_whole(folder):  # else another process mended it meanwhile
            raise


def _remove_abandoned(cache: Path) -> None:
    """Remove what processes that were killed while converting left behind."""
    for path in cache.glob(".*") if cache.is_dir() else ():
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # another process was faster
