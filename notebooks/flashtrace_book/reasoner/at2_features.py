"""What AT2's weights are learned from: of each training example, attention by head and the effects of ablations.

The examples are problems of the training split with responses. A sample's sources are the sentences of
its haystack; an ablation keeps each of them with probability ½ and masks the others in place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import Any

import torch
from tqdm import tqdm

from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.methods.at2 import head_attention
from flashtrace_lib.model.ablations import draw_masks, sentence_effects
from flashtrace_lib.sample import Sample, Span, seeded_generator
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import collect, prompt_settings, true_response
from flashtrace_lib.text.build_sample import build_sample

from .curriculum import problems

# Task -> tokens of a RULER prompt; the other tasks have prompts of their own length.
TASK_LENGTHS = {
    "mq_q2": 320,
    "h4_c1": 320,
    "mv_v4": 380,
    "hotpotqa": None,
    "h2_c3": 320,
    "mq_q4": 400,
    "morehopqa": None,
    "h6_c1": 320,
    "mv_v2": 320,
    "h10_c1": 320,
}
RESPONSES = ("own", "reference")
LEAST_SOURCES = 6  # fewer sentences have too few different ablations to correlate anything over
MAX_NEW_TOKENS = 320
KEEP = 0.5  # probability with which an ablation keeps a source


def training_samples(
    model: torch.nn.Module, tokenizer: Any, n: int, seed: int, responses: str = "own", store: Store | None = None
) -> list[Sample]:
    """Training problems with responses; the tasks take turns.

    Parameters
    ----------
    model, tokenizer
        Who answers.
    n : int
        Problems wanted at most: left out are those with too few sources, or whose response does not end.
    seed : int
        Which problems.
    responses : {"own", "reference"}
        The model's own finished responses, right or wrong; or the reference ones, which a model that was trained on
        such problems believes as much as its own.
    store : Store, optional
        Keeps the model's own responses.

    Returns
    -------
    list of Sample

    Raises
    ------
    ValueError
        If ``responses`` is neither.
    """
    if responses not in RESPONSES:
        raise ValueError(f"responses must be one of {', '.join(RESPONSES)}, got {responses!r}")
    each = -(-n // len(TASK_LENGTHS))
    by_task = []
    for task, length in tqdm(TASK_LENGTHS.items(), desc="training examples", unit="task"):
        asked = problems(task, each, seed, "train", tokenizer, *([length] if length else []))
        if responses == "reference":
            by_task.append([_with_reference(tokenizer, example) for example in asked])
        else:
            how = {"store": store, "max_new_tokens": MAX_NEW_TOKENS, "filtered": False}
            by_task.append(collect(asked, model, tokenizer, each, **how).samples)
    in_turn = [sample for sample in chain(*zip_longest(*by_task)) if sample is not None]
    return [sample for sample in in_turn if len(sample.sources) >= LEAST_SOURCES][:n]


def _with_reference(tokenizer: Any, example: Example) -> Sample:
    """Sample of an example and its reference response."""
    where = {"evidence": example.evidence, "question": example.question, "haystack": example.haystack}
    metadata = {"id": example.id, "task": example.task, "cell": example.cell}
    settings = prompt_settings(tokenizer, example)
    settings.pop("answer_prefix", None)  # the reference response begins with its own words
    return build_sample(tokenizer, example.prompt, true_response(example), metadata=metadata, **where, **settings)


def measured(
    model: torch.nn.Module, ablated: torch.nn.Module, samples: list[Sample], masks: int, seed: int, store: Store
) -> Iterator[dict[str, Any]]:
    """Yield what is learned from each sample, from the store where it is there.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Whose attention is read.
    ablated : transformers.PreTrainedModel
        The same model in the arithmetic of the ablations, which may be rounder.
    samples : list of Sample
    masks : int
        Ablations a sample.
    seed : int
        Of the masks.
    store : Store
        Every record is stored as soon as it is computed, so that a run that is killed continues.

    Yields
    ------
    dict
        ``features``, float32 [U, L * H]: attention from the target tokens to each source, by layer and head;
        ``masks``, bool [masks, U]: True where a source is kept; ``effects``, float32 [masks]: logit-scaled probability
        of T and O; ``cell``, ``sample``, and the ``seconds`` it took.
    """
    dtype = str(next(ablated.parameters()).dtype)
    shaped_by = {"model": model_fingerprint(model), "masks": masks, "seed": seed, "dtype": dtype}
    for sample in tqdm(samples, desc="attention and ablations", unit="example"):
        key = fingerprint({**shaped_by, "sample": sample_fingerprint(sample)})
        yield store.cached(key, lambda sample=sample: _measure(model, ablated, sample, masks, seed))


def source_features(attention: list[torch.Tensor], sources: list[Span]) -> torch.Tensor:
    """Attention of each layer, [H, N], summed over each source's tokens: [U, L * H]."""
    by_head = torch.cat(attention)  # [L * H, N]
    return torch.stack([by_head[:, start:stop].sum(-1) for start, stop in sources])


def _measure(model, ablated, sample: Sample, masks: int, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    generator = seeded_generator(f"at2-{seed}", sample)
    kept = draw_masks(len(sample.sources), masks, KEEP, generator)  # [masks, U]
    effects = sentence_effects(ablated, sample, kept).log_odds  # [masks, 3]: of T, of O, of all of the response
    measurements = {
        "sample": sample.id,
        "cell": sample.metadata["cell"],
        "features": source_features(head_attention(model, sample), sample.sources).tolist(),
        "masks": kept.tolist(),
        "effects": effects[:, :2].sum(1).tolist(),
    }
    return {**measurements, "seconds": time.perf_counter() - start}
