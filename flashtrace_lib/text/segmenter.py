"""Sentences of any text: prose by its stops, hard-wrapped or not; lists, tables, code and logs line by line."""

import re
from functools import lru_cache
from itertools import groupby

from .offsets import CharSpan

_WINDOW = 4000  # pysbd's cost grows with the square of the text, so long texts go through in windows
_CLOSERS = "\"'”’»›」』】）〉》)\\]"
# Stops that pysbd does not know with English, before a mark of bold or behind a number, say. An ellipsis needs a blank.
_STOPS = re.compile(
    rf"(?:[。！？｡।॥۔؟።։။។]+[{_CLOSERS}]*|…[{_CLOSERS}]*(?=\s)|[.!?]+(?:[»›]|[*_`~]+)(?=\s)"
    rf"|(?<=\d)\.(?=\s+[A-Z])|[.!?][{_CLOSERS}]*(?=\s+[«„‹¿¡]))\s*"
)
ENDS_SENTENCE = re.compile(rf"[.!?。！？｡।॥۔؟։።။។…][{_CLOSERS}]*\s*$")
# Where no sentence begins: in "<!--", behind a title, at a number that something equals or is; in "т.е.", a URL or
# code, at what closes a quotation, a tag or bold, and at hiragana or comma behind a quotation (Japanese: who said it).
_NO_END = re.compile(
    r"<!$|\b(?:e\.g|i\.e|cf|vs|Drs?|Mrs?|Ms|Profs?|St|Gen|Col|Lt|Sen|Rep|Rev|Hon)\.\s+$"
    r"|(?:=|\b(?:is|are|was|were|ha[sd]|have|by|of|to))\s+$"
)
_GOES_ON = re.compile(
    r"(?<=\w\.)\w|[”’»›」』】）〉》)\]]|</|(?<=[」』”])\s*[\u3041-\u309f、，]"
    r"|(?<=[!?])(?!\[\d+\])[!-@\[-~](?<![\"'])|(?<=[.!?])[*_`~]+(?=\s|$)"
)
_NUMBER = re.compile(r"\s*[(\[]?(?:(?:\d+\.)+\d*[.)]?|(?:\d+|[A-Za-z]|[ivxIVX]+)[.)\]])[^\S\n]*")  # 1. 1.1. (a) IV.
_MARKER = re.compile(r"\s*(?:[-*•·–—+>#|]|\[\w+\]|\(?(?:\d+(?:\.\d+)*|[A-Za-z]|[ivx]+)[.)])\s|[\w-]+:(?:\s|$)")
_NOT_PROSE = re.compile(r"[{}=_<>|\\`\t]|\S {3,}\S|^\s*\"[^\"]*\"\s*(?::|,?\s*$)|^\W*\d+[-/:]\d+[-/:]\d")
_RECORD = re.compile(r"\s*(?:\d|[A-Z]{3})")  # two lines that both begin so are a log's or a list's
_GOES_ON_BELOW = re.compile(r"\b(?:an?|and|as|at|by|for|from|in|is|of|on|or|that|the|to|was|were|with)\s*$")
_MARGINS = range(25, 161)  # characters of a line that a margin may have ended


def sentence_spans(text: str) -> list[CharSpan]:
    """Sentences of ``text`` as character ranges that tile it (white space goes with the sentence before it).

    A line ends a sentence, except within hard-wrapped prose, which is read as if it were not wrapped.
    """
    joined = _unwrapped(text)
    starts, position = [0], 0
    while position < len(text):
        window = joined[position : position + _WINDOW]
        end, in_window = position + len(window), [position + start for start in _sentence_starts(window)]
        if end < len(text) and in_window and in_window[-1] > position:
            end = in_window[-1]  # the window may cut its last sentence, so the next window starts there
        for start in [*in_window, end]:
            if start < len(text) and text[starts[-1] : start].strip() and _begins(joined, starts[-1], start):
                starts.append(start)
        position = end
    return list(zip(starts, [*starts[1:], len(text)], strict=True)) if text else []


def _sentence_starts(text: str) -> list[int]:
    """Where sentences may begin; sorted, so that a slip of the segmenter cannot break the tiling."""
    stops = {stop.end() for stop in _STOPS.finditer(text) if not text[stop.end() : stop.end() + 1].islower()}
    return sorted(stops | {span.start for span in _segmenter().segment(text)})


def _begins(text: str, last: int, start: int) -> bool:
    """Whether a sentence begins at ``start``, where the one before it began at ``last``."""
    before = text[max(last, start - 12) : start]
    if "\n" in before[len(before.rstrip()) :]:
        return True
    return not (_NO_END.search(before) or _GOES_ON.match(text, start) or _NUMBER.fullmatch(text, last, start))


def _unwrapped(text: str) -> str:
    """``text`` with a space for each line end that only keeps prose within a margin."""
    ends, lines = [match.span() for match in re.finditer(r"\r?\n", text)], re.split(r"\r?\n", text)
    margins: list[int] = []  # the longest line of each line's paragraph
    for _, paragraph in groupby(lines, key=lambda line: bool(line.strip())):
        lengths = [len(line.rstrip()) for line in paragraph]
        margins += [max(lengths)] * len(lengths)
    wraps = [_may_wrap(*pair) for pair in zip(lines, lines[1:], margins, strict=False)]
    for wrapped, run in groupby(range(len(wraps)), key=wraps.__getitem__):
        run = list(run)
        # Lines that all begin with capitals may be sentences without stops.
        if wrapped and any(_GOES_ON_BELOW.search(lines[i]) or not lines[i + 1].lstrip()[0].isupper() for i in run):
            for start, stop in (ends[i] for i in run):
                text = text[:start] + " " * (stop - start) + text[stop:]
    return text


def _may_wrap(line: str, following: str, margin: int) -> bool:
    """Whether prose may go on from a line to the next: its first word would not have fitted within the margin."""
    words, further, length = line.split(), following.split(), len(line.rstrip())
    if length not in _MARGINS or not further or words[0] == further[0] or (line.isascii() and len(words) < 4):
        return False
    if _MARKER.match(following) or any(map(_NOT_PROSE.search, (line, following))):
        return False
    if all(map(_RECORD.match, (line, following))) or words[-1][-1] == ":" and length == margin:
        return False
    return length + 1 + len(further[0]) > (0.8 if further[0][0].islower() else 1) * margin


@lru_cache(maxsize=1)
def _segmenter():
    import pysbd  # imported late: only sentence granularity and sentence-wise baselines need it

    return pysbd.Segmenter(language="en", clean=False, char_span=True)
