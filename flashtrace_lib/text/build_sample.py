"""Text to Sample: chat template, exact token-to-text offsets, segments, gold evidence, sentences.

Every position follows from the character offsets of the very ids that the model reads. Ids are never searched for, and
generated ids are never replaced by others that happen to read the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..sample import Sample, Segments, Span, words_in
from .chat_template import Messages, PromptText, render_prompt
from .formats import MARKS
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
from .reading import Reading, Token, token_kinds
from .sentences import question_in, sentence_ranges, template_marks


def build_sample(
    tokenizer: Any,
    prompt: str | Messages,
    response: str | Sequence[int] | torch.Tensor,
    *,
    input: Locator = "auto",
    reasoning: Locator = "auto",
    output: Locator = "auto",
    evidence: Sequence[CharSpan] = (),
    places: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **rendering: Any,
) -> Sample:
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
        ``metadata["question_start"]`` (default: where `sentences.asking_from` finds it). ``haystack``: the characters
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
    encode = _encode_text if isinstance(response, str) else _encode_ids
    context = encode(tokenizer, rendered.text, response)
    explained = _input_chars(context, rendered, input)
    context, found, ranges, start = _located(tokenizer, context, rendered, reasoning, output)
    segments, segment_chars, split = _segments(context, found, start, explained, ranges)
    if rendered.trimmed is None and (evidence or places):
        raise ValueError("the chat template rewrites the last message, so places in it cannot be found: leave them out")
    shift = rendered.span[0] - (rendered.trimmed or 0)  # from a character of ``prompt`` to the same one of the context
    first, places = segments.prompt[0], places or {}
    located: dict[str, Any] = {"format": found.format}
    if found.cautions or split:
        located["cautions"] = [*found.cautions, *split]
    if rendered.turns:
        located["messages"] = _messages(context, rendered)
    if marks := _marks(tokenizer, context, segments, located.get("messages", ())):
        located["marks"] = marks
    words = _words(context, segments, segment_chars, located)
    display, sentences = _display_tokens(context), sentence_ranges(context.text, context.content, words)
    if places.get("question") is None:
        located["question_start"] = question_in(display, sentences, segments.prompt)
    else:
        asking = (places["question"] + shift, rendered.span[1])
        located["question_start"] = _some_tokens_in(context.content, asking, first)[0]
    if places.get("haystack") is not None:
        start, stop = places["haystack"]
        located["haystack_span"] = _some_tokens_in(context.content, (start + shift, stop + shift), first)
    shifted = [(start + shift, stop + shift) for start, stop in evidence]
    return Sample(
        input_ids=torch.tensor(context.ids, dtype=torch.long),
        segments=segments,
        gold=_gold(context, shifted, segments.prompt) if shifted else None,
        response=(context.n_prompt, len(context.ids)),
        tokens=display,
        sentences=sentences,
        mask_token_id=tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        metadata={**located, **(metadata or {})},
    )


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
    kept = _composed(decode(tokenizer, ids)).endswith(_composed(response.lstrip()))  # some tokenizers compose accents
    if not kept or not response.strip():
        what = "is lost in tokenisation (decoding its ids gives another text)" if response.strip() else "is empty"
        raise ValueError(f"the response {what}: give a response that this tokenizer can represent, or its token ids")
    # A token that holds the last blank of the prompt and the first letter of the response is the response's.
    n_prompt = next(i for i, span in enumerate(offsets) if strip_span(text, span)[1] > len(prompt))
    if tokenizer.eos_token_id is not None and ids[-1] != tokenizer.eos_token_id:
        ids.append(tokenizer.eos_token_id)
        offsets.append((len(text), len(text) + len(tokenizer.eos_token)))
        text += tokenizer.eos_token
    return _Context(text, ids, offsets, n_prompt)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _encode_ids(tokenizer: Any, prompt: str, response: Sequence[int] | torch.Tensor) -> _Context:
    """The tokenised prompt, and the ids of the response as they are."""
    response_ids = checked_ids(response)
    if not response_ids:
        raise ValueError("the response is empty: there is nothing to explain")
    ids, offsets = tokenise(tokenizer, prompt)
    response_text, ranges = decode_with_offsets(tokenizer, response_ids, before=ids)
    offsets += [(start + len(prompt), stop + len(prompt)) for start, stop in ranges]
    return _Context(prompt + response_text, ids + response_ids, offsets, len(ids))


def _located(
    tokenizer: Any, context: _Context, rendered: PromptText, reasoning: Locator, output: Locator
) -> tuple[_Context, Reading, dict[str, Span | None], int]:
    """The context up to the end of the response's first turn; T and O in the response, and where that begins."""
    places = {"reasoning": reasoning, "output": output}
    ranges = {name: _token_range(context, locator, name) for name, locator in places.items()}
    if ranges["output"] and ranges["output"][0] == ranges["output"][1]:
        raise ValueError(f"output {ranges['output']} is empty: give the token range of the answer to explain")
    start, response = _response_text(tokenizer, context, len(rendered.text))
    places |= {name: _in_response(context, span, start) for name, span in ranges.items() if span}
    tail = rendered.text[rendered.span[1] : start]
    own = [
        Token(a - start, b - start, *kind)
        for (a, b), kind in zip(context.content, token_kinds(tokenizer, context.ids), strict=True)
        if kind and a >= start - len(tail)
    ]
    found = locate_segments(response, places["reasoning"], places["output"], tail, own)
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
    given = locator[0] if isinstance(locator, tuple) and locator else locator
    if isinstance(given, str) or hasattr(given, "finditer"):
        words = context.text[slice(*rendered.span)]
        found = strip_span(words, find_passage(words, locator, "input", (0, len(words))))
        return found[0] + rendered.span[0], found[1] + rendered.span[0]
    first, last = tokens_in(context.content[: context.n_prompt], rendered.span, 0)
    if not isinstance(locator, tuple) or len(locator) != 2 or not first <= locator[0] < locator[1] <= last:
        raise ValueError(f"input {locator!r} is no passage, and no token range of the prompt, which is {(first, last)}")
    return context.content[locator[0]][0], context.content[locator[1] - 1][1]


def _token_range(context: _Context, locator: Locator, name: str) -> Span | None:
    """The locator as a token range of the response, None where it is a text, a pattern or None."""
    words = locator[0] if isinstance(locator, tuple) and len(locator) == 2 else locator
    if locator is None or isinstance(words, str) or hasattr(words, "finditer"):
        return None
    try:
        start, stop = (int(i) for i in ("" if isinstance(locator, bytes) else locator))
    except (TypeError, ValueError) as error:
        kinds = "a text, a compiled pattern, a token range (start, stop), 'auto' or None"
        raise ValueError(f"{name} must be {kinds}, got {locator!r}") from error
    if not context.n_prompt <= start <= stop <= len(context.ids):
        bounds = (context.n_prompt, len(context.ids))
        raise ValueError(f"{name} ({start}, {stop}) is not a token range of the response, which is {bounds}")
    return start, stop


def _in_response(context: _Context, span: Span, response_start: int) -> CharSpan | None:
    """Characters of a token range, counted from the start of the response; None where the range is empty."""
    first, stop = span
    if first == stop:
        return None
    return context.content[first][0] - response_start, context.content[stop - 1][1] - response_start


def _response_text(tokenizer: Any, context: _Context, prompt_length: int) -> tuple[int, str]:
    """Character at which the response begins, and its text without the end tokens, which are context."""
    stop, special = len(context.ids), {*tokenizer.all_special_ids}
    while stop > context.n_prompt and context.ids[stop - 1] in special:
        mark = MARKS.fullmatch(context.text[slice(*context.content[stop - 1])])
        if mark and context.ids[stop - 1] != tokenizer.eos_token_id:
            break
        stop -= 1
    start = min(prompt_length, context.content[context.n_prompt][0])
    return start, context.text[start : context.content[stop - 1][1]] if stop > context.n_prompt else ""


def _messages(context: _Context, rendered: PromptText) -> list[dict[str, Any]]:
    """Role and token range of each message; a token that lies in two belongs to the first."""
    messages, first = [], 0
    for turn in rendered.turns:
        start, stop = tokens_in(context.content, turn.span, first)
        missing = {"left_out": turn.left_out} if turn.left_out else {}
        messages.append({"role": turn.role, "start": start, "stop": stop, **missing})
        first = stop
    return messages


def _marks(
    tokenizer: Any, context: _Context, segments: Segments, messages: Sequence[Mapping[str, Any]]
) -> list[Span]:
    """Token ranges of the template's marks in T, in O and in earlier messages of the assistant, white space included.

    The user's own words are no marks, whatever they read like.
    """
    places = [(m["start"], m["stop"]) for m in messages if m["role"] == "assistant"]
    places += [segments.reasoning, segments.output]
    found = [tokens_in(context.content, mark.span()) for mark in template_marks(tokenizer).finditer(context.text)]
    return [span for span in found if any(max(a, span[0]) < min(b, span[1]) for a, b in places)]


def _words(
    context: _Context, segments: Segments, segment_chars: Mapping[Span, CharSpan], located: Mapping[str, Any]
) -> dict[Span, CharSpan]:
    """Token range and characters of each run of words in I, T and O, see `Sample.words`."""
    words = {}
    for span, chars in segment_chars.items():
        messages = located.get("messages") if span == segments.prompt else None
        for part in words_in(span, messages, located.get("marks", ())):
            first, stop = part
            words[part] = chars if part == span else (context.content[first][0], context.content[stop - 1][1])
    return words


def _gold(context: _Context, evidence: list[CharSpan], prompt: Span) -> torch.Tensor:
    """Mask [N] of the tokens of I that hold evidence."""
    gold = char_spans_to_token_mask(context.content, evidence, context.text)
    gold[: prompt[0]] = False  # a template token that shares a character with the evidence
    gold[prompt[1] :] = False
    return gold


def _some_tokens_in(content: list[CharSpan], span: CharSpan, first: int) -> Span:
    """Range of the tokens from ``first`` on that share a character with ``span``; ValueError where there is none."""
    start, stop = tokens_in(content, span, first)
    if start == stop:
        raise ValueError(f"no token lies in characters {span} alone: choose a longer passage")
    return start, stop


def _display_tokens(context: _Context) -> list[str]:
    """Text that each token adds to the text before it: joined together they are the whole text."""
    tokens, end = [], 0
    for _, stop in context.offsets:
        tokens.append(context.text[end:stop])
        end = max(end, stop)
    return tokens
