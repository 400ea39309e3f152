"""Effect of counterfactual swaps on a model: what each takes from the likelihood of its own response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from ..fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from ..model.batched_forward import log_prob_of, score_rows
from ..model.generate import answer_text, generate
from ..sample import Sample
from ..store import Store
from ..text.build_sample import build_sample
from ..text.chat_template import render_prompt
from ..text.offsets import tokenise
from .counterfactual import Swap, ruler_swaps
from .example import Example
from .registry import TASKS
from .responses import GENERATED, sample_settings

_VERSION = 1  # raise when what a stored column means changes


def example_swaps(example: Example, tokenizer: Any, seed: int = 0) -> list[Swap]:
    """Swaps of an example of any task that has them: RULER, and the tasks whose line in ``TASKS`` names ``swaps``.

    Raises
    ------
    ValueError
        If the task has none, or the example cannot be swapped.
    """
    if example.task == "ruler":
        return ruler_swaps(example, tokenizer, seed)
    task = TASKS.get(example.task)
    if task is None or task.swaps is None:
        known = ", ".join(["ruler", *(name for name, other in TASKS.items() if other.swaps)])
        raise ValueError(
            f"task {example.task} has no swaps: its generator cannot replace one fact; those that can: {known}"
        )
    return task.swaps(example, tokenizer, seed)


def swap_effects(
    model: torch.nn.Module,
    tokenizer: Any,
    sample: Sample,
    example: Example,
    swaps: Sequence[Swap],
    *,
    regenerate: bool = False,
    max_new_tokens: int = 192,
    store: Store | None = None,
    max_batch_bytes: int | None = None,
) -> pd.DataFrame:
    """What every swap does to the model's response: one forward pass a swap, for all methods at once.

    The prompt is rendered with the swap as `responses.collect` renders it, and the ids of the response stay what they
    are. drop = log p(T ∪ O | prompt) − log p(T ∪ O | prompt with the swap), summed over the tokens of T and of O; tags
    and end tokens between and behind them are read, and not counted.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    sample : Sample
        Of `responses.collect`, with ``example`` as its problem.
    example : Example
    swaps : sequence of Swap
        From `example_swaps`.
    regenerate : bool
        Also let the model answer every swapped prompt anew, greedily.
    max_new_tokens : int
        Longest new response, tokens.
    store : Store, optional
        Where the effects are kept, one record a sample.
    max_batch_bytes : int, optional
        Memory budget of one batched forward, see `score_rows`.

    Returns
    -------
    pandas.DataFrame
        One row a swap: ``kind, start, stop`` (characters of the prompt), ``text``, ``sentence`` (index of the sentence
        of I in which the swap lies, as `Attribution.by_sentence` counts; -1 for none), ``drop`` (nats),
        ``changes_answer`` (whether the true answer becomes another) and, with ``regenerate``, ``changes_response``
        (whether the new words behind the thinking marks differ from those on the unchanged prompt).

    Raises
    ------
    ValueError
        If there is no swap, or the example's prompt does not give the sample's ids.
    """
    if not swaps:
        raise ValueError(f"example {example.id}: no swaps are given; make them with example_swaps")

    def measure() -> dict[str, Any]:
        return {
            "kind": [swap.kind for swap in swaps],
            "start": [swap.span[0] for swap in swaps],
            "stop": [swap.span[1] for swap in swaps],
            "text": [swap.text for swap in swaps],
            "sentence": _sentences(tokenizer, sample, example, swaps),
            "drop": _drops(model, tokenizer, sample, example, swaps, max_batch_bytes),
            "changes_answer": [set(swap.answers) != set(example.answers) for swap in swaps],
            **(
                {"changes_response": _changed(model, tokenizer, sample, example, swaps, max_new_tokens)}
                if regenerate
                else {}
            ),
        }

    if store is None:
        return pd.DataFrame(measure())
    shaped_by = {
        "version": _VERSION,
        "model": model_fingerprint(model),
        "sample": sample_fingerprint(sample),
        "prompts": swapped_prompts(tokenizer, sample, example, swaps),
        "regenerate": max_new_tokens if regenerate else None,
    }
    record = store.cached(fingerprint(shaped_by), lambda: {"sample": sample.id, **measure()})
    columns = [name for name, value in record.items() if isinstance(value, list)]
    return pd.DataFrame({name: record[name] for name in columns})


def _settings(tokenizer: Any, sample: Sample, example: Example) -> dict[str, Any]:
    """How the sample's prompt was rendered."""
    how, mode = sample.metadata.get("response", GENERATED), sample.metadata.get("mode")
    return sample_settings(tokenizer, example, how, mode)


def swapped_prompts(tokenizer: Any, sample: Sample, example: Example, swaps: Sequence[Swap]) -> list[str]:
    """Rendered prompts of ``example``, as ``sample`` reads it: the unchanged one, then one a swap."""
    settings = _settings(tokenizer, sample, example)
    texts = [example.prompt, *(swap.apply(example.prompt) for swap in swaps)]
    return [render_prompt(tokenizer, text, **settings).text for text in texts]


def _drops(
    model: torch.nn.Module, tokenizer: Any, sample: Sample, example: Example, swaps: Sequence[Swap], budget: int | None
) -> list[float]:
    """Nats that each swap takes from log p(T ∪ O)."""
    start, stop = sample.response
    response = sample.input_ids[start:stop].cpu()  # [R]
    texts = swapped_prompts(tokenizer, sample, example, swaps)
    rows = [torch.cat([torch.tensor(tokenise(tokenizer, text)[0]), response[:-1]]) for text in texts]
    if not torch.equal(rows[0], sample.input_ids[: stop - 1].cpu()):
        raise ValueError(
            f"sample {sample.id}: the prompt of example {example.id} does not give its ids: give the example that the "
            "sample was collected from"
        )
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))  # longest first: rows of unequal length share batches
    log_probs = score_rows(
        model, [rows[i] for i in order], len(response), log_prob_of(response),
        max_batch_bytes=budget, resembling=rows[0], progress="swaps", total=len(rows),
    )  # fmt: skip
    counted = torch.zeros(len(response), dtype=torch.bool)  # [R]
    for first, end in (sample.segments.reasoning, sample.segments.output):
        counted[first - start : end - start] = True
    totals = torch.empty(len(rows), dtype=torch.float64)
    totals[order] = log_probs[:, counted].double().sum(1)  # [rows]
    return (totals[0] - totals[1:]).tolist()


def _sentences(tokenizer: Any, sample: Sample, example: Example, swaps: Sequence[Swap]) -> list[int]:
    """Index of the sentence of I that holds most tokens of each swap's passage; -1 where none holds any."""
    ranges = sample.sentences_in(sample.segments.prompt)
    found = []
    for marked in tokens_of_swaps(tokenizer, sample, example, swaps):
        held = [int(marked[a:b].sum()) for a, b in ranges]
        found.append(held.index(max(held)) if any(held) else -1)
    return found


def tokens_of_swaps(tokenizer: Any, sample: Sample, example: Example, swaps: Sequence[Swap]) -> list[torch.Tensor]:
    """Tokens of the context that each swap replaces; BoolTensor [N] a swap."""
    # One place knows which tokens are a passage's: the one that marks evidence.
    response = sample.input_ids[slice(*sample.response)]
    settings = _settings(tokenizer, sample, example)
    return [build_sample(tokenizer, example.prompt, response, evidence=[swap.span], **settings).gold for swap in swaps]


def _changed(
    model: torch.nn.Module, tokenizer: Any, sample: Sample, example: Example, swaps: Sequence[Swap], longest: int
) -> list[bool]:
    """Whether the answer to each swapped prompt differs from the one to the unchanged prompt, given in one batch."""
    responses = generate(model, tokenizer, swapped_prompts(tokenizer, sample, example, swaps), longest)
    first, *others = [answer_text(tokenizer, ids).strip() for ids in responses]
    return [other != first for other in others]
