"""Where reasoning, answer and sentences stand in a response, in characters (paper, section 3.1).

``build_sample`` turns these ranges into token ranges; nothing here knows a tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from unicodedata import combining, normalize

from .formats import MARKS
from .labels import WHOLE, labelled_answer
from .offsets import CharSpan, strip_span
from .reading import Reading, Token, outside, read_reply

Locator = str | re.Pattern | tuple[int, int] | tuple[str | re.Pattern, int] | None
_PLAIN = "The response marks no reasoning: all of it is taken for the answer O. reasoning= and output= name others."


def find_passage(text: str, locator: Locator, name: str, within: CharSpan) -> CharSpan:
    """Last place in ``text[within]`` that a substring or a compiled pattern (its first group, if any) matches.

    What is not found as it stands is looked for with each letter composed or decomposed (NFC, NFD).

    Parameters
    ----------
    locator : str, compiled pattern, or (either, int)
        With a number n: the nth place, from 1, instead of the last.
    name : {"input", "reasoning", "output"}
        The segment to find, for messages.

    Raises
    ------
    ValueError
        If nothing matches there (the message says whether something does elsewhere), the match is empty, there are
        fewer than n, or the pattern is one for bytes.
    """
    source = "prompt" if name == "input" else "response"
    locator, number = locator if isinstance(locator, tuple) else (locator, None)
    if number is not None and not isinstance(number, int):
        raise ValueError(f"{name}: {number!r} is no number of a place in the {source}: give (words, n), from 1")
    if isinstance(locator, str):
        described, pattern = f"text {locator!r}", re.compile(f"(?=({re.escape(locator)}))")
        matches = [match.span(1) for match in pattern.finditer(text, *within)] if locator else []
    else:
        described = f"pattern {locator.pattern!r}"
        if isinstance(locator.pattern, bytes):
            raise ValueError(f"{name}: the {described} is one for bytes: compile it from a text")
        matches = _matches(locator, text, within)
    matches = matches or _in_either_form(text, locator, within)
    spans = [span for span in matches if span[0] < span[1]]
    if spans and number is None:
        return spans[-1]
    if spans and 1 <= number <= len(spans):
        return spans[number - 1]
    if spans:
        raise ValueError(f"{name}: there is no occurrence {number} of the {described}: it occurs {len(spans)} times")
    if matches:
        raise ValueError(f"{name}: the {described} matches, but no words: write one whose (first) group holds some")
    where = ", or not before the output" if name == "reasoning" else ""
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


def locate_segments(
    text: str, reasoning: Locator, output: Locator, before: str = "", tokens: Sequence[Token] = ()
) -> Reading:
    r"""Character ranges of T and O in the response ``text``, both without the white space at their ends.

    Parameters
    ----------
    text : str
        The response.
    reasoning, output : str, compiled pattern, (str or pattern, int), (int, int) or None
        A substring or pattern (the last place, or the nth), a *character* range of ``text``, or ``"auto"``: what the
        marks of the table `formats` say. Without any of them O is the last ``\boxed{…}``, or what stands behind the
        last "Answer:", "Final answer" or "####" up to the end of its paragraph and before a note or a sign-off, and T
        what stands before; else O is all of it. ``reasoning=None`` means none. An output that is named goes before all
        marks: T is then the reasoning before it.
    before, tokens
        As in `read_reply`.

    Returns
    -------
    Reading
        Its output is never None. Beside the names of formats its format may be a box, a label, "plain text" or "as
        given"; its cautions say what is neither T nor O.

    Raises
    ------
    ValueError
        If a passage is not found, the reasoning is never closed, or the answer is empty.
    """
    reading = read_reply(text, before, tokens)
    form, thought, answer, label = reading.format, reading.reasoning, reading.output, None
    if output != "auto":
        form, answer = "as given", _named_output(text, output, reading)
        thought = thought if reading.format else (reading.output[0] if reading.output else 0, answer[0])
    elif answer and not form:
        first = answer[0]
        form, label, answer = labelled_answer(text, answer)
        thought = (first, label[0])
        if form == WHOLE and reasoning not in ("auto", None):
            thought = reasoning if _is_range(reasoning) else find_passage(text, reasoning, "reasoning", answer)
            answer = strip_span(text, (thought[1], answer[1]))
    if not answer or answer[0] == answer[1]:
        raise ValueError(_NEVER_CLOSED.format(reading.format) if reading.unfinished else _EMPTY.format(_brief(text)))
    if _is_range(reasoning):
        thought = reasoning
    elif reasoning != "auto":
        thought = reasoning and find_passage(text, reasoning, "reasoning", (0, answer[0]))
    elif thought:
        thought = thought[0], min(thought[1], answer[0])
    thought = thought and strip_span(text, thought)
    thought = thought if thought and thought[0] < thought[1] else None
    cautions = []
    if reasoning == output == "auto":
        spans = {"reasoning T": thought, "answer O": answer, "label": label}
        cautions = [*reading.cautions, *([_PLAIN] if form == WHOLE else []), *_told(text, reading, spans)]
    if reading.behind:
        cautions.append(_BEHIND.format(_brief(text[slice(*reading.behind)])))
    return replace(reading, format=form, reasoning=thought, output=answer, cautions=tuple(cautions))


_NEVER_CLOSED = (
    "the response opens its reasoning ({}) and never closes it, so it holds no answer: let the model generate more "
    "tokens (max_new_tokens, --max-new-tokens), or name the passage to explain (output=, --output)"
)
_EMPTY = "the response {!r} holds no answer after its reasoning: nothing to explain"
_BEHIND = "The response goes on behind the end of its first turn, {!r}: that part is left out."
_LEFT = "Words of the response are neither reasoning T nor answer O, and count as context: {}."
_AS_WORDS = "The {} holds {!r}, which is taken for words and not for a mark."


def _told(text: str, reading: Reading, spans: dict[str, CharSpan | None]) -> list[str]:
    """Cautions on words outside T and O, and on marks inside them."""
    known = [span for span in spans.values() if span]
    left = [text[slice(*piece)].strip() for words in reading.words for piece in outside(words, known)]
    left = [repr(_brief(piece)) for piece in left if re.search(r"\w", piece)]
    notes = [_LEFT.format(", ".join(left[:3]) + (", …" if len(left) > 3 else ""))] if left else []
    for name, span in spans.items():
        mark = span and MARKS.search(text, *span)
        notes += [_AS_WORDS.format(name, mark[0])] if mark else []
    return notes


def _is_range(locator: Locator) -> bool:
    return isinstance(locator, tuple) and isinstance(locator[0], int)


def _named_output(text: str, output: Locator, reading: Reading) -> CharSpan:
    """Characters of an output that the caller named: behind the reasoning, else in the first turn, else anywhere."""
    if output is None:
        raise ValueError("output is None: name the answer to explain, by text, pattern or token range, or say 'auto'")
    if _is_range(output):
        return output
    begin = reading.output[0] if reading.output and reading.reasoning else 0
    for within in ((begin, reading.stop), (0, reading.stop)):
        with suppress(ValueError):
            return strip_span(text, find_passage(text, output, "output", within))
    return strip_span(text, find_passage(text, output, "output", (0, len(text))))


def _brief(text: str) -> str:
    return text if len(text) <= 80 else text[:40] + "…" + text[-40:]
