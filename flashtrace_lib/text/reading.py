"""A reply read by the table of formats: where its reasoning and its answer stand, and what its marks leave open.

Positions are characters of the reply; a mark that stands in the prompt has negative ones.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..sample import outside
from .formats import ALL_MARKS, ANSWERS, FORMATS, Format
from .offsets import CharSpan, strip_span

_LONE = "A mark closes reasoning that neither the prompt nor the reply opens: all that stands before it is taken for T."
_UNCLOSED = "The answer's mark ({}) is never closed: all behind it is taken for the answer O, which may be cut off."
_CUT = "The reply ends within a mark, {!r}, which is left out of the answer O."
_IN_SENTENCE = re.compile(r"[\w,] +\Z")  # before a mark: its sentence speaks of the mark, unless words follow at once
_QUOTES = {("'", "'"), ("‘", "’"), ("“", "”"), ("«", "»"), ("„", "“")}
# Special tokens that begin or end a turn, beside the tokenizer's own end token.
_TURN = re.compile(
    r"(?i)turn|im_(?:start|end|sep)|eo[tmsd]\b|end.?of.?(?:text|sentence)|header|\binst\b|role"
    r"|<\|?(?:start|end|return|call|user|assistant|system|human|bot|observation)\|?>"
)


class Token(NamedTuple):
    """Characters of a token that the tokenizer has of its own, such as an end token."""

    start: int
    stop: int
    special: bool = True
    turn: bool = False  # whether it begins or ends a turn


class Mark(NamedTuple):
    """A mark of a format that counts: that the reply uses, and does not just speak of."""

    kind: str  # "open", "close", "answer", "end" or "other"
    start: int
    stop: int


@dataclass(frozen=True)
class Reading:
    """Where T and O stand in a reply, in its characters, and how that was found.

    Parameters
    ----------
    format : str
        Name of the format (`formats`); empty where there are no marks. `locate_segments` has names for these too.
    reasoning, output : (int, int) or None
        Characters of T and O, white space and special tokens at their ends left out; None where there are none.
    words : tuple of (int, int)
        All that is neither a mark nor blank.
    marks : tuple of Mark
        The marks that count.
    unfinished : bool
        Whether the reasoning is opened and never closed, and there is no answer.
    stop : int
        Where the first turn ends: at its end token, or with the words of the reply.
    behind : (int, int) or None
        What stands behind the first turn.
    cautions : tuple of str
        What could not be decided.
    """

    format: str
    reasoning: CharSpan | None
    output: CharSpan | None
    words: tuple[CharSpan, ...]
    marks: tuple[Mark, ...]
    unfinished: bool
    stop: int
    behind: CharSpan | None = None
    cautions: tuple[str, ...] = ()


@dataclass
class _Walk:
    """The marks of one format that count in a text, and the blocks that they make."""

    row: Format
    marks: list[Mark] = field(default_factory=list)
    blocks: list[CharSpan] = field(default_factory=list)
    opened: Mark | None = None
    lone: bool = False  # whether the first mark closes what nothing opened


def read_reply(reply: str, before: str = "", tokens: Sequence[Token] = ()) -> Reading:
    """Read a reply by the table of formats.

    Parameters
    ----------
    reply : str
    before : str
        What the prompt has behind the user's words: a template may open the reasoning, or open and close it.
    tokens : sequence of Token
        The tokenizer's own tokens in ``reply`` (from 0) and in ``before`` (below 0). Where some marks of a kind are
        such tokens, others that are only spelled like them are words.
    """
    walks = [walk for walk in (_walk(row, reply, before, tokens) for row in FORMATS) if walk.marks]
    # one that the prompt closes comes last; of two that begin with the same mark, the one whose block ends first
    order = lambda w: (w.lone, not w.opened and w.marks[-1].start < 0, w.marks[0].start, bool(w.opened))  # noqa: E731
    walk = min(walks, key=order, default=_Walk(Format("", {})))
    marks, size = walk.marks, (_words(reply, (0, len(reply)), tokens) or (0, 0))[1]
    tail = [(max(walk.opened.stop, 0), size)] if walk.opened else []
    inside = [*([] if walk.lone else walk.blocks), *tail, *(mark[1:] for mark in marks)]
    for token in tokens:
        ends = token.turn and not any(a <= token.start < b for a, b in inside)
        if ends and _words(reply, (0, token.start), tokens):
            behind = _words(reply, (token.stop, size), tokens)
            turn = read_reply(reply[: token.start], before, [t for t in tokens if t.stop <= token.start])
            return replace(turn, stop=token.start, behind=behind)
    known = [*walk.blocks, *tail, *(mark[1:] for mark in marks)]
    words, answer = _pieces(reply, (0, size), known, tokens), _marked_answer(reply, walk, tokens)
    name, thought, notes = walk.row.name, None, [_LONE] if walk.lone else []
    if words and not answer:
        answer = words[-1]
        # the whole gap: where marks of an answer are special tokens, `words` has lost them
        gap = next((a, b) for a, b in outside((0, len(reply)), known) if a <= answer[0] < b)
        inner = [_walk(row, reply[: gap[1]], "", tokens, gap[0]) for row in ANSWERS]
        tagged = min((w for w in inner if w.marks), key=lambda w: w.marks[0].start, default=None)
        if tagged:
            words = words[:-1] + _pieces(reply, gap, [mark[1:] for mark in tagged.marks], tokens)
            thought = None if name else _words(reply, (gap[0], tagged.marks[0].start), tokens)
            name, answer = ", ".join(filter(None, (name, tagged.row.name))), _marked_answer(reply, tagged, tokens)
            marks = [*marks, *tagged.marks]
            notes += [_UNCLOSED.format(tagged.row.name)] if tagged.marks[-1].kind == "answer" else []
    least = 1 if "end" in walk.row.marks and marks[-1].kind != "end" else 2  # the end of the answer is still to come
    cut = _cut_mark(reply[: answer[1]], least) if answer and not reply[answer[1] : size].strip() else 0
    if cut:
        notes.append(_CUT.format(reply[answer[1] - cut : answer[1]]))
        answer = _words(reply, (answer[0], max(answer[0], answer[1] - cut)), tokens)
    blocks = [_words(reply, block, tokens) for block in (*walk.blocks, *([] if answer else tail))]
    for block in reversed([block for block in blocks if block and (not answer or block[1] <= answer[0])]):
        if thought and any(block[1] <= a and b <= thought[0] for a, b in words):
            break
        thought = (block[0], thought[1] if thought else block[1])
    words = tuple(sorted([*words, *filter(None, blocks), *tail]))
    return Reading(name, thought, answer, words, tuple(marks), bool(tail) and not answer, size, None, tuple(notes))


def special_ids(tokenizer: Any) -> set[int]:
    """Ids of special tokens, named or added as such (Gemma-3 and Phi-3 do not name their end of a turn)."""
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return {*tokenizer.all_special_ids, *added} - {tokenizer.unk_token_id}


def own_tokens(tokenizer: Any, ids: Sequence[int], spans: Sequence[CharSpan]) -> list[Token]:
    """Those of the tokens ``ids``, at the characters ``spans``, that are no words; an unknown one is a word."""
    own, special = tokenizer.added_tokens_decoder, special_ids(tokenizer)
    turns = {i: i == tokenizer.eos_token_id or bool(_TURN.search(tokenizer.convert_ids_to_tokens(i))) for i in special}
    kept = ((i, span) for i, span in zip(ids, spans, strict=True) if i in own or i in special)
    return [Token(*span, i in special, turns.get(i, False)) for i, span in kept]


def _pieces(reply: str, span: CharSpan, known: Iterable[CharSpan], tokens: Sequence[Token]) -> list[CharSpan]:
    """The words of ``span`` that stand outside ``known``."""
    return [words for words in (_words(reply, piece, tokens) for piece in outside(span, known)) if words]


def _words(reply: str, span: CharSpan, tokens: Sequence[Token]) -> CharSpan | None:
    """``span`` without white space and special tokens at its ends; None where nothing is left."""
    special = [token for token in tokens if token.special]
    firsts, lasts = {t.start: t.stop for t in special}, {t.stop: t.start for t in special}
    start, stop = strip_span(reply, span)
    while start < stop and (firsts.get(start, stop + 1) <= stop or lasts.get(stop, start - 1) >= start):
        inner = (firsts[start], stop) if firsts.get(start, stop + 1) <= stop else (start, lasts[stop])
        start, stop = strip_span(reply, inner)
    return (start, stop) if start < stop else None


def _marked_answer(reply: str, walk: _Walk, tokens: Sequence[Token]) -> CharSpan | None:
    """Words behind the last mark of an answer that has some; None without such a mark."""
    stops = [*(max(mark.start, 0) for mark in walk.marks[1:]), len(reply)]
    spans = [(max(m.stop, 0), stop) for m, stop in zip(walk.marks, stops, strict=False) if m.kind == "answer"]
    return next((found for found in (_words(reply, span, tokens) for span in reversed(spans)) if found), None)


def _cut_mark(text: str, least: int) -> int:
    """How many characters of a mark, ``least`` or "<th", stand at the end of a text that breaks off within it."""
    text, marks = text.lower(), [mark.lower().replace("…", "") for mark in ALL_MARKS]
    starts = (mark[:n] for mark in marks for n in range(least + (least > 1) * mark[1].isalpha(), len(mark)))
    starts = (start for start in starts if not start[0].isalpha() or "=" in start)  # else an ordinary word
    return max((len(start) for start in starts if text.endswith(start)), default=0)


def _walk(row: Format, reply: str, before: str, tokens: Sequence[Token], lowest: int | None = None) -> _Walk:
    """Walk through the marks of a format: which of them count, and what they enclose."""
    text, shift, own = before + reply, len(before), {token.start for token in tokens}
    found = [Mark(m.lastgroup, m.start() - shift, m.end() - shift) for m in row.pattern.finditer(text)]
    as_tokens = {mark.kind for mark in found if mark.start in own}
    walk, since, spoken_of = _Walk(row), lowest or 0, False
    for mark in found:
        kind, start = mark.kind, mark.start
        if (lowest is not None and start < lowest) or (kind in as_tokens and start not in own):
            continue
        visible = text[since + shift : max(start, since) + shift]
        if walk.opened:
            if kind == "open" and not text[walk.opened.stop + shift : start + shift].strip():
                walk.opened = mark
            elif kind in ("close", "answer", "other"):
                walk.blocks.append((max(walk.opened.stop, 0), max(start, 0)))
                walk.opened = None
            else:
                continue
        elif start >= 0 and _quoted(visible, text[mark.stop + shift :]):
            spoken_of = True
            continue
        elif kind == "open":
            late = row.at_start and (walk.marks or visible.strip())
            if late or (start >= 0 and _IN_SENTENCE.search(visible) and not text[mark.stop + shift :][:1].isalnum()):
                spoken_of = True
                continue
            walk.opened = mark
        elif kind == "close" and not (walk.marks and {*row.marks["close"]} & {*row.marks.get("end", ())}):
            if walk.marks or spoken_of or not row.alone:
                continue
            walk.blocks.append((0, max(start, 0)))
            walk.lone = start >= 0
        elif kind in ("close", "end") and not walk.marks:
            continue
        walk.marks.append(mark)
        since = max(mark.stop, 0)
    return walk


def _quoted(visible: str, behind: str) -> bool:
    """Whether a mark between these two stands in code or in quotation marks."""
    before, after = visible.rpartition("\n")[2], behind.partition("\n")[0]
    around = any(before.count(sign) % 2 and sign in after for sign in '`"')
    return visible.count("```") % 2 == 1 or around or (before[-1:], after[:1]) in _QUOTES
