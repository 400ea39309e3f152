"""Where reasoning, answer and sentences stand in a response, in characters (paper, section 3.1).

``build_sample`` turns these ranges into token ranges; nothing here knows a tokenizer.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from unicodedata import combining, normalize

from ..sample import outside
from .formats import MARKS
from .labels import WHOLE, labelled_answer
from .offsets import CharSpan, strip_span
from .reading import Reading, Token, read_reply

Locator = str | re.Pattern | tuple[int, int] | tuple[str | re.Pattern, int] | None
_PLAIN = "The response marks no reasoning: all of it is taken for the answer O. reasoning= and output= name others."


def find_passage(text: str, locator: Locator, name: str, within: CharSpan) -> CharSpan:
    """Last place in ``text[within]`` that a substring or a pattern (its first group, if any) matches, stripped.

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
    locator, number = locator if isinstance(locator, (tuple, list)) else (locator, None)
    if isinstance(locator, str):
        described, pattern = f"text {locator!r}", re.compile(f"(?=({re.escape(locator)}))")  # places may overlap
    else:
        described, pattern = f"pattern {locator.pattern!r}", locator
    if isinstance(pattern.pattern, bytes):
        raise ValueError(f"{name}: the {described} is one for bytes: compile it from a text")
    matches = _matches(pattern, text, within) or _in_either_form(text, pattern, within)
    spans = [span for span in (strip_span(text, match) for match in matches) if span[0] < span[1]]
    number = len(spans) if number is None else number
    if number in range(1, len(spans) + 1):
        return spans[number - 1]
    if spans:
        why = f"has no occurrence {number!r}: it occurs {len(spans)} times, counted from 1"
    elif matches:
        why = "matches, but no words: write one whose (first) group holds some"
    else:
        source, where = ("prompt" if name == "input" else "response"), " before the output" * (name == "reasoning")
        why = f"does not occur in the {source} {_brief(text[slice(*within)])!r}{where}"
    raise ValueError(f"{name}: the {described} {why}")


def _in_either_form(text: str, pattern: re.Pattern, within: CharSpan) -> list[CharSpan]:
    """Matches of a passage with each letter composed or decomposed; none that ends before an accent of its last."""
    if "[" in re.sub(r"(?s)\\.", "", pattern.pattern):
        return []  # two letters for one would say something else between brackets
    pairs = [(letter, normalize("NFD", letter)) for letter in normalize("NFC", pattern.pattern)]
    either = re.compile("".join(a if a == b else f"(?:{a}|{b})" for a, b in pairs), pattern.flags)
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
    named = re.fullmatch(r"(?s)(text|re|tokens):(.*)", text)
    kind, rest = named.groups() if named else ("text", text)
    if kind == "text":
        return rest
    if kind == "re":
        try:
            return re.compile(rest)
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
    if not (match := re.fullmatch(r"(\d+):(\d+)", rest)):
        raise ValueError(f"{text!r} is no token range: write tokens:START:STOP")
    return int(match[1]), int(match[2])


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
            answer = strip_span(text, (_named(text, reasoning, "reasoning", answer)[1], answer[1]))
    if not answer or answer[0] == answer[1]:
        raise ValueError(_NEVER_CLOSED.format(reading.format) if reading.unfinished else _EMPTY.format(_brief(text)))
    if reasoning != "auto":
        thought = reasoning and _named(text, reasoning, "reasoning", (0, answer[0]))
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


def _named(text: str, locator: Locator, name: str, within: CharSpan) -> CharSpan:
    """Characters of a passage that the caller named."""
    given = isinstance(locator, (tuple, list)) and isinstance(locator[0], int)
    return locator if given else find_passage(text, locator, name, within)


def _named_output(text: str, output: Locator, reading: Reading) -> CharSpan:
    """Characters of an output that the caller named: behind the reasoning, else in the first turn, else anywhere."""
    begin = reading.output[0] if reading.output and reading.reasoning else 0
    for within in ((begin, reading.stop), (0, reading.stop)):
        with suppress(ValueError):
            return _named(text, output, "output", within)
    return _named(text, output, "output", (0, len(text)))


def _brief(text: str) -> str:
    return text if len(text) <= 80 else text[:40] + "…" + text[-40:]
