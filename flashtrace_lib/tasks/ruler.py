"""RULER: needles in a haystack and variable tracking (paper, appendix E.1; Hsieh et al., 2024).

A cell is a few numbers: how many keys are asked for, how many values each has, how many hops a chain of
assignments has, how many chains there are. Whatever the numbers, the tokenizer and the length, an example fills
its length to within one unit of haystack, and says which characters of the prompt are its evidence.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from tqdm import tqdm

from ..names import check_order, did_you_mean
from .example import Example
from .haystack import EssayHaystack, Haystack, NoiseHaystack, largest_fitting
from .ruler_problems import Keep, Problem, RulerCell, draw_names, niah_problem, vt_problem

_CHEAPEST_OF = 32  # names drawn for each one used, where the length leaves room for short ones only
_ROOM = 16  # a sixteenth of the length is to be haystack before names are drawn without regard to theirs

CELLS: dict[str, RulerCell] = {
    cell.name: cell
    for cell in (
        *(RulerCell("niah", queries=q) for q in (2, 4, 8)),
        *(RulerCell("niah", values=v) for v in (2, 4, 8)),
        *(RulerCell("vt", hops=h, chains=c) for h, c in ((2, 3), (4, 1), (6, 1), (10, 1))),
    )
}


def ruler_examples(
    tokenizer: Any, cell: str | RulerCell, length: int, n: int, seed: int = 0, haystack: str | None = None,
    keep: Keep | None = None,
) -> list[Example]:  # fmt: skip
    """The first ``n`` examples of a cell.

    Example ``i`` depends on the cell, the length, the haystack, the seed and ``i``, never on ``n``. The same ``i`` at
    two lengths asks the same question, so lengths can be compared in pairs; only where a length leaves room for
    nothing but short names are they drawn anew.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Of the model that is to read the prompt.
    cell : str or RulerCell
        A key of ``CELLS``, or a difficulty of your own.
    length : int
        Tokens of ``Example.prompt``, special tokens not counted. Reached to within one unit of haystack: an
        essay word or a noise sentence more would exceed it.
    n : int
        Examples wanted.
    seed : int
        Another seed gives other examples.
    haystack : {"essay", "noise"}, optional
        Essays from a random sentence on, or the noise line. As in RULER where it is not given: essays for NIAH, noise
        for VT.
    keep : callable, optional
        Name, key or number -> whether it may be used: keeps what is trained on and what is evaluated on apart. It
        changes what is drawn, and is not part of an example's id.

    Returns
    -------
    list of Example
        ``evidence`` are the needle sentences (NIAH) or the statements of the queried chain (VT); ``reasoning``
        is the reference reasoning, a line each; the metadata tell what was drawn and measured.

    Raises
    ------
    ValueError
        If the cell or an option is unknown, or the length cannot hold the problem (the message says how long the
        shortest prompt is).
    """
    check_order("ruler_examples(tokenizer, cell, length, n)", tokenizer=tokenizer)
    cell = _resolve(cell)
    kind = haystack or ("essay" if cell.kind == "niah" else "noise")
    _check_options(length, n, seed, kind)
    label = f"{cell.name}-{length}-{kind}-s{seed}-noshot"  # RULER's worked example before a VT problem is left out
    count, examples = _counter(tokenizer), []
    for i in tqdm(range(n), desc=f"ruler {cell.name}", unit="example", delay=2):
        example = _example(cell, length, count, f"{cell.name}|{kind}|{seed}|{i}", kind, keep)
        examples.append(replace(example, id=f"{label}-{i}", metadata={"seed": seed, "index": i, **example.metadata}))
    return examples


def _resolve(cell: str | RulerCell) -> RulerCell:
    if isinstance(cell, RulerCell):
        return cell
    if cell not in CELLS:
        known = f"choose one of {', '.join(CELLS)}, or give a RulerCell.{did_you_mean(str(cell), CELLS)}"
        raise ValueError(f"unknown RULER cell {cell!r}: {known}")
    return CELLS[cell]


def _check_options(length: int, n: int, seed: int, kind: str) -> None:
    for name, value, least in (("length", length, 1), ("n", n, 0), ("seed", seed, None)):
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            raise ValueError(f"{name} must be a whole number{'' if least is None else f' >= {least}'}, got {value!r}")
    if kind not in ("essay", "noise"):
        raise ValueError(f"unknown haystack {kind!r}: choose 'essay' or 'noise'")


def _counter(tokenizer: Any) -> Callable[[str], int]:
    """Text -> number of its tokens."""
    return lambda text: len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _example(
    cell: RulerCell, length: int, count: Callable[[str], int], key: str, kind: str, keep: Keep | None
) -> Example:
    """One example; ``key`` seeds every draw."""
    hay = NoiseHaystack() if kind == "noise" else EssayHaystack.seeded(random.Random(f"{key}|start"))
    problem, short = _fitting_problem(cell, hay, length, count, key, keep)
    units = _fill(problem, hay, length, count, key)
    prompt, spans = problem.render(hay, units, key)
    return Example(
        id=key,
        task="ruler",
        cell=cell.name,
        prompt=prompt,
        answers=problem.answers,
        evidence=tuple(spans[i] for i in problem.gold),
        question=len(prompt) - len(problem.after.lstrip()),
        haystack=(len(problem.before), len(prompt) - len(problem.after)),
        answer_prefix=problem.answer_prefix,
        reasoning=problem.reasoning,
        output=problem.output,
        # Naming every variable of the text would satisfy the benchmark's own measure, substring recall.
        scorer="exact_set" if cell.kind == "vt" else "substring_recall",
        metadata={
            "length": length,
            "tokens": count(prompt),
            "haystack": kind,
            "haystack_units": units,
            "essay_start": getattr(hay, "start", None),
            "short_names": short,
            "answer_pattern": problem.answer_pattern,
            "statements": [list(span) for span in spans],  # characters of each needle or assignment
            **asdict(cell),
        },
    )


def _fitting_problem(
    cell: RulerCell, hay: Haystack, length: int, count: Callable[[str], int], key: str, keep: Keep | None
) -> tuple[Problem, bool]:
    """The problem; with names of few tokens where others would leave no room for haystack (then True)."""
    draw = partial(draw_names, keep=keep)

    def draw_short(rng: random.Random, name: Callable[[], str], k: int) -> list[str]:
        names = draw(rng, name, _CHEAPEST_OF * k)
        return rng.sample(sorted(names, key={name: count(" " + name) for name in names}.__getitem__)[:k], k)

    def cost(problem: Problem) -> int:
        return count(problem.render(hay, 0, key)[0])

    make = niah_problem if cell.kind == "niah" else vt_problem
    problem = make(cell, random.Random(key), hay.stop, draw, keep)
    if cost(problem) <= length - length // _ROOM:
        return problem, False
    short = make(cell, random.Random(key), hay.stop, draw_short, keep)
    return (short, True) if cost(short) < cost(problem) else (problem, False)


def _fill(problem: Problem, hay: Haystack, length: int, count: Callable[[str], int], key: str) -> int:
    """Units of haystack that fill the length."""
    least = count(problem.render(hay, 0, key)[0])
    if least > length:
        raise ValueError(
            f"length {length} is too short: instruction, statements and question alone take {least} tokens. "
            f"Ask for a length of at least {least}, or for an easier cell"
        )
    return largest_fitting(lambda n: count(problem.render(hay, n, key)[0]), length, hay.tokens_per_unit)
