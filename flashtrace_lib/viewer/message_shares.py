"""Whose the scores of a trace are: each message's, the reasoning's, the template's; and when to doubt them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
import pandas as pd

from ..attribution import Attribution
from ..sample import Sample, Span
from ..text.locate import THINK_CLOSE, THINK_OPEN

TEMPLATE, REST = "template", "rest of response"
_THINK = re.compile(f"{re.escape(THINK_OPEN)}|{re.escape(THINK_CLOSE)}")
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")  # a token of its own that reads like this is no word
# Shares from which a reader should look twice. Judgement, not theory: below them the note would be on every trace.
ON_TEMPLATE, ON_FIRST, ON_MARKS = 0.5, 0.15, 0.35


@dataclass(frozen=True)
class Part:
    """A run of tokens that is one message, the reasoning, the answer, or the template around them.

    Parameters
    ----------
    name : str
        Such as ``user``, ``2 assistant`` (the second message of a conversation), ``reasoning``, ``template``.
    role : str
        ``system``, ``user``, ``assistant``, ``tool``, …; ``reasoning``, ``output``, ``template``, or ``rest of
        response`` for words of the response that are neither T nor O.
    kind : {"input", "reasoning", "output", "context"}
        What its tokens count as.
    span : (int, int)
        Token range.
    """

    name: str
    role: str
    kind: str
    span: Span


def parts(sample: Sample) -> list[Part]:
    """Parts that tile the context of a sample; a sample without messages is one of the user."""
    (first, last), segments = sample.segments.prompt, sample.segments
    messages = sample.metadata.get("messages") or [{"role": "user", "start": first, "stop": last}]
    named = []
    for number, message in enumerate(messages, start=1):
        span = (message["start"], message["stop"])
        kind = "input" if first <= span[0] and span[1] <= last else "context"
        name = message["role"] if len(messages) == 1 else f"{number} {message['role']}"
        named.append(Part(name, message["role"], kind, span))
    named += [
        Part(name, name, name, span) for name, span in (("reasoning", segments.reasoning), ("output", segments.output))
    ]
    tiled, at = [], 0
    for part in named:
        if part.span[0] == part.span[1]:
            continue
        tiled += [*_between(sample, (at, part.span[0])), part]
        at = part.span[1]
    return [*tiled, *_between(sample, (at, len(sample)))]


def _between(sample: Sample, gap: Span) -> Iterator[Part]:
    """Parts of a gap: the template, and in the response whatever words are neither T nor O."""
    said = range(max(gap[0], sample.response[0]), gap[1])
    tokens = [sample.tokens[i] for i in said] if sample.tokens else []
    begins = [0, *accumulate(map(len, tokens))]
    marks = [match.span() for match in _THINK.finditer("".join(tokens))]
    names = [TEMPLATE] * (gap[1] - gap[0] - len(tokens))
    for token, a, b in zip(tokens, begins, begins[1:], strict=False):
        if not token.strip():  # white space goes with what stands before it
            names.append(names[-1] if names else TEMPLATE)
        else:
            special = _SPECIAL.fullmatch(token.strip()) or any(a < stop and start < b for start, stop in marks)
            names.append(TEMPLATE if special else REST)
    runs = groupby(range(*gap), key=lambda i: (names[i - gap[0]], i >= sample.response[0]))
    for (name, _), run in runs:
        start, *others = run
        yield Part(name, name, "context", (start, start + len(others) + 1))


def importance(sample: Sample, attribution: Attribution) -> np.ndarray:
    """Score of every input token, float64 [N]; NaN at all others, the template's between two messages included."""
    values = np.full(len(sample), np.nan)
    start = sample.segments.prompt[0]
    for part in parts(sample):
        if part.kind == "input":
            a, b = part.span
            values[a:b] = attribution.scores[a - start : b - start].double().numpy()
    return values


def shares(sample: Sample, attribution: Attribution, by: str = "message") -> pd.DataFrame:
    """How the scores divide among messages or roles, the reasoning, the answer and the template.

    Parameters
    ----------
    sample : Sample
    attribution : Attribution
    by : {"message", "role"}
        One row a message, or one a role.

    Returns
    -------
    pandas.DataFrame
        ``part, tokens, share`` and ``hop 1, hop 2, …``: the part of the input's importance (by magnitude, where
        scores are signed; NaN for what is no input), and of each hop's mass. Every column of shares sums to 1.

    Raises
    ------
    ValueError
        If ``by`` is neither.
    """
    if by not in ("message", "role"):
        raise ValueError(f"by must be 'message' or 'role', got {by!r}")
    values = np.abs(importance(sample, attribution))
    total = np.nansum(values) or 1.0
    rows = []
    for part in parts(sample):
        a, b = part.span
        row = {"part": part.role if by == "role" else part.name, "tokens": b - a}
        row["share"] = float(values[a:b].sum() / total)
        for k, hop in enumerate(attribution.hops, start=1):
            row[f"hop {k}"] = float(hop.scores[a:b].double().sum() / hop.scores.double().sum())
        rows.append(row)
    whole = lambda column: column.sum(min_count=1)  # noqa: E731 - nothing but NaN stays NaN
    return pd.DataFrame(rows).groupby("part", sort=False).agg(whole).reset_index()


def special_in_input(sample: Sample, special_ids: Collection[int]) -> list[str]:
    """Special tokens that the messages' own words hold, in order: the model read them as marks of its template."""
    inside = [i for part in parts(sample) if part.kind == "input" for i in range(*part.span)]
    return list(dict.fromkeys(sample.tokens[i].strip() for i in inside if int(sample.input_ids[i]) in special_ids))


def cautions(sample: Sample, attribution: Attribution) -> list[str]:
    """Sentences on why these scores may say less than they seem to; empty where nothing stands out."""
    notes = [
        f"Message {number} ({message['role']}) is not in what the model read: its chat template leaves it out."
        for number, message in enumerate(sample.metadata.get("messages", []), start=1)
        if message["start"] == message["stop"]
    ]
    special = attribution.metadata.get("special_in_input", [])
    if special:
        notes.append(
            f"The input's own words hold {', '.join(special)}: the model reads such a special token as a mark of the "
            "template and not as text, so what stands behind it may not count as the user's."
        )
    if attribution.hops:
        frame = shares(sample, attribution, by="role").set_index("part")
        template = float(frame["hop 1"].get(TEMPLATE, 0.0))
        if template >= ON_TEMPLATE:
            notes.append(
                f"{template:.0%} of the first hop's mass lies on the template and special tokens: "
                "what is left for the input is a small part of the whole."
            )
    values = np.abs(importance(sample, attribution))
    total = np.nansum(values)
    if not total > 0:
        return [*notes, "No score lies on the input: the answer does not rest on it, as far as this method can tell."]
    first = float(values[np.flatnonzero(~np.isnan(values))[0]] / total)
    if first >= ON_FIRST:
        notes.append(
            f"{first:.0%} of the input's score lies on its first token: models often attend to the first token "
            "when they need nothing from it."
        )
    # A token without text is part of a character that stands with the token before it.
    marks = np.array([bool(token) and not re.search(r"\w", token) for token in sample.tokens or []], dtype=bool)
    on_marks = float(np.nansum(values[marks]) / total) if len(marks) else 0.0
    if on_marks >= ON_MARKS:
        notes.append(
            f"{on_marks:.0%} of the input's score lies on punctuation and white space: such tokens collect what was "
            "said before them, so read their neighbours."
        )
    return notes
