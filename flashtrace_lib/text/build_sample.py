"""Text to Sample: chat template, exact token-to-text offsets, segments, gold evidence, sentences.

Every position is found by character offsets of the very ids the model reads; ids are never searched for, and
generated ids are never replaced by others that happen to read the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..sample import Sample, Segments, Span
from .chat_template import Messages, PromptText, render_prompt
from .locate import Locator, locate_segments, strip_span
from .offsets import CharSpan, _decode, char_spans_to_token_mask, decode_with_offsets, tokenise
from .sentences import sentence_ranges


def build_sample(
    tokenizer: Any,
    prompt: str | Messages,
    response: str | Sequence[int] | torch.Tensor,
    *,
    reasoning: Locator = "auto",
    output: Locator = "auto",
    evidence: Sequence[CharSpan] = (),
    question: int | None = None,
    system: str | None = None,
    template: bool = True,
    request: str = "",
    answer_prefix: str = "",
    template_kwargs: Mapping[str, Any] | None = None,
    end_token: bool = True,
    whole: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> Sample:
    r"""Sample of a prompt and a response, with every position found by character offsets.

    I is the user's own text, T what stands between the thinking marks, O the answer; template, marks, special
    and end tokens are context (section 3.1). A token belongs to a segment when a character of it that is not
    white space does.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        A fast tokenizer.
    prompt : str or list of messages
        The user's words, or a conversation that ends with them.
    response : str, or token ids
        What the model said. Ids are kept one by one as they are; a text is tokenised together with the prompt.
    reasoning, output : str, compiled pattern, (int, int) or None
        A substring of the response, a pattern, a token range of the whole context, or ``"auto"``
        (`locate_segments`). ``reasoning=None`` means none.
    evidence : sequence of (int, int)
        Character ranges of the prompt that hold the ground truth (appendix F.1). Without any, no gold mask.
    question : int, optional
        Character of the prompt at which it begins to ask; ``metadata["question_start"]`` is then the token there.
    system, template, request, answer_prefix, template_kwargs
        See `render_prompt`.
    end_token : bool
        Put the tokenizer's end token behind a response given as text.
    whole : bool
        Every message of a conversation is input: I runs from the first to the last, and ``metadata["messages"]``
        says which of its tokens are whose (the others are the template's).
    metadata : mapping, optional
        Goes into the sample's metadata.

    Returns
    -------
    Sample
        With gold, response span (end token included), display tokens, sentences and mask token.

    Raises
    ------
    ValueError
        If the response is empty, does not survive its own tokenizer, or a passage is not found in it.
    """
    rendered = render_prompt(
        tokenizer,
        prompt,
        system=system,
        template=template,
        request=request,
        answer_prefix=answer_prefix,
        template_kwargs=template_kwargs,
        whole=whole,
    )
    if isinstance(response, str):
        text, ids, offsets, n_prompt = _encode_text(tokenizer, rendered.text, response, end_token)
    else:
        text, ids, offsets, n_prompt = _encode_ids(tokenizer, rendered.text, response)
    cores = [_core(text, span) for span in offsets]
    segments, ranges = _segments(tokenizer, text, ids, cores, rendered, n_prompt, reasoning, output)
    shift = rendered.span[0] - rendered.trimmed  # from the prompt as it was given to the text as the model reads it
    told = {"messages": _messages(cores, rendered)} if whole else {}
    if question is not None:
        told["question_start"] = _tokens_in(cores, (question + shift, rendered.span[1]), segments.prompt[0])[0]
    gold = None
    if len(evidence):
        gold = char_spans_to_token_mask(cores, [(a + shift, b + shift) for a, b in evidence], text)
        gold[: segments.prompt[0]] = False  # a template token that shares a character with the evidence
        gold[segments.prompt[1] :] = False
    return Sample(
        input_ids=torch.tensor(ids, dtype=torch.long),
        segments=segments,
        gold=gold,
        response=(n_prompt, len(ids)),
        tokens=_display(text, offsets),
        sentences=sentence_ranges(text, cores, ranges),
        mask_token_id=tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        metadata={**told, **(metadata or {})},
    )


def _encode_text(
    tokenizer: Any, prompt: str, response: str, end_token: bool
) -> tuple[str, list[int], list[CharSpan], int]:
    """Text, ids, offsets and the position of the first response token of prompt + response, tokenised together."""
    text = prompt + response
    ids, offsets = tokenise(tokenizer, text)
    if not _decode(tokenizer, ids).endswith(response.lstrip()) or not response.strip():
        what = "is lost in tokenisation (decoding its ids gives another text)" if response.strip() else "is empty"
        raise ValueError(f"the response {what}: give a response that this tokenizer can represent, or its token ids")
    # A token that holds the last blank of the prompt and the first letter of the response is the response's.
    n_prompt = next(i for i, span in enumerate(offsets) if strip_span(text, span)[1] > len(prompt))
    if end_token and tokenizer.eos_token_id is not None and ids[-1] != tokenizer.eos_token_id:
        ids.append(tokenizer.eos_token_id)
        offsets.append((len(text), len(text) + len(tokenizer.eos_token)))
        text += tokenizer.eos_token
    return text, ids, offsets, n_prompt


def _encode_ids(
    tokenizer: Any, prompt: str, response: Sequence[int] | torch.Tensor
) -> tuple[str, list[int], list[CharSpan], int]:
    """The same for a response given as ids, which stay as they are."""
    response = [int(i) for i in response]
    if not response:
        raise ValueError("the response is empty: there is nothing to explain")
    ids, offsets = tokenise(tokenizer, prompt)
    said, ranges = decode_with_offsets(tokenizer, response, before=ids)
    offsets += [(a + len(prompt), b + len(prompt)) for a, b in ranges]
    return prompt + said, ids + response, offsets, len(ids)


def _segments(
    tokenizer: Any,
    text: str,
    ids: list[int],
    cores: list[CharSpan],
    rendered: PromptText,
    n_prompt: int,
    reasoning: Locator,
    output: Locator,
) -> tuple[Segments, dict[Span, CharSpan]]:
    """Token ranges of I, T and O, and the characters of each that is not empty."""
    end = len(ids)
    while end > n_prompt and ids[end - 1] in tokenizer.all_special_ids:
        end -= 1  # end tokens are context
    start = min(len(rendered.text), cores[n_prompt][0])
    said = text[start : cores[end - 1][1]] if end > n_prompt else ""

    def explicit(locator: Locator, name: str) -> Span | None:
        """The locator as a token range of the response, if it is one."""
        if locator is None or isinstance(locator, str) or hasattr(locator, "finditer"):
            return None
        try:
            first, stop = (int(i) for i in ("" if isinstance(locator, bytes) else locator))
        except (TypeError, ValueError) as error:
            kinds = "a text, a compiled pattern, a token range (start, stop), 'auto' or None"
            raise ValueError(f"{name} must be {kinds}, got {locator!r}") from error
        if not n_prompt <= first <= stop <= len(ids):
            raise ValueError(
                f"{name} ({first}, {stop}) is not a token range of the response, which is ({n_prompt}, {len(ids)})"
            )
        return first, stop

    given = {"reasoning": explicit(reasoning, "reasoning"), "output": explicit(output, "output")}
    as_chars = {k: (cores[v[0]][0] - start, cores[v[1] - 1][1] - start) for k, v in given.items() if v and v[0] < v[1]}
    if given["reasoning"] and "reasoning" not in as_chars:
        reasoning = None  # an empty range
    if given["output"] and "output" not in as_chars:
        raise ValueError(f"output {given['output']} is empty: give the token range of the answer to explain")
    thought, answer = locate_segments(said, as_chars.get("reasoning", reasoning), as_chars.get("output", output))
    chars = {"prompt": rendered.span, "output": (answer[0] + start, answer[1] + start)}
    if thought:
        chars["reasoning"] = (thought[0] + start, thought[1] + start)
    spans: dict[str, Span] = {}
    at = 0  # a token that lies in two segments belongs to the first
    for name in sorted(chars, key=lambda name: chars[name]):
        # a token that crosses into the response, such as "?<", is the response's
        reachable = cores[:n_prompt] if name == "prompt" else cores
        spans[name] = given.get(name) or _tokens_in(reachable, chars[name], at)
        at = spans[name][1]
    spans.setdefault("reasoning", (spans["output"][0],) * 2)
    return Segments(**spans), {spans[name]: chars[name] for name in chars}


def _messages(cores: list[CharSpan], rendered: PromptText) -> list[dict[str, Any]]:
    """Role and token range of each message; a token that lies in two belongs to the first."""
    out, at = [], 0
    for turn in rendered.turns:
        start, stop = _tokens_of(cores, turn.span, at)
        out.append({"role": turn.role, "start": start, "stop": stop})
        at = stop
    return out


def _core(text: str, span: CharSpan) -> CharSpan:
    """Where a token counts as standing: its characters that are not white space, or its first one."""
    start, stop = strip_span(text, span)
    return (start, stop) if start < stop else (span[0], min(span[0] + 1, span[1]))


def _tokens_in(cores: list[CharSpan], span: CharSpan, first: int) -> Span:
    """Range of the tokens from ``first`` on that share a character with ``span``; ValueError where there is none."""
    start, stop = _tokens_of(cores, span, first)
    if start == stop:
        raise ValueError(f"no token lies in characters {span} alone: choose a longer passage")
    return start, stop


def _tokens_of(cores: list[CharSpan], span: CharSpan, first: int) -> Span:
    """Range of the tokens from ``first`` on that share a character with ``span``; empty where there is none."""
    inside = [i for i in range(first, len(cores)) if cores[i][0] < span[1] and cores[i][1] > span[0]]
    return (inside[0], inside[-1] + 1) if inside else (first, first)


def _display(text: str, offsets: list[CharSpan]) -> list[str]:
    """What each token adds to the text read so far: joined together they are ``text``."""
    shown, out = 0, []
    for _, stop in offsets:
        out.append(text[shown:stop])
        shown = max(shown, stop)
    return out
