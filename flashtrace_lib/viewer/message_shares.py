"""Scores of a trace by message, reasoning, answer and template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..attribution import Attribution, holds_copies, sentences_of_input
from ..sample import Sample, Span
from ..text.formats import MARKS
from ..text.offsets import char_spans_to_token_mask, display_spans

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE, REST, REST_OF_PROMPT = "template", "rest of response", "rest of prompt"
_ENDS = ("", "<|end|>", "<|return|>", "<|call|>")  # of a turn, though marks of a format as well
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")  # a token of its own that reads like this is no word


@dataclass(frozen=True)
class Part:
    """A run of tokens that is one message, the reasoning, the answer, or the template around them."""

    name: str  # such as "user", "2 assistant" (the second message of a conversation), "reasoning", "template"
    role: str  # of a message; else "reasoning", "output", "template", or the rest of prompt or response beside I, T, O
    kind: str  # "input", "reasoning", "output" or "context"
    span: Span


def parts(sample: Sample) -> list[Part]:
    """Parts that tile the context of a sample; a sample without messages has one, the user's."""
    named, tiled = named_tokens(sample), []
    for (named_as, _), run in groupby(range(len(sample)), key=lambda i: (named[i], i >= sample.response[0])):
        positions = list(run)
        tiled.append(Part(*named_as, (positions[0], positions[-1] + 1)))
    return tiled


def named_tokens(sample: Sample) -> list[tuple[str, str, str]]:
    """Name, role and kind of the part that each token belongs to, [N]."""
    template, rest = ((name, name, "context") for name in (TEMPLATE, REST))
    named, (first, last), begin = [template] * len(sample), sample.segments.prompt, sample.response[0]
    messages = sample.metadata.get("messages") or [{"role": "user", "start": first, "stop": last}]

    def fill(start: int, stop: int, *part: str) -> None:
        named[start:stop] = [part] * max(0, stop - start)

    for name in ("reasoning", "output"):
        fill(*getattr(sample.segments, name), name, name, name)
    if sample.tokens:  # in the response the words that are neither T nor O
        tokens = sample.tokens[begin:]
        tags = [match.span() for match in MARKS.finditer("".join(tokens))]
        in_tag = char_spans_to_token_mask(display_spans(tokens), tags).tolist()
        for i, (token, tagged) in enumerate(zip(tokens, in_tag, strict=True), start=begin):
            if named[i] != template:
                continue
            if token.strip():
                named[i] = template if tagged or _SPECIAL.fullmatch(token.strip()) else rest
            elif named[i - 1] == rest:
                named[i] = rest  # white space goes with the token before it
    for number, message in enumerate(messages, start=1):
        role, start, stop = message["role"], message["start"], message["stop"]
        name = role if len(messages) == 1 else f"{number} {role}"
        within = (max(start, first), min(stop, last))  # the input may be a passage of a message
        outside = (REST_OF_PROMPT, REST_OF_PROMPT) if within[0] < within[1] else (name, role)
        fill(start, min(stop, begin), *outside, "context")
        fill(*within, name, role, "input")
    return named


def labels(sample: Sample) -> list[str]:
    """Name of each token's part for a heatmap, [N]; a single user's message is named ``prompt``."""
    shown = [kind if kind == "context" else name for name, _, kind in named_tokens(sample)]
    return ["prompt" if name == "user" else name for name in shown]


def importance(sample: Sample, attribution: Attribution) -> np.ndarray:
    """Score of every input token, float64 [N]; NaN at all others, the template's between two messages included."""
    values = np.full(len(sample), np.nan)
    values[slice(*sample.segments.prompt)] = attribution.scores.double().numpy()
    values[[kind != "input" for _, _, kind in named_tokens(sample)]] = np.nan
    return values


def sentence_importance(sample: Sample, attribution: Attribution) -> list[tuple[Span, float]]:
    """Token range and score of each sentence of the input that holds words of a message, in their order.

    The score is the sum over the sentence's tokens but those of white space alone, whose mass is no word's; of a method
    that gives each token a copy of its sentence's score, that score.
    """
    values, first = importance(sample, attribution), sample.segments.prompt[0]
    copies, of_words = holds_copies(attribution.metadata), np.where(sample.not_blank, values, 0)
    spans = [slice(start + first, stop + first) for start, stop in sentences_of_input(sample)]
    return [((s.start, s.stop), float(np.nanmean(values[s]) if copies else np.nansum(of_words[s])))
            for s in spans if not np.isnan(values[s]).all()]  # fmt: skip


def frame(sample: Sample, attribution: Attribution, by: str = "token") -> pd.DataFrame:
    """`Trace.to_frame`."""
    import pandas as pd  # slow to import

    if by not in ("token", "sentence"):
        raise ValueError(f"by must be 'token' or 'sentence', got {by!r}")
    values, kinds = importance(sample, attribution), [kind for _, _, kind in named_tokens(sample)]
    scored = [((i, i + 1), score) for i, score in enumerate(values)]
    if by == "sentence":
        scored = sentence_importance(sample, attribution)
    places = np.cumsum([0, *map(len, sample.tokens)])
    rows = [("".join(sample.tokens[a:b]), a, b, places[a], places[b], score, kinds[a]) for (a, b), score in scored]
    return pd.DataFrame(rows, columns=["text", "start", "stop", "begin", "end", "score", "segment"])


def matrix(sample: Sample, targets: Sequence[tuple[Span, Attribution]]) -> pd.DataFrame:
    """`Trace.matrix`."""
    import pandas as pd  # slow to import

    if not targets or not all(found.hops for _, found in targets):
        raise ValueError("the matrix needs a method with hops that explains every sentence, such as flashtrace or ifr")
    own, first, words = [span for span, _ in targets], sample.segments.prompt[0], torch.tensor(sample.not_blank)
    columns = [*((a + first, b + first) for a, b in sentences_of_input(sample)), *own]
    values = [[float((found.hops[0].scores * words)[slice(*c)].sum()) if c[1] <= span[0] else np.nan for c in columns]
              for span, found in targets]  # fmt: skip
    said = [" ".join("".join(sample.tokens[slice(*span)]).split()) for span in columns]
    return pd.DataFrame(values, index=said[-len(own) :], columns=said)


def without_end(tokens: Sequence[str], least: int = 0) -> str:
    """Text of a response without the special tokens that end it, and white space before them; ``least`` are kept."""
    kept = list(tokens)
    while len(kept) > least and _ends_turn(kept[-1].strip()):
        kept.pop()
    return "".join(kept)


def _ends_turn(token: str) -> bool:
    return token in _ENDS or bool(_SPECIAL.fullmatch(token)) and not MARKS.fullmatch(token)


def shares(sample: Sample, attribution: Attribution, by: str = "message") -> pd.DataFrame:
    """Scores by message or role, reasoning, answer and template.

    Parameters
    ----------
    by : {"message", "role"}
        One row per message, or one per role.

    Returns
    -------
    pandas.DataFrame
        ``part, tokens, share`` and ``hop 0, hop 1, …``: the share of the input's importance (by magnitude where
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
    total, rows = np.nansum(values) or 1.0, []
    for part in parts(sample):
        start, stop = part.span
        row = {"part": part.role if by == "role" else part.name, "tokens": stop - start}
        row["share"] = float(values[start:stop].sum() / total)
        for k, hop in enumerate(attribution.hops):
            row[f"hop {k}"] = float(hop.scores[start:stop].double().sum() / hop.scores.double().sum())
        rows.append(row)
    groups = pd.DataFrame(rows).groupby("part", sort=False)
    return groups.agg(lambda column: column.sum(min_count=1)).reset_index()  # a sum of NaN alone is NaN
