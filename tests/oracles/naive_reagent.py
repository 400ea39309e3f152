"""ReAGent as a plain loop, and what it proposes."""

import torch

from flashtrace_lib.methods.reagent import DRAWS, CausalProposals
from flashtrace_lib.sample import seeded_generator


def log_probs_of(model, ids):
    """Log-probabilities of a context, float64."""
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0].double().log_softmax(-1)  # [N, V]


def pool_of(model, sample, region, seed=0):
    """The tokens that the causal model may propose at each position, [N, DRAWS]."""
    return CausalProposals(model, sample, region, seeded_generator(f"{seed}:proposals", sample))._pool


def naive_reagent(model, sample, spans, *, runs, steps, replace, keep, top_k, distance, seed=0):
    """One forward at a time, loops over runs, targets and units; only the order of the draws is agreed on."""
    ids, n = sample.input_ids, len(spans)
    first, last = sample.segments.output
    pool, intact = pool_of(model, sample, (spans[0][0], spans[-1][1]), seed), log_probs_of(model, ids)

    def replaced(context, units, random):
        out, picks = context.clone(), torch.randint(DRAWS, ids.shape, generator=random)
        for u in units:
            for j in range(*spans[u]):
                out[j] = pool[j, picks[j]]
        return out

    def keeps(context):
        log_probs = log_probs_of(model, context)
        return all(int(ids[t]) in log_probs[t - 1].topk(top_k).indices.tolist() for t in range(first, last))

    each, taken, stopped, passes = [], [0] * runs, [False] * runs, 1
    for run in range(runs):
        random = seeded_generator(f"{seed}:{run}", sample)
        z = torch.rand((last - first, n), generator=random, dtype=torch.float64)
        while taken[run] < steps and not stopped[run]:
            taken[run] += 1
            passes += 2
            chosen = set(torch.rand(n, generator=random).argsort().tolist()[: round(replace * n)])
            now = log_probs_of(model, replaced(ids, chosen, random))
            for r, t in enumerate(range(first, last)):
                if distance == "probability":
                    delta = (intact[t - 1, ids[t]].exp() - now[t - 1, ids[t]].exp()).item()
                else:
                    p, q = intact[t - 1].exp(), now[t - 1].exp()
                    delta = (1 - (p * q).sqrt().sum()).clamp_min(0).sqrt().item()
                step = torch.logit(torch.tensor((1 + delta) / 2, dtype=torch.float64)).item()
                for u in range(n):
                    z[r, u] += step if u in chosen else -step
            importance = sum(row.exp() / row.exp().sum() for row in z) / len(z)
            ranked, count = sorted(range(n), key=lambda u: (-importance[u].item(), u)), max(1, round(keep * n))
            alone = replaced(ids, ranked[count:], random)
            if keeps(alone):
                passes += 1
                stopped[run] = not keeps(replaced(alone, ranked[:count], random))
        each.append(sum(row.exp() / row.exp().sum() for row in z) / len(z))
    return torch.stack(each).mean(0), taken, stopped, passes
