"""A transformer built by hand that copies its answer from one known token of the input, and a sample for it.

Attention alone, no MLP: every position attends to the token whose embedding carries the evidence flag, and copies
what that token stands for into the subspace that the output matrix reads. All other tokens hold nothing that is read.
So the evidence token causes the answer, and whatever explains the model faithfully has to rank it first.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from flashtrace_lib import Sample, Segments

VOCABULARY, WIDTH, HEAD_DIM, HEADS, KINDS = 32, 32, 8, 2, 4
MASK, BEGIN, END = 0, 1, 2
EVIDENCE = range(24, 28)  # token 24 + k is the evidence for answer 28 + k
ANSWER = range(28, 32)
ONE, FLAG = 0, 1  # residual dimensions: 1 at every token; 1 at evidence
KIND = slice(2, 6)  # which evidence it is
COPY = slice(6, 10)  # what attention writes, and the output matrix reads
OWN = slice(10, 32)  # identity of the other tokens; read by nothing
SLOW = HEAD_DIM // 2 - 1  # the channel that rotary embedding turns least


def planted_model() -> LlamaForCausalLM:
    """The hand-built model; every weight that is not set is zero."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=8, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=1, head_dim=HEAD_DIM, max_position_embeddings=128,
        rms_norm_eps=1.0,  # embeddings are shorter than this: the norm is smooth down to the zero baseline of IG
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},  # the slow channel stands still
        pad_token_id=MASK, bos_token_id=BEGIN, eos_token_id=END, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        _embed(model.model.embed_tokens.weight)
        for layer in model.model.layers:
            _attend(layer.self_attn)
        _read_out(model.lm_head.weight)
    return model


def _embed(weight: torch.Tensor) -> None:
    weight[:, ONE] = 1
    for token in range(VOCABULARY):
        if token not in EVIDENCE:
            weight[token, OWN.start + token % (OWN.stop - OWN.start)] = 1
    for kind, token in enumerate(EVIDENCE):
        weight[token, FLAG] = 1
        weight[token, KIND.start + kind] = 1


def _attend(attention: torch.nn.Module) -> None:
    for head in range(HEADS):
        attention.q_proj.weight[head * HEAD_DIM + SLOW, ONE] = 6 * HEAD_DIM**0.5  # a score of about 6 for evidence
        for kind in range(KINDS):
            attention.o_proj.weight[COPY.start + kind, head * HEAD_DIM + kind] = 1
    attention.k_proj.weight[SLOW, FLAG] = 1
    for kind in range(KINDS):
        attention.v_proj.weight[kind, KIND.start + kind] = 1


def _read_out(weight: torch.Tensor) -> None:
    weight[:, ONE] = 1  # without evidence, ordinary tokens are more probable than any answer
    weight[EVIDENCE.start : EVIDENCE.stop, ONE] = -10  # and evidence is never predicted
    for kind, token in enumerate(ANSWER):
        weight[token, ONE] = 0
        weight[token, COPY.start + kind] = 3


def planted_sample(position: int = 6, kind: int = 2) -> Sample:
    """A context with one evidence token, which the answer follows from; gold marks it.

    I is [2, 14), T is [15, 18), O is [19, 22); template and end tokens stand between and around them.
    """
    ids = torch.arange(3, 27) % 20 + 3  # ordinary tokens
    ids[0], ids[22:] = BEGIN, END
    ids[position] = EVIDENCE[kind]
    ids[19:22] = ANSWER[kind]
    gold = torch.zeros(len(ids), dtype=torch.bool)
    gold[position] = True
    return Sample(
        ids,
        Segments((2, 14), (15, 18), (19, 22)),
        gold=gold, mask_token_id=MASK, sentences=[*((i, i + 1) for i in range(2, 14)), (15, 17), (17, 18), (19, 22)],
        metadata={"id": f"planted-{position}-{kind}", "task": "planted", "cell": "planted"},
    )  # fmt: skip


class Words:
    """As much of a tokenizer as the answers need."""

    pad_token_id, eos_token_id = 0, 2

    def decode(self, ids, skip_special_tokens=False):
        return " ".join(str(i) for i in ids if not (skip_special_tokens and i <= 2))
