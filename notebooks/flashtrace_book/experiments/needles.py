"""Needles that a model answers as it comes, and that are not found by copying alone (chapter 12).

*Superseded*: two of four numbers change later in the text, and one of these is asked for. *Spelled*: the numbers stand
in words, digit by digit, and the answer is in digits.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from flashtrace_lib.model.generate import answer_text
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.haystack import EssayHaystack, NoiseHaystack
from flashtrace_lib.tasks.responses import Collection, respond
from flashtrace_lib.tasks.scoring import is_correct

from .. import paths
from ..profile import Profile, read
from .facts import WORDS, hidden
from .grid import sample_of
from .groups import Group, Plan, model_of, rows_of_group
from .hints import KEYS

KINDS = ("superseded", "spelled")
_BEFORE = "Some magic numbers are hidden within the following text. I will ask about them afterwards.\n\n"
_BLOCK = 6  # problems answered together


@dataclass(frozen=True)
class Needles:
    """What is asked, and what is measured on the right answers: ``samples`` of each kind, from ``tries`` problems.

    ``forced``: nothing is asked, and the true answer stands for the model's, a quick check.
    """

    model: str
    plans: tuple[Mapping[str, Any], ...]
    samples: int = 24
    tries: int = 60
    length: int = 400
    max_new_tokens: int = 48
    seed: int = 0
    forced: bool = False


def needle_example(tokenizer: Any, kind: str, i: int, *, length: int = 400, seed: int = 0) -> Example:
    """Problem ``i`` of a kind, in noise and essays in turn; ``metadata["distracting"]`` are the other needles."""
    hay_name = ("noise", "essay")[i % 2]
    key = f"needles-{kind}-{length}-{hay_name}-s{seed}-{i}"
    rng = random.Random(key)
    names, changed = rng.sample(KEYS, 4), kind == "superseded"
    numbers = ["".join(rng.choices("123456789", k=4)) for _ in range(6)]
    said = numbers if changed else [" ".join(WORDS[int(digit)] for digit in number) for number in numbers]
    needles = [f"The magic number for {name} is {number}." for name, number in zip(names, said, strict=False)]
    rng.shuffle(needles)
    later = [f"The magic number for {names[i]} has changed: it is now {said[4 + i]}." for i in rng.sample(range(2), 2)]
    needles += later if changed else []
    ask = "What is the magic number for {} now?" if changed else "What is the magic number for {}? Give it in digits."
    tail, asked = f"\n\n{ask.format(names[0])}", 4 if changed else 0
    gold = next(i for i, needle in enumerate(needles) if said[asked] in needle)
    hay = EssayHaystack.seeded(rng) if i % 2 else NoiseHaystack()

    text, spans = hidden(tokenizer, _BEFORE, needles, tail, length=length, hay=hay, key=f"{key}|places")
    others = [list(span) for place, span in enumerate(spans) if place != gold]
    return Example(
        id=key, task="needles", cell=kind, prompt=text + tail, answers=(numbers[asked],),
        evidence=(spans[gold],), question=len(text) + 2, haystack=(len(_BEFORE), len(text)), scorer="exact_set",
        metadata={"mode": kind, "off_path": "", "chain": 1, "distracting": others,
                  "answer_pattern": r"\d+", "template": key},
    )  # fmt: skip


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of both kinds."""
    asked = read(Needles, settings, f"results.{name}.needles")
    model, tokenizer = model_of(profile, asked.model)
    how, cells = (asked.max_new_tokens, Store(paths.working_store(profile.name, "responses"))), {}
    for kind in KINDS:
        found = cells.setdefault(kind, Collection([], {"tried": 0, "correct": 0}))
        for first in tqdm(range(0, asked.tries, _BLOCK), desc=kind):
            if len(found.samples) >= asked.samples:
                break
            numbers, drawn = range(first, min(first + _BLOCK, asked.tries)), profile.seed + asked.seed
            block = [needle_example(tokenizer, kind, i, length=asked.length, seed=drawn) for i in numbers]
            answers = [e.answers[0] for e in block] if asked.forced else respond(model, tokenizer, block, *how)
            given = zip(block, answers, strict=True)
            right = [x for x in given if asked.forced or is_correct(x[0], answer_text(tokenizer, x[1]))]
            found.counts = {"tried": numbers.stop, "correct": found.counts["correct"] + len(right)}
            found.samples += [sample_of(tokenizer, *pair) for pair in right]
        del found.samples[asked.samples :]
    plans = [read(Plan, plan, f"results.{name}.needles.plans") for plan in asked.plans]
    store = Store(paths.working_store(profile.name, name))
    return rows_of_group(profile, Group(asked.model, "needles", asked.plans), plans, cells, store)
