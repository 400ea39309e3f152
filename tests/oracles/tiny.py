"""Tiny random models of every supported family, and samples on them."""

import copy

import torch
import transformers as hf

from flashtrace_lib import Sample, Segments

COMMON = dict(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip

CONFIGS = {
    "llama": hf.LlamaConfig(**COMMON),
    "llama_bias": hf.LlamaConfig(**COMMON, attention_bias=True),
    "qwen2": hf.Qwen2Config(**COMMON),
    "qwen3": hf.Qwen3Config(**COMMON, head_dim=12),  # head_dim != hidden / heads
    "mistral": hf.MistralConfig(**COMMON, sliding_window=7),
    "olmo2": hf.Olmo2Config(**COMMON),
    "gemma2": hf.Gemma2Config(
        **COMMON, head_dim=12, sliding_window=6, attn_logit_softcapping=0.5, query_pre_attn_scalar=10
    ),
    "gemma3": hf.Gemma3TextConfig(**COMMON, head_dim=12, sliding_window=6, query_pre_attn_scalar=10),
    "granite": hf.GraniteConfig(**COMMON, residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=4.0),
}
FAMILIES = tuple(CONFIGS)


def tiny_model(family: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.nn.Module:
    """A tiny random model of ``family`` whose attention, norms and biases are far from trivial."""
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[family])).eval()  # a test may change its own
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):  # initialised to constants: make them matter
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif "embed" not in name:
                parameter.mul_(8)  # sharper attention than the 0.02 initialisation gives
    return model.to(dtype)


def tiny_sample(n: int = 16, prompt=(1, 8), reasoning=(9, 12), output=(12, 15), seed: int = 0) -> Sample:
    """A random context with template tokens before the prompt, between the segments and at the end."""
    ids = torch.randint(3, COMMON["vocab_size"], (n,), generator=torch.Generator().manual_seed(seed))
    gold = torch.zeros(n, dtype=torch.bool)
    gold[prompt[0] + 1 : min(prompt[0] + 3, prompt[1])] = True
    return Sample(
        ids, Segments(prompt, reasoning, output), gold=gold, mask_token_id=0,
        metadata={"id": f"tiny-{seed}", "task": "tiny", "cell": "tiny"},
    )  # fmt: skip
