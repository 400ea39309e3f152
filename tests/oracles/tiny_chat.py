"""A tiny chat tokenizer that spells any text, and a tiny random model on its vocabulary."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_THINKING = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content.strip('\n') }}\n</think>\n\n{% endif %}"
# How chat templates of public models treat messages; m.content is what TEMPLATE writes of one.
SHAPES = {
    "cuts": "{{ m.content.split('</think>')[-1].lstrip('\n') }}",  # reasoning of earlier messages, as R1 and Qwen3
    "field": _THINKING + "{{ m.content }}",
    "channels": "{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}"
    "<|channel|>final<|message|>{{ m.content }}",  # as gpt-oss
    "parts": "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% elif p.type == 'thinking' %}[THINK]"
    "{{ p.thinking }}[/THINK]{% endif %}{% endfor %}",  # nothing of a text
    "first part": "{{ m.content[0].text + '' }}",  # fails on a text
    "user parts": "{% if m.role == 'user' %}{{ m.content[0]['text'] }}{% else %}{{ m.content.strip() }}{% endif %}",
    "calls": "{% for c in m.tool_calls or [] %}[TOOL_CALLS] [{{ c.function | tojson }}]{% else %}"
    " {{ m.content | trim }}{% endfor %}",  # no blank before a call, as Mistral
    "tool json": "{% if m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content | trim }}{% endif %}",
}


def shaped(name):
    """A tokenizer whose template writes messages in one of SHAPES."""
    return make_tokenizer(TEMPLATE.replace("{{ m.content }}", SHAPES[name]))


def spelled(tok, text):
    """Ids that spell ``text`` byte by byte: never what the tokenizer would choose."""
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return [tok.convert_tokens_to_ids(char) for piece, _ in pieces for char in piece]


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
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        **{"vocab_size": len(tokenizer), "max_position_embeddings": 512, **options},
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()
