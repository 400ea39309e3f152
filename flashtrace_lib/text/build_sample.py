"""Text to Sample: chat template, exact token-to-text offsets, segments, gold evidence, sentences.

Every position follows from the character offsets of the very ids that the model reads. Ids are never searched for, and
generated ids are never replaced by others that happen to read the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from numbers import Integral
from typing import Any
from unicodedata import normalize

import torch

from ..sample import Sample, Segments, Span
from .chat_template import Messages, PromptText, render_prompt
from .locate import Locator, find_passage, locate_segments
from .offsets import (
    CharSpan,
    char_spans_to_token_mask,
    checked_ids,
    content_span,
    decode,
    decode_with_offsets,
    strip_span,
    tokenise,
    tokens_in,
)
from .reading import Reading, own_tokens
from .sentences import question_in, sentence_ranges, template_marks


def build_sample(
    tokenizer: Any, prompt: str | Messages, response: str | Sequence[int] | torch.Tensor, *,
    input: Locator = "auto", reasoning: Locator = "auto", output: Locator = "auto",
    evidence: Sequence[CharSpan] = (), places: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None, **rendering: Any,
) -> Sample:  # fmt: skip
    r"""Sample of a prompt and a response, with every position found by character offsets.

    I is the user's own text, T the reasoning that the response marks as such, O the answer; template, tags, special
    and end tokens are context (section 3.1). A token belongs to a segment when a character of it that is not white
    space does, and no part of a tag. What follows the response's first turn is left out of the sample.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        A fast tokenizer.
    prompt : str or list of messages
        The user's words, or a conversation that ends with them.
    response : str, or token ids
        The model's response. Ids are kept as they are; a text is tokenised together with the prompt, and the
        tokenizer's end token is put behind it.
    input : str, compiled pattern or (int, int)
        The passage of the prompt that is the input I, in the same way; the rest of the prompt is context. Default:
        all of it.
    reasoning, output : str, compiled pattern, (int, int) or None
        A substring of the response, a pattern (``(either, n)``: its nth place), a token range of the whole context, or
        ``"auto"`` (`locate_segments`). ``reasoning=None`` means none.
    evidence : sequence of (int, int)
        Character ranges of the prompt that hold the ground truth (appendix F.1). Without any, no gold mask.
    places : mapping, optional
        What else is known of the prompt. ``question``: the character at which it begins to ask, the token
        ``metadata["question_start"]`` (default: where `sentences.question_in` finds it). ``haystack``: the characters
        in which the answer is to be found, the token range ``metadata["haystack_span"]``.
    metadata : mapping, optional
        Further metadata of the sample.
    **rendering
        Options of `render_prompt`. With ``whole=True`` every message of a conversation is input, and
        ``metadata["messages"]`` has the tokens of each (the others are the template's).

    Returns
    -------
    Sample
        With gold, response span (end token included), display tokens, sentences and mask token;
        ``metadata["format"]`` names how T and O are marked, ``metadata["cautions"]`` says what that left open.

    Raises
    ------
    ValueError
        If the response is empty, does not survive its own tokenizer, or a passage is not found in it.
    """
    rendered = render_prompt(tokenizer, prompt, **rendering)
    response = response if isinstance(response, str) else checked_ids(response)
    if not response or (isinstance(response, str) and not response.strip()):
        raise ValueError("the response is empty: there is nothing to explain")
    context = (_encode_text if isinstance(response, str) else _encode_ids)(tokenizer, rendered.text, response)
    explained = _input_chars(context, rendered, input)
    context, found, ranges, start = _located(tokenizer, context, rendered, reasoning, output)
    segments, segment_chars, split = _segments(context, found, start, explained, ranges)
    if rendered.trimmed is None and (evidence or places):
        raise ValueError("the chat template rewrites the last message, so places in it cannot be found: leave them out")
    shift = rendered.span[0] - (rendered.trimmed or 0)  # from a character of ``prompt`` to the same one of the context
    first, stop = segments.prompt
    messages = _messages(context, rendered)
    marks = _marks(tokenizer, context, segments, messages)
    told = {"format": found.format, "cautions": [*found.cautions, *split], "messages": messages, "marks": marks}
    sample = Sample(
        input_ids=torch.tensor(context.ids, dtype=torch.long),
        segments=segments,
        response=(context.n_prompt, len(context.ids)),
        tokens=_display_tokens(context),
        mask_token_id=tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        metadata={name: value for name, value in told.items() if value},
    )
    sentences = sentence_ranges(context.text, context.content, _words(context, sample, segment_chars))

    def tokens_at(start: int, stop: int) -> Span:
        return _some_tokens_in(context.content, (start + shift, stop + shift), first)

    located, places = question_in(sample.tokens, sentences, segments.prompt, messages), places or {}
    if places.get("question") is not None:
        located = {"question_start": tokens_at(places["question"], rendered.span[1] - shift)[0]}
    if places.get("haystack") is not None:
        located["haystack_span"] = tokens_at(*places["haystack"])
    gold = None
    if evidence:
        gold = char_spans_to_token_mask(context.content, [(a + shift, b + shift) for a, b in evidence], context.text)
        gold[:first] = gold[stop:] = False  # a template token that shares a character with the evidence
    located |= sample.metadata | dict(metadata or {})
    return replace(sample, gold=gold, sentences=sentences, metadata=located)


@dataclass(frozen=True)
class _Context:
    """Prompt and response as the model reads them, N tokens."""

    text: str
    ids: list[int]  # [N]
    offsets: list[CharSpan]  # [N] characters of ``text`` that each token covers
    n_prompt: int  # position of the first token of the response

    @cached_property
    def content(self) -> list[CharSpan]:
        """Content span of each token, [N]."""
        return [content_span(self.text, span) for span in self.offsets]


def _encode_text(tokenizer: Any, prompt: str, response: str) -> _Context:
    """Prompt, response and end token, tokenised together."""
    text = prompt + response
    ids, offsets = tokenise(tokenizer, text)
    # composed, since some tokenizers compose accents, and without the blanks that some put behind special tokens
    kept, said = ("".join(normalize("NFC", words).split()) for words in (decode(tokenizer, ids), response))
    if not kept.endswith(said):
        what = "is lost in tokenisation (decoding its ids gives another text)"
        raise ValueError(f"the response {what}: give a response that this tokenizer can represent, or its token ids")
    # A token that holds the last blank of the prompt and the first letter of the response is the response's.
    n_prompt = next(i for i, span in enumerate(offsets) if strip_span(text, span)[1] > len(prompt))
    last = next(i for i, span in zip(ids[::-1], offsets[::-1], strict=True) if text[slice(*span)].strip())
    if tokenizer.eos_token_id is not None and last != tokenizer.eos_token_id:
        ids.append(tokenizer.eos_token_id)
        offsets.append((len(text), len(text) + len(tokenizer.eos_token)))
        text += tokenizer.eos_token
    return _Context(text, ids, offsets, n_prompt)


def _encode_ids(tokenizer: Any, prompt: str, response: list[int]) -> _Context:
    """The tokenised prompt, and the ids of the response as they are."""
    ids, offsets = tokenise(tokenizer, prompt)
    response_text, ranges = decode_with_offsets(tokenizer, response, before=ids)
    offsets += [(start + len(prompt), stop + len(prompt)) for start, stop in ranges]
    return _Context(prompt + response_text, ids + response, offsets, len(ids))


def _located(
    tokenizer: Any, context: _Context, rendered: PromptText, reasoning: Locator, output: Locator
) -> tuple[_Context, Reading, dict[str, Span | None], int]:
    """The context up to the end of the response's first turn; T and O in the response, and where that begins."""
    places = {"reasoning": reasoning, "output": output}
    within = (context.n_prompt, len(context.ids))
    ranges = {name: _token_range(locator, name, within) for name, locator in places.items()}
    start = min(len(rendered.text), context.content[context.n_prompt][0])
    for name, span in ranges.items():
        if span:
            places[name] = tuple(i - start for i in _chars(context, span)) if span[0] < span[1] else None
    tail = rendered.text[rendered.behind : start]
    own = own_tokens(tokenizer, context.ids, [(a - start, b - start) for a, b in context.content])
    own = [token for token in own if token.start >= -len(tail)]
    found = locate_segments(context.text[start:], places["reasoning"], places["output"], tail, own)
    stop = max(found.stop, found.output[1]) + start
    n = next((i + 1 for i, (a, _) in enumerate(context.content) if a >= stop), len(context.ids))
    if found.behind and n < len(context.ids):
        text = context.text[: max(end for _, end in context.offsets[:n])]
        context = _Context(text, context.ids[:n], context.offsets[:n], context.n_prompt)
    return context, found, ranges, start


def _segments(
    context: _Context, found: Reading, start: int, prompt: CharSpan, ranges: Mapping[str, Span | None]
) -> tuple[Segments, dict[Span, CharSpan], list[str]]:
    """Token ranges of I (the characters ``prompt``), T and O, the characters of those with any, and cautions."""
    chars = {"prompt": prompt, "output": (found.output[0] + start, found.output[1] + start)}
    if found.reasoning:
        chars["reasoning"] = (found.reasoning[0] + start, found.reasoning[1] + start)
    marks = [(a + start, b + start) for _, a, b in found.marks]
    spans: dict[str, Span] = {}
    notes: list[str] = []
    first = 0  # a token that lies in two segments belongs to the first of them
    for name in sorted(chars, key=lambda name: chars[name]):
        # a token that crosses into the response, such as "?<", is the response's
        reachable = context.content[: context.n_prompt] if name == "prompt" else context.content
        span = ranges.get(name) or _some_tokens_in(reachable, chars[name], first)
        if name != "prompt" and not ranges[name]:
            span, shared = _without_marks(context, span, marks)
            notes += shared
        spans[name], first = span, span[1]
    spans.setdefault("reasoning", (spans["output"][0],) * 2)
    return Segments(**spans), {spans[name]: chars[name] for name in chars}, notes


def _without_marks(context: _Context, span: Span, marks: list[CharSpan]) -> tuple[Span, list[str]]:
    """``span`` without tokens at its ends that hold a part of a mark, unless that is all of it, and what was left."""
    (first, stop), content = span, context.content
    holds = [any(a < mark[1] and b > mark[0] for mark in marks) for a, b in content[first:stop]]
    if all(holds) or not (holds[0] or holds[-1]):
        return span, []
    cut = (first + holds.index(False), stop - holds[::-1].index(False))
    left = [context.text[slice(*content[i])] for i in (*range(first, cut[0]), *range(cut[1], stop))]
    return cut, [f"A token holds words and a part of a mark, and counts as context: {', '.join(map(repr, left))}."]


def _input_chars(context: _Context, rendered: PromptText, locator: Locator) -> CharSpan:
    """Characters of the passage of the prompt that is the input."""
    if isinstance(locator, str) and locator == "auto":
        return rendered.span
    span = _token_range(locator, "input", tokens_in(context.content[: context.n_prompt], rendered.span))
    return _chars(context, span) if span else find_passage(context.text, locator, "input", rendered.span)


def _token_range(locator: Locator, name: str, within: Span) -> Span | None:
    """The locator as a token range, None where it is a text or a pattern, or says that there is none."""
    pair = tuple(locator) if isinstance(locator, tuple | list) and len(locator) == 2 else (locator, None)
    if isinstance(pair[0], str) or hasattr(pair[0], "finditer") or (locator is None and name == "reasoning"):
        return None
    (first, last), least = within, 0 if name == "reasoning" else 1  # tokens
    if not all(isinstance(i, Integral) for i in pair) or not first <= pair[0] <= pair[1] - least <= last - least:
        source = "prompt" if name == "input" else "response"
        kinds = f"a text, a compiled pattern, 'auto' or a token range of the {source} {within} that is not empty"
        raise ValueError(f"{name} must be {kinds}, got {locator!r:.80}")
    return pair


def _chars(context: _Context, span: Span) -> CharSpan:
    """Characters of the tokens ``span``."""
    return context.content[span[0]][0], context.content[span[1] - 1][1]


def _messages(context: _Context, rendered: PromptText) -> list[dict[str, Any]]:
    """Role and token range of each message, up to where another begins; a token in two belongs to the first."""
    found, first = {}, 0
    for k, turn in sorted(enumerate(rendered.turns), key=lambda item: item[1].span):  # as they stand in the text
        (a, b), begun = turn.span, [other.span[0] for other in rendered.turns]
        start, stop = tokens_in(context.content, (a, min([b, *(at for at in begun if a < at < b)])), first)
        missing = {"left_out": turn.left_out} if turn.left_out else {}
        found[k], first = {"role": turn.role, "start": start, "stop": stop, **missing}, stop
    return [found[k] for k in sorted(found)]


def _marks(tokenizer: Any, context: _Context, segments: Segments, messages: Sequence[Mapping[str, Any]]) -> list[Span]:
    """Token ranges of the template's marks in T, in O and in earlier messages of the assistant, white space included.

    The user's own words are no marks, whatever they read like.
    """
    places = [(m["start"], m["stop"]) for m in messages if m["role"] == "assistant"]
    places += [segments.reasoning, segments.output]
    found = [tokens_in(context.content, mark.span()) for mark in template_marks(tokenizer).finditer(context.text)]
    return [span for span in found if any(max(a, span[0]) < min(b, span[1]) for a, b in places)]


def _words(context: _Context, sample: Sample, segment_chars: Mapping[Span, CharSpan]) -> dict[Span, CharSpan]:
    """Token range and characters of each run of words in I, T and O, see `Sample.words`."""
    runs = [(part, span) for span in segment_chars for part in sample.words(span)]
    return {part: segment_chars[span] if part == span else _chars(context, part) for part, span in runs}


def _some_tokens_in(content: list[CharSpan], span: CharSpan, first: int) -> Span:
    """Range of the tokens from ``first`` on that share a character with ``span``; ValueError where there is none."""
    start, stop = tokens_in(content, span, first)
    if start == stop:
        raise ValueError(f"no token lies in characters {span} alone: choose a longer passage")
    return start, stop


def _display_tokens(context: _Context) -> list[str]:
    """Text that each token adds to the text before it: joined together they are the whole text."""
    ends = accumulate((stop for _, stop in context.offsets), max, initial=0)
    return [context.text[start:stop] for start, stop in pairwise(ends)]
