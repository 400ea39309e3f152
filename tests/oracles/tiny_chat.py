"""A tiny chat tokenizer that spells any text, and a tiny random model on its vocabulary."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
PROMPT = "  Cafés of 日本 🦜 open late.\nThe secret number is 7261. Dr. No knows it. What is the number?\n"
EVIDENCE = "The secret number is 7261."
RESPONSE = "<think>\nThe text says 日本 🦜.\nSo it is 7261.\n</think>\n\nThe number is 7261. Bye."


def make_tokenizer(template=TEMPLATE, **kwargs):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|end|>", "<|start|>"], show_progress=False
    )
    bpe.train_from_iterator([EVIDENCE * 9, "The number is. So it is."], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|end|>", bos_token="<|start|>", chat_template=template, **kwargs
    )


def make_chat_model(tokenizer, **options):
    """Random weights; ``options`` go into the config."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, **{"max_position_embeddings": 512, "eos_token_id": tokenizer.eos_token_id, **options},
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()
