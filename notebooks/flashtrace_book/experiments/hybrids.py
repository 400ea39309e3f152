"""What linear layers cost: a layer of each kind against its own forward.

Random weights: time and memory do not depend on what they are.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from flashtrace_lib.bench.measure import peak_gib, random_sample
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.proximity import layer_scores

from ..profile import Profile

LAYER = "layer"
SIZE = {
    "vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 1024,
    "intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 8,
}  # fmt: skip
DELTA = {"linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "head_dim": 128}
LATENT = {"kv_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "q_lora_rank": None}
KINDS = {  # a family with layers of the kind, and what its configuration needs beside SIZE and the kinds of its layers
    "gated delta rule": ("qwen3_5_text", {**DELTA, "linear_value_head_dim": 128}),
    "decay by channel": ("kimi_linear", {**LATENT, "linear_num_heads": 8, "linear_head_dim": 128}),
    "Mamba-2": ("bamba", {"mamba_n_heads": 32, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}),
    "short convolution": ("lfm2", {}),
}


def hybrid(kind: str, layers: list[bool]) -> nn.Module:
    """A random model of one of `KINDS`; of its layers those that are True are linear, the others softmax attention."""
    family, more = KINDS[kind]
    names = ["conv" if family == "lfm2" else "linear_attention", "full_attention"]
    types = [names[not linear] for linear in layers]
    if family == "bamba":
        more = more | {"attn_layer_indices": [i for i, linear in enumerate(layers) if not linear]}
    elif family == "kimi_linear":
        more = more | {"layer_types": types, "mlp_layer_types": ["dense"] * len(layers)}
    else:
        more = more | {"layer_types": types}
    torch.manual_seed(0)
    config = CONFIG_MAPPING[family](**SIZE, num_hidden_layers=len(layers), **more)
    return AutoModelForCausalLM.from_config(config).eval()


def layer_costs(kind: str, n_tokens: int, runs: int = 3) -> list[dict]:
    """One span of all the later half's tokens, through a linear layer and through a softmax layer of the same model.

    Returns
    -------
    list of dict
        ``kind``, ``tokens``; seconds (the least of the runs) of the layer's own forward and of its scores, their
        ratio; and peak MiB of both over what was in use before.
    """
    model, ids = hybrid(kind, [True, False]), random_sample(n_tokens - 32, 16, 16, 512).input_ids
    span, rows = (n_tokens // 2, n_tokens), []
    layers, forwards = model.model.layers, []
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, args, kwargs: forwards.append((args, kwargs)), with_kwargs=True)
    captured = capture(model, ids, span)
    for state, layer, (args, kwargs) in zip(captured.layers, layers, forwards[:2], strict=True):
        forward, scores = (
            lambda layer=layer, args=args, kwargs=kwargs: layer.forward(*args, **kwargs),
            lambda state=state: layer_scores(state, torch.ones(1, span[1] - span[0]), span, span[0]),
        )
        own, seconds = _least(forward, runs), _least(scores, runs)
        peaks = {"forward_mib": 1024 * _peak(model, forward), "peak_mib": 1024 * _peak(model, scores)}
        name = kind if state.linear is not None else f"softmax beside {kind}"
        times = {"forward_s": own, "seconds": seconds, "ratio": seconds / own}
        rows.append({"kind": name, "tokens": n_tokens} | times | peaks)
    return rows


@torch.inference_mode()
def _least(work: Callable[[], object], runs: int) -> float:
    """Least CPU seconds of a call: what else runs on the machine can only add to them."""
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


@torch.inference_mode()
def _peak(model: nn.Module, work: Callable[[], object]) -> float:
    return peak_gib(model, work)


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of part ``layer``; ``tokens`` are the lengths at which layers are measured."""
    return [{"part": LAYER} | row for n in settings["tokens"] for kind in KINDS for row in layer_costs(kind, n)]
