"""How replies mark their reasoning and their answer: the table of formats; `reading` reads a reply by it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Format:
    """One way to mark reasoning and answer.

    Marks are found in upper and lower case and with blanks between their parts; "…" in one stands for a few words.

    Parameters
    ----------
    name : str
        What a reader is told.
    marks : dict of str to tuple of str
        By their kind: ``open`` and ``close``, what begins and ends a block of reasoning; ``answer`` and ``end``, the
        answer; ``other``, marks before words that a reader sees and that are not the answer.
    alone : bool
        Whether a closing mark counts that nothing opens: a template may have opened it.
    at_start : bool
        Whether a block is opened at the start of the reply alone, as by marks that are ordinary words.
    """

    name: str
    marks: Mapping[str, tuple[str, ...]]
    alone: bool = True
    at_start: bool = False

    @cached_property
    def pattern(self) -> re.Pattern:
        """All marks, each in the group of its kind."""
        groups = (f"(?P<{kind}>{_any_of(marks)})" for kind, marks in self.marks.items())
        return re.compile("|".join(groups), re.IGNORECASE)


_FEW = r"[^\n<>]{0,80}?(?:<\|constrain\|>[^\n<>]{0,20}?)?"  # as in a channel's header: to=functions.search


def _any_of(marks: Iterable[str]) -> str:
    """Regular expression of some marks."""
    parts = (re.findall(r"…|\w+|[^\w\s]", mark) for mark in marks)
    return "|".join(r"[^\S\n]*".join(_FEW if p == "…" else re.escape(p) for p in mark) for mark in parts)


def _pairs(*pairs: tuple[str, str]) -> tuple[Format, ...]:
    return tuple(Format(f"{opened}…{closed}", {"open": (opened,), "close": (closed,)}) for opened, closed in pairs)


_THOUGHTS = (
    "think", "thinking", "thought", "thoughts", "reasoning", "reason", "analysis", "scratchpad", "seed:think",
    "mm:think", "longcat_think", "ifm|think", "ifm|think_fast", "ifm|think_faster", "think:…",
)  # fmt: skip
_ANSWERS = ("answer", "final_answer", "response", "solution", "output")
_TURN = "<|start|>assistant"  # before the header of each channel but the first
FORMATS = (
    *_pairs(*((f"<{word}>", f"</{word}>") for word in _THOUGHTS)),
    *_pairs(*((f"<|{word}|>", f"<|/{word}|>") for word in _THOUGHTS[:4])),
    *_pairs(("◁think▷", "◁/think▷"), ("[THINK]", "[/THINK]"), ("<|inner_prefix|>", "<|inner_suffix|>")),
    *_pairs(("<|channel>thought", "<channel|>"), ("<unused94>thought", "<unused95>"), ("[unused16]", "[unused17]")),
    *_pairs(("<|think:start|>", "<|think:end|>"), ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")),
    Format("<|begin_of_thought|>…<|end_of_thought|>", {
        "open": ("<|begin_of_thought|>",), "close": ("<|end_of_thought|>",),
        "answer": ("<|begin_of_solution|>",), "end": ("<|end_of_solution|>",)}),
    Format("<|START_THINKING|>…<|END_THINKING|>", {
        "open": ("<|START_THINKING|>",), "close": ("<|END_THINKING|>",),
        "answer": ("<|START_RESPONSE|>", "<|START_TEXT|>"), "end": ("<|END_RESPONSE|>", "<|END_TEXT|>")}),
    Format("channels (analysis, final)", {
        "open": (f"{_TURN}<|channel|>analysis…<|message|>", "<|channel|>analysis…<|message|>"), "close": ("<|end|>",),
        "answer": (f"{_TURN}<|channel|>final…<|message|>", "<|channel|>final…<|message|>"),
        "end": ("<|end|>", "<|return|>", "<|call|>"),
        "other": (f"{_TURN}…<|channel|>commentary…<|message|>", "<|channel|>commentary…<|message|>")}, alone=False),
    Format("channels (self, user)", {
        "open": ("to=self<|message|>", f"{_TURN} to=self<|message|>"), "close": ("<|eom|>",),
        "answer": ("to=user<|message|>", f"{_TURN} to=user<|message|>"), "end": ("<|eot|>", "<|eom|>")}, alone=False),
    Format("<|open|>think<|sep|>…<|close|>think<|sep|>", {
        "open": ("<|open|>think<|sep|>",), "close": ("<|close|>think<|sep|>",), "answer": ("<|open|>response<|sep|>",),
        "end": ("<|close|>response<|sep|>", "<|close|>message<|sep|>")}),
    Format("<|think|>…<|content|>", {
        "open": ("<|think|>",), "close": ("<|end|>",), "answer": ("<|begin|>assistant<|content|>", "<|content|>"),
        "end": ("<|end|>",)}, alone=False),
    Format("Here is my thought process: … Here is my response:", {
        "open": ("Here is my thought process:", "Here's my thought process:", "Here’s my thought process:"),
        "close": ("Here is my response:", "Here's my response:", "Here’s my response:")}, alone=False, at_start=True),
    Format("Here are my reasoning steps: … [BEGIN FINAL RESPONSE]", {
        "open": ("Here are my reasoning steps:",), "close": ("[BEGIN FINAL RESPONSE]",),
        "end": ("[END FINAL RESPONSE]",)}, at_start=True),
)  # fmt: skip
# The answer alone: the reasoning stands before it, in marks of its own or in none.
ANSWERS = tuple(
    Format(f"{opened}…{closed}", {"answer": (opened,), "end": (closed,)})
    for opened, closed in (*((f"<{w}>", f"</{w}>") for w in _ANSWERS), ("<|begin_of_box|>", "<|end_of_box|>"))
)
ALL_MARKS = [mark for row in (*FORMATS, *ANSWERS) for marks in row.marks.values() for mark in marks]
MARKS = re.compile(_any_of(ALL_MARKS), re.IGNORECASE)
