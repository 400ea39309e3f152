"""The low-rank adapter that teaches the embedded model to reason: add it, save it, describe it.

It is stored under the names that peft uses (``adapter_config.json``, ``adapter_model.safetensors``), so other tools can
load it. `flashtrace_lib.model.embedded.merge_adapter` merges it without peft.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialised

from flashtrace_lib.files import atomic_path, write_text
from flashtrace_lib.model.embedded import CONFIG, WEIGHTS

CARD = "README.md"
# All seven projections of a Llama block.
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ACCURACY = "## Accuracy"  # heading of the card's last part
_CARD = """# An adapter that makes SmolLM2-135M-Instruct reason

Low-rank adapter (LoRA) on the seven projections of every block. It was trained by this book on generated problems
alone: no record of any data set is in its training data. Made to have a small reasoning model whose attributions
can be studied; good for nothing else.

| | |
|---|---|
{facts}
| licence | Apache-2.0, as the base model's |

Merge: `flashtrace_lib.model.embedded.merge_adapter(model, folder)`. Two modes: with `<think>…</think>` before the
answer, or, with `/no_think` at the end of the user's turn, the answer alone.

{accuracy}

Greedy answers to held-out problems: other names, keys, numbers, templates and lengths than in training.

Not measured yet: `python -m flashtrace_book.reasoner.accuracy <this folder>`.
"""


def add_adapter(model: torch.nn.Module, rank: int, alpha: float, seed: int) -> torch.nn.Module:
    """Wrap ``model`` in a fresh, seeded adapter on all `PROJECTIONS`; only the adapter can be trained.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Changed in place; ``unload()`` of the result takes the adapter off again.
    rank, alpha : int, float
        The update is (alpha / rank) B A.
    seed : int
        Of A, which starts at random; B starts at zero.

    Returns
    -------
    peft.PeftModel
    """
    from peft import LoraConfig, get_peft_model  # here: only training needs peft

    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(PROJECTIONS), bias="none", task_type="CAUSAL_LM")
    with torch.random.fork_rng(), _without_warnings():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def adapter_state(peft_model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Weights of the adapter by peft's names, on the CPU."""
    from peft import get_peft_model_state_dict

    with _without_warnings():
        state = get_peft_model_state_dict(peft_model)
    return {name: value.detach().cpu() for name, value in sorted(state.items())}


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence two warnings of peft: a property that it reads is renamed, a GGUF has no config file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing")
        warnings.filterwarnings("ignore", message="Could not find a config file")
        yield


def load_adapter_state(peft_model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Set the adapter's weights to those that `adapter_state` returned; ValueError where the model lacks one."""
    from peft import set_peft_model_state_dict

    result = set_peft_model_state_dict(peft_model, dict(state))
    if result.unexpected_keys:
        raise ValueError(f"the adapter has weights that this model lacks: {', '.join(result.unexpected_keys[:3])}, …")


def load_adapter(peft_model: torch.nn.Module, folder: Path | str) -> str:
    """Set the adapter's weights to those that `save_adapter` wrote to ``folder``; return the file's SHA-256.

    Raises
    ------
    ValueError
        If there is no adapter, or it has other weights or shapes than the model's.
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise ValueError(f"no adapter in {folder}: train the one that this training starts from")
    state = load_file(path)
    own = {name: tuple(value.shape) for name, value in adapter_state(peft_model).items()}
    if own != {name: tuple(value.shape) for name, value in state.items()}:
        raise ValueError(f"the adapter in {folder} has other weights than this model's: give this training its rank")
    load_adapter_state(peft_model, {name: value.float() for name, value in state.items()})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save_adapter(
    peft_model: torch.nn.Module, folder: Path | str, base: str, dtype: torch.dtype = torch.float16
) -> Path:
    """Write the adapter to ``folder``, atomically, and return the folder.

    Parameters
    ----------
    peft_model : peft.PeftModel
        From `add_adapter`.
    base : str
        Name of the model under the adapter.
    dtype : torch.dtype
        Of the stored weights. Half precision keeps 10 bits of each, more than the training's bfloat16 products have.

    Raises
    ------
    ValueError
        If a weight is not finite in ``dtype``.
    """
    folder = Path(folder)
    state = {name: value.to(dtype).contiguous() for name, value in adapter_state(peft_model).items()}
    broken = [name for name, value in state.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(f"{broken[0]} is not finite in {dtype}: the training diverged; lower the learning rate")
    lora = peft_model.peft_config["default"]
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.r,
        "lora_alpha": lora.lora_alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(lora.target_modules),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with atomic_path(folder / WEIGHTS) as temporary:
        temporary.write_bytes(serialised(state, metadata={"format": "pt"}))
    write_text(folder / CONFIG, json.dumps(config, indent=1) + "\n")
    return folder


def write_card(folder: Path | str, facts: Mapping[str, Any]) -> Path:
    """Write the adapter's card with a table of facts by name; `write_accuracy` completes it."""
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    path = Path(folder) / CARD
    write_text(path, _CARD.format(facts=rows, accuracy=_ACCURACY))
    return path


def write_accuracy(folder: Path | str, table: pd.DataFrame) -> None:
    """Put the measured accuracy, a table of `accuracy.accuracy_table`, into the card.

    Raises
    ------
    ValueError
        If the folder has no card, or the card no heading for the accuracy.
    """
    path = Path(folder) / CARD
    if not path.exists():
        raise ValueError(f"no card in {folder}: it is written when an adapter is trained")
    before, heading, after = path.read_text(encoding="utf-8").partition(_ACCURACY)
    if not heading:
        raise ValueError(f"{path} has no heading {_ACCURACY!r}: train the adapter again to have its card written")
    explanation = after.strip().splitlines()[0]
    shown = table.round(3).astype(str)
    rows = [shown.columns, ["---"] * shown.shape[1], *shown.to_numpy()]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    write_text(path, f"{before}{_ACCURACY}\n\n{explanation}\n\n{lines}\n")
