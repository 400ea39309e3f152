"""Reasons to doubt a trace: what its scores, its sentences and its verification say against it."""

import re
from collections.abc import Collection
from itertools import pairwise

import numpy as np
import torch

from ..attribution import Attribution, holds_copies
from ..sample import Sample, seeded_generator
from ..text.segmenter import ENDS_SENTENCE
from .message_shares import TEMPLATE, importance, named_tokens, parts, sentence_importance

# Shares from which on a note is given. Judgement, not theory: with lower ones every trace would have the note.
ON_TEMPLATE, ON_FIRST, ON_MARKS, ON_LINES = 0.5, 0.15, 0.35, 0.5
# Evenness of the content's sentences from which on none stands out, and up to which one does: chosen on the default's
# scores for stored answers (chapter 12). Scores of fewer than FEW sentences are all almost even.
ON_QUESTION, CLEAR, EVEN, EVEN_OF_FEW, FEW = 0.4, 0.35, 0.4, 0.95, 10


def special_in_input(sample: Sample, special_ids: Collection[int]) -> list[str]:
    """A caution on the special tokens within the messages' own words; empty where there are none."""
    words = [i for i, (_, _, kind) in enumerate(named_tokens(sample)) if kind == "input"]
    special = dict.fromkeys(sample.tokens[i].strip() for i in words if int(sample.input_ids[i]) in special_ids)
    what = "the model reads such a special token as a mark of the template, so the user's turn may end there"
    return [f"The input's own words hold {', '.join(special)}: {what}."] if special else []


def _units_that_are_lines(sample: Sample) -> tuple[int, int]:
    """How many sentences the input has, and how many of them only the end of a line ends."""
    spans = sample.sentences_in(sample.segments.prompt) if sample.tokens else []
    texts = ["".join(sample.tokens[slice(*span)]) for span in spans]
    between = [a[len(a.rstrip()) :] + b[: len(b) - len(b.lstrip())] for a, b in pairwise([*texts, ""])]
    cut = ["\n" in blank and not ENDS_SENTENCE.search(text) for text, blank in zip(texts, between, strict=True)]
    return len(texts), sum(cut)


def evenness(shares: np.ndarray, sizes: np.ndarray) -> float:
    """exp(−KL(shares ‖ sizes)) of scores and tokens of sentences, [U] each: 1 where every token holds the same."""
    p, q = shares / shares.sum(), sizes / sizes.sum()
    return float(np.exp(-np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0]))))


def doubts(sample: Sample, attribution: Attribution) -> list[str]:
    """Cautions on the ranking of the sentences outside the question: it is even, below the question, or a tie."""
    ranked = [(span, max(score, 0.0)) for span, score in sentence_importance(sample, attribution)]
    content = [span for span, _ in ranked if sample.is_content(span)]
    own = np.array([score for span, score in ranked if sample.is_content(span)])
    where, beside = ("outside", "") if "question_stop" in sample.metadata else ("before", ", or what follows it")
    if len(content) < 2 or not own.sum() > 0:
        return []
    copies, lengths = holds_copies(attribution.metadata), np.array([b - a for a, b in content])
    notes, even = [], evenness(own, np.ones(len(content)) if copies else lengths)
    if even <= CLEAR:
        return []
    if even > (EVEN_OF_FEW if len(content) < FEW else EVEN):
        notes.append(f"Of {len(content)} sentences {where} the question none stands out: scores no better than even.")
    if (share := 1 - own.sum() / sum(score for _, score in ranked)) > ON_QUESTION:
        notes.append(f"{share:.0%} of the score lies on the question{beside}: every answer draws on that.")
    first, second = np.sort(own)[:-3:-1]
    values = np.nan_to_num(importance(sample, attribution))
    scores = np.concatenate([values[slice(*span)] for span in content])  # [n]
    if first - second <= _random_lead(scores, lengths, seeded_generator("a random ranking", sample), copies):
        notes.append(f"The first two sentences {where} the question are a near tie: random scores differ by as much.")
    return notes


def _random_lead(scores: np.ndarray, lengths: np.ndarray, generator: torch.Generator, copies: bool) -> float:
    """By how much the first sentence leads the second in 95 of 100 shuffles of the tokens' scores [n]."""
    order = torch.rand(100, len(scores), generator=generator).argsort(1).numpy()
    sums = np.add.reduceat(scores[order], lengths.cumsum() - lengths, axis=1) / (lengths if copies else 1)
    best = np.sort(sums, axis=1)[:, -2:]  # [100, 2]
    return float(np.quantile(best[:, 1] - best[:, 0], 0.95))


def cautions(sample: Sample, attribution: Attribution) -> list[str]:
    """Sentences on why these scores may say less than they seem to; empty where nothing stands out."""
    notes = []
    if attribution.metadata.get("options", {}).get("hops", 0) > 1 and not sample.segments.has_reasoning:
        notes.append("No reasoning stands before the explained passage: further hops change nothing and are not made.")
    for number, message in enumerate(sample.metadata.get("messages", []), start=1):
        if message["start"] == message["stop"] and (role := message["role"]) != "system":  # one left empty says nothing
            notes.append(f"Message {number} ({role}) is not in what the model read: its chat template leaves it out.")
        elif left_out := message.get("left_out"):
            notes.append(f"The model did not read all of message {number}: its chat template leaves out {left_out!r}.")
    notes += sample.metadata.get("cautions", [])
    units, lines = _units_that_are_lines(sample)
    if lines >= max(ON_LINES * units, 3):
        what = "are lines without a full stop, as of a list, a table, code or a log"
        notes.append(f"{lines} of the input's {units} sentences {what}: every such line counts as a sentence.")
    if attribution.hops:
        mass = attribution.hops[0].scores.double() / attribution.hops[0].scores.double().sum()
        on = sum(float(mass[slice(*part.span)].sum()) for part in parts(sample) if part.role == TEMPLATE)
        if on >= ON_TEMPLATE:
            what = "lies on the template and special tokens: what is left for the input is a small part of the whole"
            notes.append(f"{on:.0%} of the first hop's mass {what}.")
    values = np.abs(importance(sample, attribution))  # [N]
    total = np.nansum(values)
    if not total > 0:
        return [*notes, "No score lies on the input: the answer does not rest on it, as far as this method can tell."]
    first = float(values[~np.isnan(values)][0] / total)
    if first >= ON_FIRST:
        what = "lies on its first token: models often attend to the first token when they need nothing from it"
        notes.append(f"{first:.0%} of the input's score {what}.")
    # A token without text is part of a character that stands with the token before it.
    punctuation = [i for i, token in enumerate(sample.tokens or []) if token and not re.search(r"\w", token)]
    on_marks = float(np.nansum(values[punctuation]) / total)
    if on_marks >= ON_MARKS:
        what = "such tokens collect what was said before them, so read their neighbours"
        notes.append(f"{on_marks:.0%} of the input's score lies on punctuation and white space: {what}.")
    found = attribution.metadata.get("verification", {}).get("verdict")
    if found in ("no more than chance", "rather the question"):
        notes.append(f"Verified by removal: {found}.")
    if attribution.metadata.get("too_many_steps"):
        notes.append("The reasoning has too many steps to remove each: they are weighted by scores.")
    return [*notes, *doubts(sample, attribution)]
