"""One causal check: mask the sentence that an attribution ranks first, and let the model answer again.

A deletion curve asks how probable the old answer still is. This check asks whether the model would give another one,
and compares with masking a random sentence, and the one ranked last. The question at the end of the input is not among
the sentences, since without it any answer may change; it is masked separately.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Method
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.metrics.intervals import mcnemar, share_difference_interval, share_interval
from flashtrace_lib.model.generate import answer_text, continue_ids
from flashtrace_lib.sample import Sample, Span
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.sealing import read_sealed, seal_record

from ..profiles import Profile
from ..samples import cell_of
from .reasoning_tasks import question_start

MASKED = ("nothing", "top", "random", "lowest", "question")
_LEAST_TOKENS = 3  # of a sentence that is worth masking
_RECORD_VERSION = 2


def maskings(sample: Sample, scores: torch.Tensor, seed: int = 0) -> dict[str, Span]:
    """The sentences of I to mask: those of the highest and the lowest mean score per token, and a random one.

    Sentences are ranked by mean and not by sum, since the lowest sum would be that of the shortest sentence.

    Parameters
    ----------
    scores : torch.FloatTensor, shape [|I|]
    seed : int
        Seed of the random sentence, together with the sample's id.

    Returns
    -------
    dict of str to (int, int)
        ``top``, ``random`` and ``lowest``, three different token ranges before the question; ``question``, the range
        from the start of the question to the end of I.

    Raises
    ------
    ValueError
        If fewer than three sentences of three tokens stand before the question.
    """
    first, stop = sample.segments.prompt
    question = question_start(sample)
    spans = [(a, b) for a, b in sample.sentences if first <= a and b <= question and b - a >= _LEAST_TOKENS]
    if len(spans) < 3:
        raise ValueError(
            f"sample {sample.id} has {len(spans)} sentences of its input to mask before the question: it needs three"
        )
    means = {(a, b): float(scores[a - first : b - first].mean()) for a, b in spans}
    ranked = sorted(spans, key=lambda span: (-means[span], span))
    drawn = random.Random(f"{seed} {sample.id}").choice(ranked[1:-1])
    return {"top": ranked[0], "random": drawn, "lowest": ranked[-1], "question": (question, stop)}


def causal_frame(
    model: torch.nn.Module,
    tokenizer: Any,
    samples: Iterable[Sample],
    method: Method,
    store: Store,
    seed: int = 0,
    sealed: bool = False,
) -> pd.DataFrame:
    """Answers of the model to each sample with one sentence masked; measured once and stored.

    Parameters
    ----------
    sealed : bool
        Store answers so that only who has the records can read them (`tasks.sealing`).

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, masked, tokens`` (number masked), ``gold`` (number of evidence tokens among them), ``answer``,
        ``changed`` (whether the answer differs from that with nothing masked).
    """
    model_key = model_fingerprint(model)
    rows = []
    for sample in tqdm(list(samples), desc="masked answers"):
        key = record_key(model_key, sample, method, seed)
        compute = partial(masked_answers, model, tokenizer, sample, method, seed)
        record = store.cached(key, partial(_sealed, compute, sample, key) if sealed else compute)
        answers = read_sealed(record, "answers", _prompt(sample), key)["answers"]
        for masked, tokens, gold, answer in zip(MASKED, record["tokens"], record["gold"], answers, strict=True):
            rows.append((sample.id, cell_of(sample), masked, tokens, gold, answer, answer != answers[0]))
    return pd.DataFrame(rows, columns=["sample", "cell", "masked", "tokens", "gold", "answer", "changed"])


def _sealed(compute: Callable[[], dict[str, Any]], sample: Sample, key: str) -> dict[str, Any]:
    return seal_record(compute(), "answers", _prompt(sample), key)


def _prompt(sample: Sample) -> list[int]:
    """Tokens before the response: what answers are sealed with."""
    return sample.input_ids[: sample.response[0]].tolist()


def record_key(model_key: str, sample: Sample, method: Method, seed: int) -> str:
    """Key of a sample's record, of the model with the fingerprint ``model_key``."""
    parts = {"version": _RECORD_VERSION, "model": model_key, "sample": sample_fingerprint(sample), "seed": seed}
    first, stop = sample.segments.prompt
    question = question_start(sample)
    if question != max(a for a, b in sample.sentences if first <= a and b <= stop):
        parts["question"] = question  # left out where it is the last sentence, as in the first records of this version
    return fingerprint(parts | {"method": [type(method).__qualname__, method.name, method.options()]})


def masked_answers(model: torch.nn.Module, tokenizer: Any, sample: Sample, method: Method, seed: int) -> dict:
    """The sample's record, from one batch of prompts of equal length: a mask token replaces every masked one."""
    spans = maskings(sample, method.attribute(model, sample).scores, seed)
    prompts, tokens, gold = [], [], []
    for masked in MASKED:
        start, stop = spans.get(masked, (0, 0))
        ids = _prompt(sample)
        ids[start:stop] = [sample.mask_token_id] * (stop - start)
        prompts.append(ids)
        tokens.append(stop - start)
        gold.append(0 if sample.gold is None else int(sample.gold[start:stop].sum()))
    length = sample.response[1] - sample.response[0]
    responses = continue_ids(model, tokenizer, prompts, length + length // 4)  # a longer one is another answer
    answers = [" ".join(answer_text(tokenizer, response).split()) for response in responses]
    return {"sample": sample.id, "answers": answers, "tokens": tokens, "gold": gold}


def stored_record(
    profile: Profile, model: torch.nn.Module, store: Store, sample: Sample, method: Method | None = None
) -> dict[str, Any] | None:
    """The sample's record in the store ``open_questions_answers``, opened; None where there is none."""
    key = record_key(model_fingerprint(model), sample, method or FlashTrace(hops=profile.hops), profile.seed)
    record = store.get(key)
    return None if record is None else read_sealed(record, "answers", _prompt(sample), key)


def compare(
    profile: Profile,
    model: torch.nn.Module,
    tokenizer: Any,
    sample: Sample,
    stored: dict[str, Any],
    method: Method | None = None,
) -> tuple[str, Any, Any, bool]:
    """Let the model answer again: name of the check, stored value, value found, and whether both agree."""
    again = masked_answers(model, tokenizer, sample, method or FlashTrace(hops=profile.hops), profile.seed)
    old, new = ({name: list(record[name]) for name in ("answers", "tokens", "gold")} for record in (stored, again))
    return "answers with a sentence masked", old, new, old == new


def changed_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of answers that change with each masking, and the paired difference to masking the top sentence.

    Returns
    -------
    pandas.DataFrame
        ``masked, changed, low, high`` (Wilson's 95 % interval), ``more, more_low, more_high`` (the top sentence's share
        minus this one's; `intervals.share_difference_interval`), ``p`` (McNemar's exact test of the two), ``tokens``
        (median), ``evidence`` (share of samples in which it holds evidence), ``n``.
    """
    changed = frame.pivot(index="sample", columns="masked", values="changed").astype(float)
    rows = []
    for masked in MASKED[1:]:
        part = frame[frame["masked"] == masked]
        low, high = share_interval(int(changed[masked].sum()), len(changed))
        row = {"masked": masked, "changed": changed[masked].mean(), "low": low, "high": high}
        if masked != "top":
            row |= _top_against(changed["top"].to_numpy(), changed[masked].to_numpy())
        row |= {"tokens": part["tokens"].median(), "evidence": (part["gold"] > 0).mean(), "n": len(changed)}
        rows.append(row)
    columns = ["masked", "changed", "low", "high", "more", "more_low", "more_high", "p", "tokens", "evidence", "n"]
    return pd.DataFrame(rows, columns=columns)


def _top_against(top: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Difference between two shares of changed answers (0 or 1, [n], the same samples), its interval and p-value."""
    low, high = share_difference_interval(top, other)
    return {"more": (top - other).mean(), "more_low": low, "more_high": high, "p": mcnemar(top, other)}
