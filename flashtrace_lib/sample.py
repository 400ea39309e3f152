"""Segments of a context and the sample every method explains (paper, section 3.1).

A full context S = I ∘ T ∘ O has an input I, intermediate reasoning T and a final output O. A token that
lies in no segment (chat template, special and end tokens) is *context*: it takes part in the forward pass
and in every normalisation, and is never ranked, masked or counted as input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch

Span = tuple[int, int]  # half-open token range [start, stop)


@dataclass(frozen=True)
class Segments:
    """Half-open token ranges of input I, reasoning T and output O.

    Parameters
    ----------
    prompt : (int, int)
        I, the user's own text. Not empty.
    reasoning : (int, int)
        T, what stands between the thinking marks. May be empty (``start == stop``).
    output : (int, int)
        O, the answer. Not empty.

    Raises
    ------
    ValueError
        If a span is malformed, empty where it may not be, overlaps another, or is out of order.
    """

    prompt: Span
    reasoning: Span
    output: Span

    def __post_init__(self) -> None:
        for name in ("prompt", "reasoning", "output"):
            object.__setattr__(self, name, _as_span(getattr(self, name), name))
        if self.prompt[0] == self.prompt[1]:
            raise ValueError(f"prompt span {self.prompt} is empty: give the token range of the input to explain from")
        if self.output[0] == self.output[1]:
            raise ValueError(f"output span {self.output} is empty: give the token range of the answer to explain")
        for (name_a, a), (name_b, b) in pairwise(self.named()):
            if a[1] > b[0]:
                how = "overlap" if b[1] > a[0] else "are out of order"
                raise ValueError(f"{name_a} span {a} and {name_b} span {b} {how}: give prompt, reasoning, output")

    def named(self) -> Iterator[tuple[str, Span]]:
        """Yield (name, span) of every segment that is not empty, in order."""
        for name in ("prompt", "reasoning", "output"):
            span = getattr(self, name)
            if span[0] < span[1]:
                yield name, span

    @property
    def has_reasoning(self) -> bool:
        """Whether T holds any token."""
        return self.reasoning[0] < self.reasoning[1]

    @property
    def generated(self) -> Span:
        """The range from the first token of T (of O where T is empty) to the last of O."""
        return (self.reasoning[0] if self.has_reasoning else self.output[0], self.output[1])

    def labels(self, n_tokens: int) -> list[str]:
        """One of ``prompt``, ``reasoning``, ``output``, ``context`` for each of ``n_tokens`` positions."""
        out = ["context"] * n_tokens
        for name, (start, stop) in self.named():
            out[start:stop] = [name] * (stop - start)
        return out


@dataclass
class Sample:
    """One context to explain.

    Parameters
    ----------
    input_ids : torch.LongTensor, shape [N]
        The whole context, prompt and response, as the model sees it.
    segments : Segments
        Where I, T and O lie in it.
    gold : torch.BoolTensor, shape [N], optional
        True at the tokens of I that hold the ground-truth evidence (appendix F.1).
    response : (int, int), optional
        Everything generated, end token included: what the deletion curve scores. Default: from the first
        token of T (or O) to the end of the context.
    tokens : list of str, optional
        Display text of each token.
    sentences : list of (int, int), optional
        Token ranges of sentences that tile the words of I, T and O (`words`), for sentence granularity.
    mask_token_id : int, optional
        What replaces a masked token: the tokenizer's pad token, else its end token.
    metadata : dict
        What identifies the sample: ``id``, ``task``, ``cell``, seeds, counts; ``question_start``, the token at which I
        begins to ask, ``question_stop``, that behind a question which more of I follows, and ``haystack_span``, a
        token range, where they are known; ``messages`` of a conversation that is the input, and ``marks``, token ranges
        of the template's marks within I, T and O; ``blank``, the tokens of white space alone, where ``tokens`` is None.

    Raises
    ------
    ValueError
        If the ids are not a 1-D LongTensor, or a span or the gold mask does not fit them.
    """

    input_ids: torch.Tensor
    segments: Segments
    gold: torch.Tensor | None = None
    response: Span | None = None
    tokens: list[str] | None = None
    sentences: list[Span] | None = None
    mask_token_id: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = self.input_ids
        if not isinstance(ids, torch.Tensor) or ids.ndim != 1 or ids.dtype != torch.long:
            seen = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, torch.Tensor) else type(ids).__name__
            raise ValueError(f"input_ids must be a 1-D LongTensor of token ids without a batch dimension, got {seen}")
        n, (first, last) = len(ids), self.segments.generated
        for name, span in self.segments.named():
            if span[1] > n:
                raise ValueError(f"{name} span {span} is out of range: the sample has {n} tokens")
        if self.gold is not None:
            self._check_gold(n)
        start, stop = self.response = (first, n) if self.response is None else _as_span(self.response, "response")
        if start > first or not last <= stop <= n:
            what = f"must hold the reasoning and the output {(first, last)} and end within the {n} tokens"
            raise ValueError(f"response span {self.response} {what}")
        if start < self.segments.prompt[1]:
            raise ValueError(f"response span {self.response} overlaps the prompt span {self.segments.prompt}")
        if self.tokens is not None and len(self.tokens) != n:
            raise ValueError(f"tokens has {len(self.tokens)} entries for {n} ids: give one display string a token")
        for span in self.sentences or []:
            start, stop = _as_span(span, "sentence")
            if start == stop or stop > n:
                raise ValueError(f"sentence span {span} is empty or out of range of {n} tokens")

    def _check_gold(self, n: int) -> None:
        gold = self.gold
        if gold.dtype != torch.bool or gold.shape != (n,):
            raise ValueError(f"gold must be a BoolTensor of shape [{n}], got {tuple(gold.shape)} {gold.dtype}")
        start, stop = self.segments.prompt
        if gold[:start].any() or gold[stop:].any():
            raise ValueError("gold marks tokens outside the prompt span: evidence must lie in the input I")

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def id(self) -> str:
        """Identifier of the sample within its task; ``"sample"`` where none was given."""
        return str(self.metadata.get("id", "sample"))

    @property
    def prompt_ids(self) -> torch.Tensor:
        """Token ids of I, shape [|I|]."""
        return self.input_ids[slice(*self.segments.prompt)]

    @property
    def gold_in_prompt(self) -> torch.Tensor:
        """Gold mask over I, shape [|I|], bool; ValueError where the sample has none."""
        if self.gold is None:
            raise ValueError(f"sample {self.id} has no gold evidence: recovery needs a task with marked evidence")
        return self.gold[slice(*self.segments.prompt)]

    @property
    def haystack(self) -> Span:
        """The part of I in which the answer is to be found: I without its question and instructions.

        What the task marked (``metadata["haystack_span"]``); else what stands before the question
        (``metadata["question_start"]``); else, or where nothing does, all of I.

        Raises
        ------
        ValueError
            If what the metadata say does not lie in I.
        """
        first, stop = self.segments.prompt
        marked = self.metadata.get("haystack_span")
        if marked is None:
            asks = self.metadata.get("question_start", stop)
            marked = (first, asks) if asks != first else (first, stop)
        start, end = _as_span(marked, "haystack")
        if not first <= start < end <= stop:
            raise ValueError(f"sample {self.id}: haystack {marked} does not lie in its prompt {self.segments.prompt}")
        return start, end

    @property
    def sources(self) -> list[Span]:
        """Sentences of the haystack, as token ranges in the order of the text: the units of sentence ablations.

        Raises
        ------
        ValueError
            If the sample has no sentences in its haystack.
        """
        if spans := self.sentences_in(self.haystack):
            return spans
        raise ValueError(f"sample {self.id} has no sentences in its haystack {self.haystack}: set its `sentences`")

    def is_content(self, sentence: Span) -> bool:
        """Whether a sentence of I stands outside the question: before it, or behind one that more of I follows."""
        start, stop = (self.metadata.get(f"question_{end}", self.segments.prompt[1]) for end in ("start", "stop"))
        return not start <= sentence[0] < stop

    def words(self, segment: Span) -> list[Span]:
        """Token ranges of a segment without the template: role headers and end marks between messages, think tags.

        All of the segment where nothing else is left.
        """
        messages = self.metadata.get("messages", ()) if segment == self.segments.prompt else ()
        parts = [(max(segment[0], m["start"]), min(segment[1], m["stop"])) for m in messages] or [segment]
        marks = self.metadata.get("marks", ())
        return [piece for part in parts for piece in outside(part, marks)] or outside(segment, ())

    @property
    def not_blank(self) -> list[bool]:
        """False at tokens of white space alone, [N]; one without text is a part of the letter before it."""
        blank = set(self.metadata.get("blank", ()))
        return [not t.isspace() for t in self.tokens] if self.tokens else [i not in blank for i in range(len(self))]

    def sentences_in(self, span: Span) -> list[Span]:
        """Sentences of a token range, cut to it, as token ranges in the order of the text."""
        first, stop = span
        cut = [(max(start, first), min(end, stop)) for start, end in sorted(self.sentences or ())]
        return [(start, end) for start, end in cut if start < end]

    def with_output(self, span: Span) -> Sample:
        """Copy in which ``span`` is the output, and the reasoning only what of it stands before the span.

        Raises
        ------
        ValueError
            If the span is empty or does not lie in the response.
        """
        start, stop = _as_span(span, "target")
        if not self.response[0] <= start < stop <= self.response[1]:
            raise ValueError(f"span ({start}, {stop}) is empty or does not lie in the response {self.response}")
        first, last = self.segments.reasoning
        before = (min(first, start), min(last, start))
        return replace(self, segments=replace(self.segments, reasoning=before, output=(start, stop)))


def seeded_generator(seed: int | str, sample: Sample) -> torch.Generator:
    """Random generator fixed by the seed and the sample alone, whatever was computed before."""
    digest = hashlib.sha256(f"{seed}:{sample.id}:".encode() + sample.input_ids.cpu().numpy().tobytes()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def outside(span: Span, known: Iterable[Span]) -> list[Span]:
    """What is left of ``span`` without the ranges ``known``."""
    (start, stop), pieces = span, []
    for a, b in sorted(known):
        pieces.append((start, min(a, stop)))
        start = max(start, b)
    return [(a, b) for a, b in (*pieces, (start, stop)) if a < b]


def bounding_span(spans: Sequence[Span]) -> Span:
    """Smallest range that holds all ``spans``."""
    return min(start for start, _ in spans), max(stop for _, stop in spans)


def _as_span(span: Any, name: str) -> Span:
    """Validate one span and return it as a tuple of ints."""
    try:
        start, stop = (int(x) for x in span)
    except (TypeError, ValueError):
        raise ValueError(f"{name} span {span!r} is not a pair (start, stop) of token positions") from None
    if start < 0 or stop < start:
        raise ValueError(f"{name} span ({start}, {stop}) is not a half-open range: need 0 <= start <= stop")
    return start, stop
