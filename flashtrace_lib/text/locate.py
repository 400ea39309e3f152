"""Where reasoning, answer and sentences stand in a response, in characters (paper, section 3.1).

``build_sample`` turns these ranges into token ranges; nothing here knows a tokenizer.
"""

from __future__ import annotations

import re
from unicodedata import combining, normalize

from .offsets import CharSpan, strip_span

Locator = str | re.Pattern | tuple[int, int] | None
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_BOX = re.compile(r"\\(?:f?boxed|box)\s*\{")


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
    """The reasoning between the think tags, and where the answer after them begins.

    A template may open the thinking itself, so the closing tag alone is enough.

    Returns
    -------
    ((int, int), int) or None
        Stripped range of the reasoning (may be empty) and the end of the closing tag; None without tags.

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

    What is not found as it stands is looked for with each letter composed or decomposed (NFC, NFD).

    Parameters
    ----------
    name : {"input", "reasoning", "output"}
        The segment to find, for messages.

    Raises
    ------
    ValueError
        If nothing matches there (the message says whether something does elsewhere), the match is empty, or the
        pattern is one for bytes.
    """
    source = "prompt" if name == "input" else "response"
    if isinstance(locator, str):
        described, start = f"text {locator!r}", text.rfind(locator, *within) if locator else -1
        matches = [(start, start + len(locator))] if start >= 0 else []
    else:
        described = f"pattern {locator.pattern!r}"
        if isinstance(locator.pattern, bytes):
            raise ValueError(f"{name}: the {described} is one for bytes: compile it from a text")
        matches = _matches(locator, text, within)
    matches = matches or _in_either_form(text, locator, within)
    spans = [span for span in matches if span[0] < span[1]]
    if spans:
        return spans[-1]
    if matches:
        raise ValueError(f"{name}: the {described} matches, but no words: write one whose (first) group holds some")
    where = {"reasoning": ", or not before the output", "output": ", or not behind the reasoning"}.get(name, "")
    raise ValueError(f"{name}: the {described} does not occur in the {source} {_brief(text)!r}{where}")


def _in_either_form(text: str, locator: str | re.Pattern, within: CharSpan) -> list[CharSpan]:
    """Matches of a passage with each letter composed or decomposed; none that ends before an accent of its last."""
    words = isinstance(locator, str)
    source, flags = (re.escape(locator), 0) if words else (locator.pattern, locator.flags)
    if not source or (not words and "[" in source):
        return []  # two letters for one would say something else between brackets
    pairs = [(letter, normalize("NFD", letter)) for letter in normalize("NFC", source)]
    either = re.compile("".join(a if a == b else f"(?:{a}|{b})" for a, b in pairs), flags)
    return [span for span in _matches(either, text, within) if not _goes_on(text[span[1] : span[1] + 1])]


def _goes_on(letter: str) -> bool:
    """Whether a character belongs to the one before it: an accent, or the vowel or end of a Korean syllable."""
    return letter != "" and (combining(letter) > 0 or "\u1160" <= letter <= "\u11ff")


def parse_locator(text: str) -> Locator:
    """A passage as the command line and the records of a batch name it.

    ``none``, ``auto``, ``re:PATTERN``, ``tokens:START:STOP``, ``text:WORDS`` (the words as they are), or the words.

    Raises
    ------
    ValueError
        If a pattern or a range is malformed.
    """
    if text == "none":
        return None
    kind, colon, rest = text.partition(":")
    if colon and kind == "text":
        return rest
    if colon and kind == "re":
        try:
            return re.compile(rest)
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
    if colon and kind == "tokens":
        match = re.fullmatch(r"(\d+):(\d+)", rest)
        if not match:
            raise ValueError(f"{text!r} is no token range: write tokens:START:STOP")
        return int(match[1]), int(match[2])
    return text


def _matches(pattern: re.Pattern, text: str, within: CharSpan) -> list[CharSpan]:
    """Span of each match in ``text[within]``, or of its first group; an empty one where the group takes no part."""
    group = 1 if pattern.groups else 0
    matches = [match.span(group) for match in pattern.finditer(text, *within)]
    if matches:
        return matches
    start, stop = strip_span(text, within)  # ``^`` matches only at the beginning of a string, so cut the string there
    matches = [match.span(group) for match in pattern.finditer(text[start:stop])]
    return [(a + start, b + start) for a, b in matches]


def locate_segments(text: str, reasoning: Locator, output: Locator) -> tuple[CharSpan | None, CharSpan]:
    r"""Character ranges of T and O in the response ``text`` (without its end token).

    Parameters
    ----------
    text : str
        The response.
    reasoning, output : str, compiled pattern, (int, int) or None
        A substring, a pattern, a *character* range of ``text``, or ``"auto"``: T lies between the think tags (without
        tags: before O), O is the answer behind them; a response without tags that holds a ``\boxed{…}`` has the box
        as its output. ``reasoning=None`` means none.

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
    thinking = None if explicit else find_thinking(text)
    answer = _locate_output(text, output, thinking)
    if answer[0] == answer[1]:
        raise ValueError(f"the response {_brief(text)!r} holds no answer after its reasoning: nothing to explain")
    if reasoning is None:
        return None, answer
    if isinstance(reasoning, tuple):
        thought = reasoning
    elif reasoning == "auto":
        thought = thinking[0] if thinking else (0, answer[0])
    else:
        thought = find_passage(text, reasoning, "reasoning", (0, answer[0]))
    thought = strip_span(text, thought)
    return (thought if thought[0] < thought[1] else None), answer


def _locate_output(text: str, output: Locator, thinking: tuple[CharSpan, int] | None) -> CharSpan:
    """Characters of O; a range that the caller gave is taken as it is."""
    if isinstance(output, tuple):
        return output
    if output is None:
        raise ValueError("output is None: name the answer to explain, by text, pattern or token range, or say 'auto'")
    behind = (thinking[1] if thinking else 0, len(text))
    if output != "auto":
        return strip_span(text, find_passage(text, output, "output", behind))
    box = None if thinking else find_boxed(text)
    return strip_span(text, box or behind)


def _brief(text: str) -> str:
    return text if len(text) <= 80 else text[:40] + "…" + text[-40:]
