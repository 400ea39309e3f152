"""A tiny configuration of any model family of transformers, and a tiny random model of it.

A family's configuration class states every size with its published default. Sizes are shrunk by their names; of lists
with one entry per layer (kind of attention, rotary or not, dense or sparse) every combination that occurs is kept. What
names do not tell stands in `OVERRIDES`.
"""

import dataclasses
import re
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

VOCABULARY, MAX_PARAMETERS = 97, 10_000_000
FAMILIES = tuple(sorted({**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}))

# Sizes by name; the first pattern that matches the whole name counts.
SIZES = (
    (r"vocab_size.*|.*_vocab_size", VOCABULARY), (r"hidden_size_per_layer_input", 8),
    (r"layers|depth|num_blocks|.*(n_layers?|num_layers|hidden_layers|(en|de)coder_layers)", 3),
    (r"(n_heads?|(.*_)?num_heads|.*attention_heads)", 4), (r"(.*num_)?key_value_heads|num_kv_heads", 2),
    (r"index_n_heads", 4), (r"qk_rope_head_dim|qk_nope_head_dim", 8), (r"v_head_dim", 12),
    (r".*head_dim|d_head|d_kv|dim_head|attention_head_size|kv_channels|linear_head_dim", 16),
    (r"moe_intermediate_size|expert_ffn_hidden_size", 24),
    (r".*intermediate_size.*|.*ffn_dim|n_inner|d_ff|dff|dim_ff|d_inner|ffn_hidden_size|mlp_dim|feed_forward_size", 48),
    (r"num_(local_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k_experts|num_selected_experts|experts_per_token|moe_top_k", 2),
    (r"n_group|topk_group|num_expert_group", 1), (r"sliding_window(_size)?|attention_window_size|local_attention", 6),
    (r"attention_chunk_size|chunk_size|.*_chunk_size|block_size", 8), (r"index_topk", 8),
    (r"index_block_size|index_local_blocks|index_topk_blocks", 2), (r".*_lora_rank|.*_rank|hc_lowrank", 16),
    (r"first_k_dense_replace", 1), (r"linear_num_key_heads", 2), (r"linear_num_value_heads", 4),
    (r"max_(2d_)?position_embeddings|n_positions|max_seq(uence)?_len(gth)?|n_ctx|context_length|max_.*_positions", 256),
    (r"image_size", 28), (r"patch_size", 14),
    (r".*hidden_size.*|d_model|n_embd?|.*embed(ding)?_dim|.*embedding_size|dim|emb_dim|projection_dim|hidden_dim", 32),
)  # fmt: skip

# What names do not tell, by family; a configuration inside another is a dictionary of its own.
_GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.4}
_CONV = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "full_attention"]}
_HYBRID = {"layer_types": ["linear_attention", "full_attention", "full_attention"]}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_expand": 2}
_MAMBA2 = {"n_groups": 1, "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "expand": 2}
_MSA = {
    "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], "index_block_size": 4,
    "index_topk_blocks": 2, "index_local_blocks": 1,
}  # fmt: skip
_SHARED_KV = {
    "num_hidden_layers": 4, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
_GEMMA3N = {**_SHARED_KV, "intermediate_size": [48] * 4, "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0]}
_GEMMA4_MOE = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24}
_QWEN4 = {
    "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
    "indexer_compress_ratio": 2, "output_gate_type": "sigmoid",
}  # fmt: skip
_DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_ROPE_BY_KIND = {"rope_parameters": {"full_attention": _DEFAULT_ROPE, "sliding_attention": _DEFAULT_ROPE}}


def _mrope(*sections: int, **more: Any) -> dict[str, Any]:
    return {"text_config": {"rope_parameters": {**_DEFAULT_ROPE, "mrope_section": list(sections), **more}}}


_DOTS3 = {
    "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "head_dim": 16, "v_head_dim": 12,
}  # fmt: skip
OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {**_MAMBA, "attn_layer_indices": [1]}, "blt": {"encoder_hash_byte_group_vocab": VOCABULARY},
    "chameleon": {"vocabulary_map": {"<image>": 96}, "vq_config": {"base_channels": 32, "latent_channels": 32}},
    "codegen": {"rotary_dim": 4}, "cohere_compass": {"text_config": _ROPE_BY_KIND},
    "cohere_compass_text": _ROPE_BY_KIND, "deepseek_v2": {"num_experts_per_tok": 2},
    "dots3_note": {"vision_config": {"adapter_in_dim": 32}},
    "dots3_note_text": {f"swa_{name}": size for name, size in _DOTS3.items()},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse", "sparse"], "num_experts_per_tok": 2}},
    "diffusion_gemma": {"text_config": {**_GEMMA4_MOE}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "ernie4_5_vl_moe": {"text_config": {"moe_intermediate_size": [24, 24], **_mrope(1, 1, 2)["text_config"]}},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64}, "gemma3n_text": _GEMMA3N, "gemma3n": {"text_config": _GEMMA3N},
    "glm5_next": {"text_config": {"index_kpool": 4}},
    **dict.fromkeys(("glm46v", "glm4v", "glm4v_moe", "glm_ocr", "glmga"), _mrope(1, 1, 0, partial_rotary_factor=0.5)),
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "num_layers": 4, "window_size": 6},
    "gptj": {"rotary_dim": 4},
    **dict.fromkeys(("granite", "granite_swa", "granitemoe", "granitemoe_swa", "granitemoeshared"), _GRANITE),
    "granite4_vision": {"text_config": _GRANITE, "deepstack_layer_map": []},
    "granitemoehybrid": {**_GRANITE, **_MAMBA, **_HYBRID}, "helium": {"head_dim": 8},
    "janus": {"vq_config": {"base_channels": 32, "latent_channels": 32}},
    "molmo2": {"adapter_config": {"vision_feature_layer": [0, 1]}},
    "muse_spark": {"audio_config": {"hidden_sizes": (8, 8, 8, 32), "depths": (1, 1, 1, 1)}},
    "hrm_text": {"num_layers_per_stack": 1, "num_hidden_layers": 8}, "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "hunyuan_vl": {"text_config": {"head_dim": 16, **_mrope(2, 2, 2, 2)["text_config"]}},
    "internlm3": {"mlp_bias": True}, "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {**_CONV, "full_attn_idxs": None}, "lfm2_moe": {**_CONV, "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 8, "qk_head_dim": 16, "zero_expert_num": 2},
    "mamba2": {"n_groups": 1, "state_size": 8}, "minimax_m3_vl": {"text_config": _MSA}, "minimax_m3_vl_text": _MSA,
    "ministral": {"head_dim": 16}, "mllama": {"text_config": {"cross_attention_layers": [1]}},
    "nemotron": {"num_key_value_heads": 2}, "nemotron_h": _MAMBA2,
    "nemotron_h_omni": {"text_config": _MAMBA2, "vision_config": {"video_temporal_patch_size": 2}},
    "paddleocr_vl": _mrope(2, 3, 3), "qwen2_5_omni_thinker": _mrope(2, 1, 1), "qwen2_5_vl": _mrope(2, 1, 1),
    "qwen2_vl": _mrope(2, 1, 1), "qwen4_exp": {"text_config": _QWEN4}, "qwen4_exp_text": _QWEN4,
    "recurrent_gemma": {"lru_width": 32}, "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "step3p7": {"text_config": {"sliding_window": 6, "rope_parameters": _ROPE_BY_KIND["rope_parameters"]}},
    "unlimited_ocr": {"text_config": {"num_key_value_heads": 4}}, "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2},
    "xlnet": {"d_head": 8},
}  # fmt: skip

# Settings of a family that its published defaults leave off, as rows of their own.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma4_text (shared keys and values)": ("gemma4_text", _SHARED_KV),
    "gemma4_text (keys as values)": ("gemma4_text", {"attention_k_eq_v": True}),
    "gemma4_text (experts)": ("gemma4_text", _GEMMA4_MOE),
    "granite (multipliers of 1)": ("granite", {}),
    "granitemoehybrid (residual multiplier of 1)": ("granitemoehybrid", {**_MAMBA, **_HYBRID}),
    "granitemoehybrid (attention only)": (
        "granitemoehybrid", {**_GRANITE, **_MAMBA, "layer_types": ["full_attention"] * 3},
    ),
    "olmo (clipped values)": ("olmo", {"clip_qkv": 0.3}),
    "stablelm (parallel residual)": ("stablelm", {"use_parallel_residual": True}),
    "falcon (new decoder)": ("falcon", {"new_decoder_architecture": True}),
}  # fmt: skip
NEEDS = {"fast_vlm": "timm", "gemma3n": "timm", "inkling_mm_model": "scipy", "perception_lm": "timm"}  # packages
NAMES = tuple(sorted({**dict.fromkeys(FAMILIES), **VARIANTS}))


class NotBuildable(Exception):
    """Why a family has no tiny model."""


def tiny_config(name: str) -> PreTrainedConfig:
    """The configuration of one of `NAMES` with every size shrunk.

    Raises
    ------
    NotBuildable
        If the configuration class refuses the sizes.
    """
    try:
        family, overrides = VARIANTS.get(name, (name, OVERRIDES.get(name, {})))
        return _shrunk(CONFIG_MAPPING[family], overrides)
    except Exception as error:  # whatever a family's own checks raise
        raise NotBuildable(f"no tiny configuration: {first_line(error)}") from error


def tiny_random_model(name: str, seed: int = 0) -> nn.Module:
    """A tiny random float32 model of one of `NAMES`, in evaluation mode, no weight of which is trivial.

    Raises
    ------
    NotBuildable
        If it cannot be configured or built, or is not small.
    """
    if name in NEEDS:
        raise NotBuildable(f"needs the package {NEEDS[name]}")  # installed or not: the page must not depend on it
    config, family = tiny_config(name), VARIANTS.get(name, (name,))[0]
    auto = AutoModelForCausalLM if family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else AutoModelForImageTextToText
    try:
        with torch.device("meta"):
            size = sum(p.numel() for p in auto.from_config(config).parameters())
        if size > MAX_PARAMETERS:
            raise NotBuildable(f"its smallest configuration here has {size / 1e6:.0f} million parameters")
        torch.manual_seed(seed)
        model = auto.from_config(config).eval()
    except NotBuildable:
        raise
    except Exception as error:  # whatever a family's own code raises
        raise NotBuildable(f"no tiny model: {first_line(error)}") from error
    randomise(model)
    return model


@torch.no_grad()
def randomise(model: nn.Module) -> None:
    """Make every weight matter: norms and biases away from their constants, attention far from uniform."""
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if parameter.ndim < 2:  # norms, biases, sinks
            parameter.copy_(torch.nan_to_num(parameter) + 0.3 * noise)
        else:
            parameter.copy_((0.3 if "embed" in name else 0.16) * noise)


def _shrunk(kind: type[PreTrainedConfig], overrides: dict[str, Any]) -> PreTrainedConfig:
    """``kind`` with small sizes, in it and in the configurations inside it."""
    default, small = kind(), {}
    names = {field.name: field.default for field in dataclasses.fields(kind)}
    values = {name: _value(default, name, fallback) for name, fallback in names.items()}
    for name, value in values.items():
        if isinstance(value, PreTrainedConfig):
            small[name] = _shrunk(type(value), overrides.get(name, {}))
        elif isinstance(value, int) and not isinstance(value, bool):
            small[name] = _size(name, value)
        elif isinstance(value, dict) and "mrope_section" in value:
            small[name] = {**value, "mrope_section": _sections(value["mrope_section"], values.get("head_dim") or 128)}
    if "kv_lora_rank" in names and "num_key_value_heads" in small:  # latent attention has no groups
        small["num_key_value_heads"] = small["num_attention_heads"]
    small.update(_layer_lists(values))
    if set(values.get("layer_types") or ()) == {"full_attention"} and "sliding_window" in names:
        kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]
        small |= {"layer_types": kinds[: small["num_hidden_layers"]], "sliding_window": 6}
        small |= {"use_sliding_window": True} if "use_sliding_window" in names else {}
    elif "sliding_window" in names and "layer_types" not in names:
        small["sliding_window"] = 6
    if values.get("attention_bias") is False:
        small["attention_bias"] = True
    small |= {k: value for k, value in overrides.items() if not isinstance(values.get(k), PreTrainedConfig)}
    return kind(**small)


def _value(config: PreTrainedConfig, name: str, fallback: Any) -> Any:
    try:
        return getattr(config, name, fallback)
    except RuntimeError:  # differs from layer to layer
        return fallback


def _size(name: str, value: int) -> int:
    """The small size of an integer field."""
    if name.endswith(("_id", "_token_index")):
        return {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}.get(name, VOCABULARY - 1)
    for pattern, size in SIZES:
        if re.fullmatch(pattern, name):
            return min(value, size) if value > 0 else value
    return value


def _sections(sections: list[int], head_dim: int) -> list[int]:
    """Parts of a rotary embedding for time, height and width, for heads of width 16."""
    half, first = sum(sections) * 16 // head_dim, [max(1, size * 16 // head_dim) for size in sections[:-1]]
    return [*first, half - sum(first)]


def _layer_lists(values: dict[str, Any]) -> dict[str, Any]:
    """Lists with one entry per layer, cut to one layer of every combination and at least three; and their number."""
    count = next((n for n in ("num_hidden_layers", "n_layer", "num_layers") if isinstance(values.get(n), int)), None)
    lists = {k: v for k, v in values.items() if isinstance(v, (list, tuple)) and len(v) == values.get(count)}
    if not lists or values[count] < 3:
        return {}
    columns = list(zip(*lists.values(), strict=True))
    keep = sorted({*[i for i, column in enumerate(columns) if columns.index(column) == i][:6], *range(3)})
    return {count: len(keep), **{name: [value[i] for i in keep] for name, value in lists.items()}}


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = lines[1:] if len(lines) > 1 and "validat" in lines[0] else lines  # transformers names the check first
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
