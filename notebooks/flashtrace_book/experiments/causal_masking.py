"""One causal check: mask the sentence that an attribution ranks first, and let the model answer again.

A deletion curve asks how probable the old answer still is. This asks whether the model would give another one, and
sets beside it what masking a sentence drawn by lot, and the one ranked last, does. The question
at the end of the input is not among them: without it any answer may change. What masking it does is told apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

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

from ..profiles import Profile
from .reasoning_tasks import question_start

MASKED = ("nothing", "top", "random", "lowest", "question")
_LEAST_TOKENS = 3  # of a sentence that is worth masking
_RECORD_VERSION = 2


def maskings(sample: Sample, scores: torch.Tensor, seed: int = 0) -> dict[str, Span]:
    """The sentences of I to mask: the one with the highest mean score a token, one drawn by lot, and the lowest.

    The mean, and not the sum, since the lowest sum would be that of the shortest sentence.

    Parameters
    ----------
    scores : torch.FloatTensor, shape [|I|]
    seed : int
        Draws the sentence, with the sample's id.

    Returns
    -------
    dict of str to (int, int)
        ``top``, ``random`` and ``lowest``, three different token ranges before the question; ``question``, from where
        the input begins to ask to its end.

    Raises
    ------
    ValueError
        If fewer than three sentences of three tokens stand before the question.
    """
    first, last = sample.segments.prompt
    asked = question_start(sample)
    inside = [(a, b) for a, b in sample.sentences if first <= a and b <= asked and b - a >= _LEAST_TOKENS]
    if len(inside) < 3:
        raise ValueError(
            f"sample {sample.id} has {len(inside)} sentences of its input to mask before the question: it needs three"
        )
    means = [float(scores[a - first : b - first].mean()) for a, b in inside]
    ranked = [span for _, span in sorted(zip(means, inside, strict=True), key=lambda pair: (-pair[0], pair[1]))]
    drawn = random.Random(f"{seed} {sample.id}").choice(ranked[1:-1])
    return {"top": ranked[0], "random": drawn, "lowest": ranked[-1], "question": (asked, last)}


def causal_frame(
    model: torch.nn.Module, tokenizer: Any, samples: Iterable[Sample], method: Method, store: Store, seed: int = 0
) -> pd.DataFrame:
    """Answers of the model with one sentence masked, for each sample; from the store where they are there.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, masked, tokens, gold, answer, changed``: how many tokens were masked, how many of them are
        evidence, and whether the answer is another than with nothing masked.
    """
    model_key, rows = model_fingerprint(model), []
    for sample in tqdm(list(samples), desc="masked answers"):
        key = record_key(model_key, sample, method, seed)
        record = store.cached(key, partial(masked_answers, model, tokenizer, sample, method, seed))
        for i, masked in enumerate(MASKED):
            rows.append(
                {"sample": sample.id, "cell": str(sample.metadata.get("cell", "")), "masked": masked,
                 "tokens": record["tokens"][i], "gold": record["gold"][i], "answer": record["answers"][i],
                 "changed": record["answers"][i] != record["answers"][0]}
            )  # fmt: skip
    return pd.DataFrame(rows)


def record_key(model_key: str, sample: Sample, method: Method, seed: int) -> str:
    """Key of a sample's record, of the model with the fingerprint ``model_key``."""
    parts = {"version": _RECORD_VERSION, "model": model_key, "sample": sample_fingerprint(sample), "seed": seed}
    first, stop = sample.segments.prompt
    asked = question_start(sample)
    if asked != max(a for a, b in sample.sentences if first <= a and b <= stop):
        parts["question"] = asked  # where it is the last sentence, as in all records of this version, it is left out
    return fingerprint(parts | {"method": [type(method).__qualname__, method.name, method.options()]})


def masked_answers(model: torch.nn.Module, tokenizer: Any, sample: Sample, method: Method, seed: int) -> dict:
    """A sample's record, from one batch of prompts of equal length: a mask token stands for every masked one."""
    spans = maskings(sample, method.attribute(model, sample).scores, seed)
    prompts, tokens, gold = [], [], []
    for masked in MASKED:
        start, stop = spans.get(masked, (0, 0))
        ids = sample.input_ids[: sample.response[0]].tolist()
        ids[start:stop] = [sample.mask_token_id] * (stop - start)
        prompts.append(ids)
        tokens.append(stop - start)
        gold.append(0 if sample.gold is None else int(sample.gold[start:stop].sum()))
    length = sample.response[1] - sample.response[0]
    responses = continue_ids(model, tokenizer, prompts, length + length // 4)  # longer than this is not that answer
    answers = [" ".join(answer_text(tokenizer, response).split()) for response in responses]
    return {"sample": sample.id, "answers": answers, "tokens": tokens, "gold": gold}


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``open_questions_answers``; None where there is none."""
    return store.get(record_key(model_fingerprint(model), sample, FlashTrace(hops=profile.hops), profile.seed))


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: dict[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Let the model answer a stored sample again; what is checked, stored, found, and whether both agree."""
    found = masked_answers(model, tokenizer, sample, FlashTrace(hops=profile.hops), profile.seed)
    old, new = ({name: list(record[name]) for name in ("answers", "tokens", "gold")} for record in (stored, found))
    return "answers with a sentence masked", old, new, old == new


def changed_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of answers that change with what was masked, and how much more the top sentence changes, paired.

    Returns
    -------
    pandas.DataFrame
        ``masked, changed, low, high`` (Wilson's 95 % interval), ``more, more_low, more_high`` (the top sentence's share
        minus this one's; `intervals.share_difference_interval`), ``p`` (McNemar's exact test of the two), ``tokens``
        (median), ``evidence`` (share of samples in which it holds evidence), ``n``.
    """
    wide, rows = frame.pivot(index="sample", columns="masked", values="changed").astype(float), []
    for masked in MASKED[1:]:
        part = frame[frame["masked"] == masked]
        low, high = share_interval(int(wide[masked].sum()), len(wide))
        pair = wide["top"].to_numpy(), wide[masked].to_numpy()
        more_low, more_high = share_difference_interval(*pair)
        told = {"more": (pair[0] - pair[1]).mean(), "more_low": more_low, "more_high": more_high, "p": mcnemar(*pair)}
        told = told if masked != "top" else {}
        rows.append(
            {"masked": masked, "changed": wide[masked].mean(), "low": low, "high": high, **told,
             "tokens": part["tokens"].median(), "evidence": (part["gold"] > 0).mean(), "n": len(wide)}
        )  # fmt: skip
    columns = ["masked", "changed", "low", "high", "more", "more_low", "more_high", "p", "tokens", "evidence", "n"]
    return pd.DataFrame(rows, columns=columns)
