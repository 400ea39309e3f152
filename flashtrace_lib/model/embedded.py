"""What makes the embedded model reason: a chat template with a switch, an adapter merged into its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."  # of peft's names


def merge_adapter(model: torch.nn.Module, path: Path | str) -> torch.nn.Module:
    """Add the adapter in ``path`` to the weights of ``model``, in place: W + (alpha / r) B A, in float32.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        The plain base model. Nothing is wrapped or hooked.
    path : Path or str
        Folder with an adapter as peft stores it.

    Returns
    -------
    transformers.PreTrainedModel
        The same object.

    Raises
    ------
    ValueError
        If the folder holds no whole adapter of the kind `save_adapter` writes, or it was made for another model. The
        model is then untouched.
    """
    scaling, state = _read_adapter(Path(path))
    weights = dict(model.named_parameters())
    updates = {}
    for name in state:
        if not name.endswith(".lora_A.weight"):
            continue
        target = name.removeprefix(_PREFIX).replace(".lora_A.weight", ".weight")
        a, b = state[name].float(), state[name.replace("lora_A", "lora_B")].float()  # [r, in], [out, r]
        if target not in weights or weights[target].shape != (len(b), a.shape[1]):
            found = tuple(weights[target].shape) if target in weights else "missing"
            raise ValueError(
                f"the adapter in {path} does not fit this model: {target} is {found}, "
                f"the adapter was made for ({len(b)}, {a.shape[1]}): use the base model that its card names"
            )
        updates[target] = scaling * (b @ a)  # [out, in]
    with torch.no_grad():
        for target, update in updates.items():
            weight = weights[target]
            weight.copy_(weight.float() + update.to(weight.device))
    return model


def keep_first_layers(model: torch.nn.Module, n: int) -> torch.nn.Module:
    """Drop all decoder layers but the first ``n`` of a Llama-like model, in place; returns the same object."""
    model.model.layers = model.model.layers[:n]
    model.config.num_hidden_layers = n
    return model


def _read_adapter(path: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """Scaling and weights of a stored adapter."""
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        state = load_file(path / WEIGHTS)
    except FileNotFoundError as error:
        raise ValueError(f"no adapter in {path}: {Path(error.filename or WEIGHTS).name} is missing") from error
    except (json.JSONDecodeError, SafetensorError) as error:
        raise ValueError(f"the adapter in {path} is damaged ({error}): restore it, or train it again") from error
    extras = [key for key in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out")
              if config.get(key)]  # fmt: skip
    halves = {name.replace("lora_B", "lora_A") for name in state}
    if config.get("peft_type") != "LORA" or extras or not state or len(state) != 2 * len(halves):
        what = ", ".join(extras) or "other weights than pairs of lora_A and lora_B"
        raise ValueError(f"the adapter in {path} is not a plain LoRA one ({what}): merge it with peft")
    return config["lora_alpha"] / config["r"], state


NO_THINK = "/no_think"
# The embedded model's own template, its system message included, with the switch.
TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' -%}"
    "{{- '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' -}}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] -}}"
    "{%- if loop.last and message['role'] == 'user' and enable_thinking is defined and not enable_thinking -%}"
    "{{- '\n" + NO_THINK + "' -}}"
    "{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def use_reasoner_template(tokenizer: Any) -> None:
    """Give the tokenizer the template with the switch; ValueError where its template is not ChatML's."""
    if "<|im_start|>" not in (tokenizer.chat_template or ""):
        raise ValueError("the reasoner's template is ChatML's (<|im_start|>role …): use the embedded model's tokenizer")
    tokenizer.chat_template = TEMPLATE
