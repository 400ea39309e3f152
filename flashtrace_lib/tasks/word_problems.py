"""Word problems in integer arithmetic, in the schema of GSM8K: every text our own, every answer computed."""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass
from typing import Any

from .splits import draw_in_split, fill, pick, wording
from .wordlists import FIRST_NAMES, THINGS

_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
_LARGEST = 400  # results stay where a small model can compute them


@dataclass(frozen=True)
class Kind:
    """One problem, in several wordings.

    Parameters
    ----------
    name : str
        Identifier.
    ranges : dict of str to (int, int)
        Smallest and largest value of each number the text gives.
    steps : tuple of (str, str, str, str, str, str)
        Calculations in order: result, left, operation, right, words before and after the calculation.
    wordings : tuple of tuple of str
        Sentences; the last of each asks. The last wording is held out for evaluation.
    """

    name: str
    ranges: dict[str, tuple[int, int]]
    steps: tuple[tuple[str, str, str, str, str, str], ...]
    wordings: tuple[tuple[str, ...], ...]


KINDS: tuple[Kind, ...] = (
    Kind("gather", {"a": (5, 60), "b": (5, 39)}, (("c", "a", "+", "b", "<who> has", "<things>."),), (
        ("<who> found <a> <things> in the morning.", "In the afternoon <who> found <b> more.",
         "How many <things> did <who> find that day?"),
        ("There are <a> <things> in one box and <b> <things> in another.",
         "<who> empties both boxes onto a table.", "How many <things> lie on the table?"),
        ("<who> owns <a> <things>.", "A friend hands over another <b> <things>.",
         "How many <things> does <who> own now?"),
    )),
    Kind("give_away", {"a": (25, 90), "b": (4, 24)}, (("c", "a", "-", "b", "<who> keeps", "<things>."),), (
        ("<who> had <a> <things>.", "Then <who> gave <b> of them to a neighbour.",
         "How many <things> are left?"),
        ("A shelf held <a> <things>.", "<who> took <b> of the <things> away.",
         "How many <things> stayed on the shelf?"),
        ("<who> packed <a> <things> for a trip.", "On the way <b> of the <things> were lost.",
         "How many <things> did <who> bring home?"),
    )),
    Kind("packs", {"a": (2, 12), "b": (3, 12)}, (("c", "a", "*", "b", "<who> has", "<things>."),), (
        ("<who> buys <a> packs.", "Each pack holds <b> <things>.", "How many <things> does <who> buy?"),
        ("There are <a> rows with <b> <things> in each row.", "<who> counts all of them.",
         "How many <things> does <who> count?"),
        ("<who> fills <a> bags.", "Every bag takes <b> <things>.", "How many <things> are in the bags together?"),
    )),
    Kind("share", {"a": (12, 96), "b": (2, 9)}, (("c", "a", "/", "b", "Each one gets", "<things>."),), (
        ("<who> has <a> <things>.", "They are shared equally among <b> children.",
         "How many <things> does each child get?"),
        ("<a> <things> are laid out on <b> plates.", "<who> puts the same number on every plate.",
         "How many <things> are on one plate?"),
        ("<who> splits <a> <things> into <b> equal heaps.", "How many <things> are in a heap?"),
    )),
    Kind("gather_then_give", {"a": (10, 50), "b": (5, 40), "c": (4, 30)},
         (("d", "a", "+", "b", "First <who> has", "<things>."), ("e", "d", "-", "c", "Then <who> has", "<things>.")), (
        ("<who> starts the day with <a> <things>.", "At noon <who> gets <b> more.",
         "In the evening <who> sells <c> of them.", "How many <things> does <who> have at night?"),
        ("A shop had <a> <things>.", "A van delivered <b> more <things>.", "<who> then bought <c> of them.",
         "How many <things> are left in the shop?"),
        ("<who> collected <a> <things> last year and <b> this year.", "Since then <c> <things> were thrown out.",
         "How many <things> does <who> still have?"),
    )),
    Kind("packs_plus", {"a": (2, 9), "b": (3, 12), "c": (2, 30)},
         (("d", "a", "*", "b", "The packs hold", "<things>."), ("e", "d", "+", "c", "Altogether there are", "<things>.")
          ), (
        ("<who> buys <a> packs of <b> <things>.", "At home <who> already has <c> <things>.",
         "How many <things> does <who> have altogether?"),
        ("On a table stand <a> bowls with <b> <things> each.", "<c> more <things> lie beside them.",
         "How many <things> are on the table?"),
        ("<who> carries <a> baskets, and each basket holds <b> <things>.", "Another <c> <things> are in the car.",
         "How many <things> are there in total?"),
    )),
    Kind("change", {"a": (2, 8), "b": (2, 9), "c": (20, 99)},
         (("d", "a", "*", "b", "The <things> cost", "coins."), ("e", "c", "-", "d", "<who> keeps", "coins.")), (
        ("<who> buys <a> <things> for <b> coins each.", "<who> pays with a purse of <c> coins.",
         "How many coins are left in the purse?"),
        ("One of the <things> costs <b> coins.", "<who> has <c> coins and takes <a> of the <things>.",
         "How many coins does <who> keep?"),
        ("At a market <who> spends <b> coins on each of <a> <things>.", "<who> came with <c> coins.",
         "How many coins does <who> take home?"),
    )),
    Kind("sell_rest", {"a": (12, 40), "b": (3, 11), "c": (2, 6)},
         (("d", "a", "-", "b", "<who> sells", "<things>."), ("e", "d", "*", "c", "That brings", "coins.")), (
        ("<who> makes <a> <things> a day and keeps <b> of them.", "The rest are sold for <c> coins each.",
         "How many coins does <who> earn a day?"),
        ("Of <a> <things>, <b> are broken.", "<who> sells every other one for <c> coins.",
         "How many coins does <who> receive?"),
        ("<who> brings <a> <things> to a fair, and <b> of the <things> stay unsold.",
         "Each sold one brings <c> coins.", "How many coins does <who> make?"),
    )),
    Kind("times_as_many", {"a": (3, 25), "k": (2, 6)},
         (("b", "a", "*", "k", "The other has", "<things>."), ("c", "a", "+", "b", "Together they have", "<things>."),
          ), (
        ("<who> has <a> <things>.", "<other> has <k> times as many <things>.",
         "How many <things> do they have together?"),
        ("<other> owns <k> times as many <things> as <who>.", "<who> owns <a> <things>.",
         "How many <things> do the two own in all?"),
        ("<who> saw <a> <things>, and <other> saw <k> times that number.",
         "How many <things> did they see between them?"),
    )),
    Kind("share_after", {"a": (5, 50), "b": (5, 40), "c": (2, 8)},
         (("d", "a", "+", "b", "Together there are", "<things>."), ("e", "d", "/", "c", "Each one gets", "<things>."),
          ), (
        ("<who> has <a> <things> and <other> has <b>.", "They put them together and share them among <c> friends.",
         "How many <things> does each friend get?"),
        ("<a> <things> and then <b> more <things> are unloaded.", "<who> divides them equally over <c> rooms.",
         "How many <things> come into each room?"),
        ("After picking <a> <things>, <who> picks <b> more.", "All of them go into <c> equal boxes.",
         "How many <things> are in a box?"),
    )),
    Kind("compare_packs", {"a": (4, 12), "b": (4, 12), "c": (2, 8), "d": (2, 8)},
         (("e", "a", "*", "b", "<who> has", "<things>."), ("f", "c", "*", "d", "<other> has", "<things>."),
          ("g", "e", "-", "f", "<who> has", "more.")), (
        ("<who> has <a> bags with <b> <things> each.", "<other> has <c> bags with <d> <things> each.",
         "How many more <things> does <who> have than <other>?"),
        ("<who> plants <a> rows of <b> <things>.", "<other> plants <c> rows of <d> <things>.",
         "By how many <things> does <who> lead?"),
        ("In <a> hours <who> makes <b> <things> an hour.", "In <c> hours <other> makes <d> <things> an hour.",
         "How many <things> does <who> make beyond what <other> makes?"),
    )),
    Kind("saving", {"a": (20, 99), "b": (5, 60), "c": (2, 9)},
         (("d", "a", "-", "b", "<who> still needs", "coins."), ("e", "d", "/", "c", "That takes", "weeks.")), (
        ("<who> wants a lamp for <a> coins and has <b> coins.", "<who> saves <c> coins a week.",
         "How many weeks does it take?"),
        ("A ticket costs <a> coins.", "<who> owns <b> coins and earns <c> coins every week.",
         "After how many weeks can <who> buy the ticket?"),
        ("<who> has put aside <b> of the <a> coins for a tent.", "Each week adds <c> coins.",
         "How many weeks are left until <who> can pay?"),
    )),
    Kind("reading", {"a": (60, 99), "b": (4, 12), "c": (3, 7)},
         (("d", "b", "*", "c", "<who> has read", "pages."), ("e", "a", "-", "d", "There remain", "pages.")), (
        ("A book has <a> pages.", "<who> reads <b> pages a day for <c> days.", "How many pages remain?"),
        ("<who> reads <b> pages every evening.", "The story is <a> pages long.",
         "How many pages are unread after <c> evenings?"),
        ("Of a script of <a> pages <who> learns <b> pages a day.", "<c> days have passed.",
         "How many pages does <who> still have to learn?"),
    )),
)  # fmt: skip

_ASIDES = (
    "<who> likes rainy days.", "The weather was mild.", "A dog slept under the table.", "<other> was singing.",
    "The radio played an old song.", "It was the first week of spring.",
)  # fmt: skip


def word_problem(rng: random.Random, split: str) -> dict[str, Any]:
    """One record in GSM8K's schema.

    Returns
    -------
    dict
        ``question``, ``answer`` (lines with ``<<a+b=c>>`` marks, the last ``#### N``), and, beyond the schema,
        ``evidence`` (the sentences that hold the numbers), ``template`` and ``numbers``.
    """
    kind = rng.choice(KINDS)
    numbers = draw_in_split(lambda: _numbers(rng, kind), kind.name, split)
    index, sentences = wording(rng, kind.wordings, split)
    who = pick(rng, FIRST_NAMES, split)
    names = {"who": who, "other": pick(rng, [n for n in FIRST_NAMES if n != who], split), "things": rng.choice(THINGS)}
    values: dict[str, Any] = {**names, **numbers}
    lines = []
    for result, left, sign, right, before, after in kind.steps:
        a, b = values[left], values[right]
        values[result] = c = _OPERATIONS[sign](a, b)
        lines.append(f"{fill(before, values)} {a} {sign} {b} = <<{a}{sign}{b}={c}>>{c} {fill(after, values)}")
    told = [fill(s, values) for s in sentences]
    given = [t for s, t in zip(sentences, told, strict=True) if any(f"<{n}>" in s for n in kind.ranges)]
    if rng.random() < 0.3:
        told.insert(rng.randrange(len(told)), fill(rng.choice(_ASIDES), values))
    return {
        "question": " ".join(told),
        "answer": "\n".join([*lines, f"#### {values[kind.steps[-1][0]]}"]),
        "evidence": given,
        "template": f"{kind.name}/{index}",
        "numbers": list(numbers.values()),
    }


def _numbers(rng: random.Random, kind: Kind) -> dict[str, int]:
    """Numbers of which every calculation comes out whole, positive and small."""
    while True:
        numbers = {name: rng.randint(*bounds) for name, bounds in kind.ranges.items()}
        if _comes_out(numbers, kind):
            return numbers


def _comes_out(numbers: dict[str, int], kind: Kind) -> bool:
    values = dict(numbers)
    for result, left, sign, right, _, _ in kind.steps:
        a, b = values[left], values[right]
        if sign == "/" and a % b:
            return False
        values[result] = _OPERATIONS[sign](a, b)
        if not 0 < values[result] <= _LARGEST:
            return False
    return True
