"""Where reasoning, answer and sentences stand in a response, in characters (paper, section 3.1).

``build_sample`` turns these ranges into token ranges; nothing here knows a tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from .offsets import CharSpan

Locator = str | re.Pattern | tuple[int, int] | None
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_BOX = re.compile(r"\\(?:f?boxed|box)\s*\{")
_WINDOW = 4000  # pysbd's cost grows with the square of the text, so long texts go through in windows


def strip_span(text: str, span: CharSpan) -> CharSpan:
    """``span`` without the white space at its ends; an empty span at ``start`` where nothing is left."""
    start, stop = span
    words = text[start:stop]
    if not words.strip():
        return start, start
    return start + len(words) - len(words.lstrip()), stop - len(words) + len(words.rstrip())


def find_boxed(text: str) -> CharSpan | None:
    r"""Range of the last complete ``\boxed{…}`` in ``text``, braces matched; None where there is none.

    A backslash escapes a brace, so ``\boxed{\{1, 2\}}`` is one box.
    """
    for match in reversed(list(_BOX.finditer(text))):
        depth, i = 1, match.end()
        while i < len(text) and depth:
            if text[i] == "\\":
                i += 1
            else:
                depth += {"{": 1, "}": -1}.get(text[i], 0)
            i += 1
        if not depth:
            return match.start(), i
    return None


def find_thinking(text: str) -> tuple[CharSpan, int] | None:
    """What stands between the thinking marks, and where the answer after them begins.

    A template may open the thinking itself, so the closing mark alone is enough.

    Returns
    -------
    ((int, int), int) or None
        Stripped range of the reasoning (may be empty) and the end of the closing mark; None without marks.

    Raises
    ------
    ValueError
        If the thinking is opened and never closed: the response has no answer.
    """
    opened, closed = text.find(THINK_OPEN), text.rfind(THINK_CLOSE)
    if closed < 0:
        if opened >= 0:
            raise ValueError(
                f"the response opens {THINK_OPEN} and never closes it, so it holds no answer: "
                "let the model generate more tokens, or give the token ranges of reasoning and output"
            )
        return None
    start = opened + len(THINK_OPEN) if 0 <= opened < closed else 0
    return strip_span(text, (start, closed)), closed + len(THINK_CLOSE)


def find_passage(text: str, locator: str | re.Pattern, name: str, within: CharSpan) -> CharSpan:
    """Last place in ``text[within]`` that a substring or a compiled pattern (its first group, if any) matches.

    Raises
    ------
    ValueError
        If nothing matches there (the message says whether something does elsewhere), what matches is empty, or the
        pattern is one for bytes.
    """
    if isinstance(locator, str):
        shown = f"text {locator!r}"
        at = text.rfind(locator, *within) if locator else -1
        found = [(at, at + len(locator))] if at >= 0 else []
        elsewhere = bool(locator) and locator in text
    else:
        shown = f"pattern {locator.pattern!r}"
        if isinstance(locator.pattern, bytes):
            raise ValueError(f"{name}: the {shown} is one for bytes: compile it from a text")
        found = _matches(locator, text, within)
        elsewhere = locator.search(text) is not None
    spans = [span for span in found if span[0] < span[1]]
    if spans:
        return spans[-1]
    if found:
        what = "its first group takes no part in the match, or is empty" if locator.groups else "only nothing at all"
        raise ValueError(f"{name}: the {shown} matches, but {what}: write one that holds words of the response")
    if elsewhere:
        where = {"reasoning": "before the output", "output": "behind the reasoning"}[name]
        raise ValueError(f"{name}: the {shown} occurs in the response, but not {where}, where it is looked for")
    raise ValueError(f"{name}: the {shown} does not occur in the response {_brief(text)!r}")


def _matches(pattern: re.Pattern, text: str, within: CharSpan) -> list[CharSpan]:
    """Place of each match in ``text[within]``, or of its first group; an empty one where the group takes no part."""
    group = 1 if pattern.groups else 0
    found = [match.span(group) for match in pattern.finditer(text, *within)]
    if found:
        return found
    start, stop = strip_span(text, within)  # to `re`, only the beginning of a whole text is one, for ``^``
    return [(a + start, b + start) for a, b in (match.span(group) for match in pattern.finditer(text[start:stop]))]


def locate_segments(text: str, reasoning: Locator, output: Locator) -> tuple[CharSpan | None, CharSpan]:
    r"""Character ranges of T and O in the response ``text`` (without its end token).

    Parameters
    ----------
    text : str
        The response.
    reasoning, output : str, compiled pattern, (int, int) or None
        A substring, a pattern, a *character* range of ``text``, or ``"auto"``: T is what stands between the
        thinking marks (without marks: what stands before O), O the answer behind them; a response without marks
        that holds a ``\boxed{…}`` has the box as its output. ``reasoning=None`` means none.

    Returns
    -------
    ((int, int) or None, (int, int))
        T (None where there is none) and O, both without the white space at their ends.

    Raises
    ------
    ValueError
        If a passage is not found, the thinking is never closed, or the answer is empty.
    """
    explicit = reasoning != "auto" and output != "auto"
    marks = None if explicit else find_thinking(text)
    answer = (marks[1] if marks else 0, len(text))
    if isinstance(output, tuple):
        out = output
    elif output == "auto":
        out = answer if marks else find_boxed(text) or answer
    elif output is None:
        raise ValueError("output is None: name the answer to explain, by text, pattern or token range, or say 'auto'")
    else:
        out = find_passage(text, output, "output", answer)
    out = out if isinstance(output, tuple) else strip_span(text, out)
    if out[0] == out[1]:
        raise ValueError(f"the response {_brief(text)!r} holds no answer after its reasoning: nothing to explain")
    if reasoning is None:
        return None, out
    if isinstance(reasoning, tuple):
        thought = reasoning
    elif reasoning == "auto":
        thought = marks[0] if marks else (0, out[0])
    else:
        thought = find_passage(text, reasoning, "reasoning", (0, out[0]))
    thought = strip_span(text, thought)
    return (thought if thought[0] < thought[1] else None), out


def sentence_spans(text: str) -> list[CharSpan]:
    """Sentences of ``text`` as character ranges that tile it (white space goes with the sentence before it)."""
    starts, at = [0], 0
    while at < len(text):
        window = text[at : at + _WINDOW]
        found = [at + start for start in _sentence_starts(window)]
        last = at + len(window) >= len(text)
        # The window may cut its last sentence, so the next window starts there, unless it is all there is.
        ahead = len(text) if last else (found[-1] if found and found[-1] > at else at + len(window))
        for start in [*found, ahead]:
            if start < len(text) and text[starts[-1] : start].strip():
                starts.append(start)
        at = ahead
    return list(zip(starts, [*starts[1:], len(text)], strict=True)) if text else []


def _sentence_starts(text: str) -> Iterable[int]:
    """Where each sentence begins; sorted, so that a slip of the segmenter cannot break the tiling."""
    return sorted({span.start for span in _segmenter().segment(text)})


@lru_cache(maxsize=1)
def _segmenter():
    import pysbd  # imported late: only sentence granularity and sentence-wise baselines need it

    return pysbd.Segmenter(language="en", clean=False, char_span=True)


def _brief(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit // 2] + "…" + text[-limit // 2 :]
