"""Leave-one-out by single forward passes: how badly O is predicted with a unit masked, token by token."""

import torch

from tests.oracles.contexts import predictions


def naive_metric(model, sample, changed, metric):
    """Mean NLL of O in a context that ends with it, or mean divergence from the intact context's prediction."""
    n = sample.segments.output[1] - sample.segments.output[0]
    intact = predictions(model, sample.input_ids[: sample.segments.output[1]], n)
    log_probs, per_token = predictions(model, changed, n), []
    for t, token in enumerate(sample.input_ids[slice(*sample.segments.output)]):
        p, q = intact[t].exp(), log_probs[t].exp()
        if metric == "nll":
            per_token.append(-log_probs[t, token].item())
        elif metric == "kl":
            per_token.append(naive_kl(p, q))
        else:
            per_token.append(naive_kl(p, (p + q) / 2) / 2 + naive_kl(q, (p + q) / 2) / 2)
    return sum(per_token) / n


def naive_kl(p, q):
    return sum((a * (a / b).log()).item() for a, b in zip(p, q, strict=True) if a > 0)


def masked(sample, span):
    ids = sample.input_ids[: sample.segments.output[1]].clone()
    ids[span[0] : span[1]] = sample.mask_token_id
    return ids


def spread(sample, values, spans, share=False):
    """Scores of units laid out over the tokens of I."""
    out = torch.zeros(len(sample), dtype=torch.float64)
    for value, (start, stop) in zip(values, spans, strict=True):
        out[start:stop] = value / (stop - start) if share else value
    return out[slice(*sample.segments.prompt)]


def naive_loo(model, sample, spans, metric="nll"):
    intact = naive_metric(model, sample, sample.input_ids[: sample.segments.output[1]], metric)
    return [naive_metric(model, sample, masked(sample, span), metric) - intact for span in spans]
