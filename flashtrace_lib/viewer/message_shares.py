"""Scores of a trace by message, reasoning, answer and template, and reasons to doubt them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..attribution import Attribution, holds_copies, sentences_of_input
from ..sample import Sample, Span
from ..text.formats import MARKS
from ..text.offsets import char_spans_to_token_mask, display_spans
from ..text.segmenter import ENDS_SENTENCE

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE, REST, REST_OF_PROMPT = "template", "rest of response", "rest of prompt"
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")  # a token of its own that reads like this is no word
# Shares from which on a note is given. Judgement, not theory: with lower ones every trace would have the note.
ON_TEMPLATE, ON_FIRST, ON_MARKS, ON_LINES = 0.5, 0.15, 0.35, 0.5


@dataclass(frozen=True)
class Part:
    """A run of tokens that is one message, the reasoning, the answer, or the template around them."""

    name: str  # such as "user", "2 assistant" (the second message of a conversation), "reasoning", "template"
    role: str  # of a message; else "reasoning", "output", "template", or the rest of prompt or response beside I, T, O
    kind: str  # "input", "reasoning", "output" or "context"
    span: Span


def parts(sample: Sample) -> list[Part]:
    """Parts that tile the context of a sample; a sample without messages has one, the user's."""
    tiled, position = [], 0
    for part in _named_parts(sample):
        start, stop = part.span
        if start < stop:
            tiled += [*_between(sample, (position, start)), part]
            position = stop
    return [*tiled, *_between(sample, (position, len(sample)))]


def _named_parts(sample: Sample) -> Iterator[Part]:
    """Messages, reasoning and output; some may be empty."""
    first, last = sample.segments.prompt
    messages = sample.metadata.get("messages") or [{"role": "user", "start": first, "stop": last}]
    for number, message in enumerate(messages, start=1):
        role, (start, stop) = message["role"], (message["start"], message["stop"])
        name = role if len(messages) == 1 else f"{number} {role}"
        within = (max(start, first), min(stop, last))  # the input may be a passage of a message
        if within[0] >= within[1]:
            yield Part(name, role, "context", (start, stop))
            continue
        yield Part(REST_OF_PROMPT, REST_OF_PROMPT, "context", (start, within[0]))
        yield Part(name, role, "input", within)
        yield Part(REST_OF_PROMPT, REST_OF_PROMPT, "context", (within[1], min(stop, sample.response[0])))
    yield Part("reasoning", "reasoning", "reasoning", sample.segments.reasoning)
    yield Part("output", "output", "output", sample.segments.output)


def _between(sample: Sample, gap: Span) -> Iterator[Part]:
    """Parts of a gap: the template, and in the response the words that are neither T nor O."""
    first = max(gap[0], sample.response[0])  # of the response
    tokens = sample.tokens[first : gap[1]] if sample.tokens else []
    tags = [match.span() for match in MARKS.finditer("".join(tokens))]
    in_tag = char_spans_to_token_mask(display_spans(tokens), tags).tolist()
    names = [TEMPLATE] * (gap[1] - gap[0] - len(tokens))
    for token, tagged in zip(tokens, in_tag, strict=True):
        if not token.strip():  # white space goes with the token before it
            names.append(names[-1] if names else TEMPLATE)
        else:
            names.append(TEMPLATE if tagged or _SPECIAL.fullmatch(token.strip()) else REST)
    runs = groupby(range(*gap), key=lambda i: (names[i - gap[0]], i >= sample.response[0]))
    for (name, _), run in runs:
        positions = list(run)
        yield Part(name, name, "context", (positions[0], positions[-1] + 1))


def labels(sample: Sample) -> list[str]:
    """Name of each token's part for a heatmap, [N]; a single user's message is named ``prompt``."""
    names = []
    for part in parts(sample):
        name = "prompt" if part.name == "user" else part.name
        names += ["context" if part.kind == "context" else name] * (part.span[1] - part.span[0])
    return names


def importance(sample: Sample, attribution: Attribution) -> np.ndarray:
    """Score of every input token, float64 [N]; NaN at all others, the template's between two messages included."""
    values = np.full(len(sample), np.nan)
    offset = sample.segments.prompt[0]
    for part in parts(sample):
        if part.kind == "input":
            start, stop = part.span
            values[start:stop] = attribution.scores[start - offset : stop - offset].double().numpy()
    return values


def sentence_importance(sample: Sample, attribution: Attribution) -> list[tuple[Span, float]]:
    """Token range and score of each sentence of the input that holds words of a message, in their order.

    The score is the sum over the sentence's tokens; of a method that gives each token a copy of its sentence's score,
    that score.
    """
    values, first = importance(sample, attribution), sample.segments.prompt[0]
    combine = np.nanmean if holds_copies(attribution.metadata) else np.nansum
    spans = [(start + first, stop + first) for start, stop in sentences_of_input(sample)]
    return [(s, float(combine(values[slice(*s)]))) for s in spans if not np.isnan(values[slice(*s)]).all()]


def shares(sample: Sample, attribution: Attribution, by: str = "message") -> pd.DataFrame:
    """Scores by message or role, reasoning, answer and template.

    Parameters
    ----------
    by : {"message", "role"}
        One row per message, or one per role.

    Returns
    -------
    pandas.DataFrame
        ``part, tokens, share`` and ``hop 1, hop 2, …``: the share of the input's importance (by magnitude where
        scores are signed; NaN outside the input) and of each hop's mass. Every column of shares sums to 1.

    Raises
    ------
    ValueError
        If ``by`` is neither.
    """
    import pandas as pd  # slow to import

    if by not in ("message", "role"):
        raise ValueError(f"by must be 'message' or 'role', got {by!r}")
    values = np.abs(importance(sample, attribution))
    total = np.nansum(values) or 1.0
    rows = []
    for part in parts(sample):
        start, stop = part.span
        row = {"part": part.role if by == "role" else part.name, "tokens": stop - start}
        row["share"] = float(values[start:stop].sum() / total)
        for k, hop in enumerate(attribution.hops, start=1):
            row[f"hop {k}"] = float(hop.scores[start:stop].double().sum() / hop.scores.double().sum())
        rows.append(row)
    groups = pd.DataFrame(rows).groupby("part", sort=False)
    return groups.agg(lambda column: column.sum(min_count=1)).reset_index()  # a sum of NaN alone is NaN


def special_in_input(sample: Sample, special_ids: Collection[int]) -> list[str]:
    """Special tokens within the messages' own words, in order: the model reads them as marks of its template."""
    special = []
    for part in parts(sample):
        if part.kind == "input":
            special += [sample.tokens[i].strip() for i in range(*part.span) if int(sample.input_ids[i]) in special_ids]
    return list(dict.fromkeys(special))


def _units_that_are_lines(sample: Sample) -> tuple[int, int]:
    """How many sentences the input has, and how many of them only the end of a line ends."""
    spans = sample.sentences_in(sample.segments.prompt) if sample.tokens else []
    texts = ["".join(sample.tokens[slice(*span)]) for span in spans]
    between = [a[len(a.rstrip()) :] + b[: len(b) - len(b.lstrip())] for a, b in pairwise([*texts, ""])]
    cut = ["\n" in blank and not ENDS_SENTENCE.search(text) for text, blank in zip(texts, between, strict=True)]
    return len(texts), sum(cut)


def cautions(sample: Sample, attribution: Attribution) -> list[str]:
    """Sentences on why these scores may say less than they seem to; empty where nothing stands out."""
    notes = []
    if attribution.metadata.get("options", {}).get("hops", 0) > 1 and not sample.segments.has_reasoning:
        notes.append(
            "There is no reasoning before the explained passage: further hops change nothing, and none was made."
        )
    for number, message in enumerate(sample.metadata.get("messages", []), start=1):
        if message["start"] == message["stop"]:
            role = message["role"]
            notes.append(f"Message {number} ({role}) is not in what the model read: its chat template leaves it out.")
        elif left_out := message.get("left_out"):
            notes.append(f"The model did not read all of message {number}: its chat template leaves out {left_out!r}.")
    if attribution.metadata.get("other_spelling"):
        notes.append(
            "The response's ids are not those that the tokenizer makes of its text (not canonical): they are explained "
            "as they were given; those within one character are shown as one."
        )
    special = attribution.metadata.get("special_in_input", [])
    if special:
        notes.append(
            f"The input's own words hold {', '.join(special)}: the model reads such a special token as a mark of the "
            "template and not as text, so what stands behind it may not count as the user's."
        )
    notes += sample.metadata.get("cautions", [])
    units, lines = _units_that_are_lines(sample)
    if lines >= max(ON_LINES * units, 3):
        notes.append(
            f"{lines} of the input's {units} sentences are lines without a full stop: every line of a list, a "
            "table, code or a log counts as a sentence."
        )
    if attribution.hops:
        first_hop = attribution.hops[0].scores.double()
        on = sum(float(first_hop[slice(*part.span)].sum()) for part in parts(sample) if part.role == TEMPLATE)
        if on / float(first_hop.sum()) >= ON_TEMPLATE:
            notes.append(
                f"{on / float(first_hop.sum()):.0%} of the first hop's mass lies on the template and special tokens: "
                "what is left for the input is a small part of the whole."
            )
    values = np.abs(importance(sample, attribution))  # [N]
    total = np.nansum(values)
    if not total > 0:
        return [*notes, "No score lies on the input: the answer does not rest on it, as far as this method can tell."]
    first = float(values[~np.isnan(values)][0] / total)
    if first >= ON_FIRST:
        notes.append(
            f"{first:.0%} of the input's score lies on its first token: models often attend to the first token "
            "when they need nothing from it."
        )
    # A token without text is part of a character that stands with the token before it.
    punctuation = np.array([bool(token) and not re.search(r"\w", token) for token in sample.tokens or []], dtype=bool)
    on_marks = float(np.nansum(values[punctuation]) / total) if len(punctuation) else 0.0
    if on_marks >= ON_MARKS:
        notes.append(
            f"{on_marks:.0%} of the input's score lies on punctuation and white space: such tokens collect what was "
            "said before them, so read their neighbours."
        )
    return notes
