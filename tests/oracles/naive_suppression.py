"""Attention suppression written naively: keys and values of a sentence deleted from every attention sum, in float64."""

import copy
import sys
from unittest.mock import patch

import torch


def attend_without(hidden, start=0):
    """An eager attention that knows no mask: loops over heads and positions, and skips what ``hidden`` says.

    Queries behind the span ``hidden`` (start, stop), from ``start`` on, see none of its tokens; all others see what is
    causal, and within the sliding window.
    """
    first, last = hidden

    def attention(module, query, key, value, attention_mask, scaling, softcap=None, sliding_window=None, **kwargs):
        _, heads, n, _ = query.shape
        group, out = heads // key.shape[1], torch.zeros_like(query)
        for h in range(heads):
            for i in range(n):
                seen = [j for j in range(i + 1) if not sliding_window or j > i - sliding_window]
                seen = [j for j in seen if i < max(last, start) or not first <= j < last]
                scores = key[0, h // group, seen] @ query[0, h, i] * scaling
                if softcap:
                    scores = softcap * torch.tanh(scores / softcap)
                out[0, h, i] = scores.softmax(-1) @ value[0, h // group, seen]
        return out.transpose(1, 2), None

    return attention


def naive_predictions(model, ids, hidden=(0, 0), start=0):
    """Log-probabilities [N, V] at every position of one context, float64, nothing batched or cached."""
    model = copy.deepcopy(model).to(torch.float64)
    model.set_attn_implementation("eager")
    with patch.object(sys.modules[type(model).__module__], "eager_attention_forward", attend_without(hidden, start)):
        with torch.no_grad():
            return model(input_ids=ids[None], use_cache=False).logits[0].log_softmax(-1)


def naive_matrix(model, sample, rows, columns, from_=0):
    """Mean divergence of every row's predictions when a column is suppressed; 0 where the column is not before it."""
    intact = naive_predictions(model, sample.input_ids)
    out = torch.zeros(len(rows), len(columns), dtype=torch.float64)
    for k, column in enumerate(columns):
        changed = naive_predictions(model, sample.input_ids, column, from_)
        for g, (start, stop) in enumerate(rows):
            if start >= column[1]:
                p, q = intact[start - 1 : stop - 1], changed[start - 1 : stop - 1]
                out[g, k] = sum((a.exp() * (a - b)).sum() for a, b in zip(p, q, strict=True)) / (stop - start)
    return out
