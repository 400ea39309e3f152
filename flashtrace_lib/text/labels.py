"""Answers that words mark and no tags: a box, or a label such as "Final answer:"."""

import re

from .offsets import CharSpan, strip_span

WHOLE, _BOX = "plain text", re.compile(r"\\(?:f?boxed|box)\s*\{")
_BRACE = re.compile(r"(?s)\\.|[{}]")
# At the start of a line or of a sentence: "Answer:", "**Final answer** 42", "So the final answer is 42", "#### 42". In
# other languages only with a colon.
_LABEL = re.compile(
    r"(?:^[ \t>#-]*|(?<=[.!?][ \t])|(?<=。))([*_]{0,3})(?:(?:so|thus|hence|therefore),? |(?:所以|因此)[，,]?)?"
    r"(?:the |my )?(?:(?:(?:final )?answer(?: is)?|(?:(?:die|la|le|il|a|o) )?(?:antwort|réponse|respuesta|resposta|"
    r"risposta|ответ|答え|正解|(?:最[终終]的?)?答案|정답|답)(?: finale?)?(?: ist| est| es| é| è|是|は|은)?)(?:\1)?"
    r"[ \t\xa0\u202f]*[:\uff1a]|final answer(?: is\b|(?:\1)?[ \t]*\r?$|[ \t]*[-–—=](?=[ \t])|(?=[ \t]+[\d$\\])))"
    r"[ \t]*(?:\1)?[ \t]*|^[ \t]*(?P<hashes>####)[ \t]*(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_SIGN_OFF = re.compile(
    r"(?:^[ \t*_>(#-]*|(?<=[.!?][ \t]))(?:note\b|n\.b\.|p\.?s\.|please (?:note|let)|let me know|feel free|"
    r"(?:i )?hope (?:this|that|it)|if you (?:have|need|would|want)|is there anything|"
    r"(?:best|kind|warm) (?:regards|wishes)|sincerely|cheers|thank(?:s| you)\b|happy to|disclaimer|good luck|"
    r"have a (?:great|nice|good|lovely))",
    re.IGNORECASE | re.MULTILINE,
)


def find_boxed(text: str) -> CharSpan | None:
    r"""Range of the last complete ``\boxed{…}`` in ``text``, braces matched; None where there is none.

    A backslash escapes a brace, so ``\boxed{\{1, 2\}}`` is one box.
    """
    for match in reversed(list(_BOX.finditer(text))):
        depth = 1
        for brace in _BRACE.finditer(text, match.end()):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                return match.start(), brace.end()
    return None


def labelled_answer(text: str, span: CharSpan) -> tuple[str, CharSpan, CharSpan]:
    r"""The last ``\boxed{…}``, or what stands behind the last label, where no box follows it.

    The answer behind a label is its paragraph; where the label has a line of its own, all that follows. Notes and
    sign-offs are no part of it, and a line with "####" that more text follows is a heading.

    Returns
    -------
    (str, (int, int), (int, int))
        How the answer is marked, and the characters of the mark (none of a box) and of the answer. Without either the
        answer is all of ``span``.
    """
    words, shift = text[slice(*span)], span[0]
    box = find_boxed(words)
    for label in reversed(list(_LABEL.finditer(words, box[1] if box else 0))):
        start, stop = _behind_label(words, label)
        if start < stop:
            return "a label before the answer", (label.start() + shift, start + shift), (start + shift, stop + shift)
    if box:
        return "\\boxed{…}", (box[0] + shift,) * 2, (box[0] + shift, box[1] + shift)
    return WHOLE, (shift, shift), span


def _behind_label(words: str, label: re.Match) -> CharSpan:
    """Characters of the answer that a label marks; empty where there is none."""
    start, line = strip_span(words, (label.end(), len(words)))[0], words[label.end() :].partition("\n")[0]
    rest = strip_span(words, (label.end() + len(line), len(words)))[0]
    if label["hashes"] and words[rest:].strip() and not _SIGN_OFF.match(words, rest):
        return start, start  # a heading
    paragraph = re.compile(r"\n[^\S\n]*\n").search(words, start)
    own_line = not line.strip() or line.rstrip().endswith(":")
    stop = paragraph.start() if paragraph and not own_line else len(words)
    sign_off = _SIGN_OFF.search(words, start + 1, stop)
    found = words[start : sign_off.start() if sign_off else stop].rstrip()
    return start, start + len(found.rstrip("*_ ") if label[1] and label[0].count(label[1]) % 2 else found)
