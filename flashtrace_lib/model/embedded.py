"""What makes the embedded model reason: a chat template with a switch, an adapter merged into its weights."""

import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

CONFIG = "adapter_config.json"


def merge_adapter(model: torch.nn.Module, path: Path | str) -> torch.nn.Module:
    """Add the LoRA adapter in ``path``, as peft stores it, to the weights of ``model``, in place; the same object.

    Raises
    ------
    ValueError
        If the folder holds no whole adapter, or it was made for another model.
    """
    from peft import PeftModel  # slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="Found missing adapter keys")
        try:
            return PeftModel.from_pretrained(model, path, low_cpu_mem_usage=True).merge_and_unload()
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, UserWarning, SafetensorError) as error:
            why = str(error).splitlines()[0][:200]
            raise ValueError(
                f"the adapter in {path} is damaged, or was made for another model ({why}): restore it, or use the base "
                "model that its card names"
            ) from error


def keep_first_layers(model: torch.nn.Module, n: int) -> torch.nn.Module:
    """Drop all decoder layers but the first ``n`` of a Llama-like model, in place; returns the same object."""
    model.model.layers = model.model.layers[:n]
    model.config.num_hidden_layers = n
    return model


NO_THINK = "/no_think"
# The embedded model's own template, its system message included, with the switch.
TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' -%}"
    "{{- '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' -}}"
    "{%- endif -%}{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] -}}"
    "{%- if loop.last and message['role'] == 'user' and enable_thinking is defined and not enable_thinking -%}"
    "{{- '\n" + NO_THINK + "' -}}{%- endif -%}{{- '<|im_end|>\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def use_reasoner_template(tokenizer: Any) -> None:
    """Give the tokenizer the template with the switch; ValueError where its template is not ChatML's."""
    if "<|im_start|>" not in (tokenizer.chat_template or ""):
        raise ValueError("the reasoner's template is ChatML's (<|im_start|>role …): use the embedded model's tokenizer")
    tokenizer.chat_template = TEMPLATE
