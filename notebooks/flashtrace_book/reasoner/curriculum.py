"""The generated problems that the embedded model is trained and tested on.

The two splits share no name, key, number or template (`tasks.synthetic.splits`), nor a length: training never comes
within `LENGTH_GAP` tokens of a length that is evaluated. Both hide their needles and assignments in the same text.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flashtrace_lib.tasks.datasets import synthetic_examples
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.registry import TASKS as DATA_SETS
from flashtrace_lib.tasks.ruler import CELLS, ruler_examples
from flashtrace_lib.tasks.ruler_problems import RulerCell
from flashtrace_lib.tasks.synthetic.splits import check_split, in_split

from .generators import GENERATORS

EVAL_LENGTHS = (256, 512, 1024)
LENGTH_GAP = 8
SHORTEST = 128
_ONE_SHOT_FROM = 1000  # tokens; a worked example of 500 tokens needs as much haystack again

DEFAULT_WEIGHTS: dict[str, float] = {
    "vt": 0.15,
    "niah": 0.07,
    "gsm8k": 0.30,
    "math500": 0.24,
    "morehopqa": 0.16,
    "hotpotqa": 0.04,
    "exercism": 0.04,
}
TASKS = (*CELLS, *DATA_SETS, *GENERATORS)
FAMILIES = ("vt", "niah", *DATA_SETS, *(name for name, generator in GENERATORS.items() if generator.trains))
_DOCUMENTS = (300, 1300)  # tokens of a prompt of many paragraphs


def problems(
    task: str, n: int, seed: int = 0, split: str = "train", tokenizer: Any = None, length: int = 512
) -> list[Example]:
    """The first ``n`` problems of a task; problem ``i`` does not depend on ``n``.

    Parameters
    ----------
    task : str
        A RULER cell (``"h2_c3"``, ``"mq_q4"``, …), a synthetic task (``"gsm8k"``, …) or a generator
        (``"documents_qa"``, …), one of `TASKS`.
    split : {"train", "eval"}
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        Counts the tokens of RULER's prompts and of ``documents_qa``'s; the other tasks need none.
    length : int
        Tokens of such a prompt, of paragraphs at least 300; for RULER ``"eval"`` allows `EVAL_LENGTHS`, ``"train"``
        every length away from them.

    Raises
    ------
    ValueError
        If the task, the split or the length does not fit, or a RULER cell comes without a tokenizer.
    """
    check_split(split)
    if task in DATA_SETS:
        return synthetic_examples(task, n, seed, split)
    if task in GENERATORS:
        return GENERATORS[task].examples(n, seed, split, tokenizer, max(length, _DOCUMENTS[0]))
    if task not in CELLS:
        raise ValueError(f"unknown task {task!r}: choose one of {', '.join(TASKS)}")
    return _ruler_problems(CELLS[task], n, seed, split, tokenizer, length)


def _ruler_problems(cell: RulerCell, n: int, seed: int, split: str, tokenizer: Any, length: int) -> list[Example]:
    if tokenizer is None:
        raise ValueError(f"task {cell.name}: a RULER prompt is as long as a tokenizer counts: give the model's")
    if (split == "eval") != (length in EVAL_LENGTHS) or (split == "train" and not _is_train_length(length)):
        raise ValueError(
            f"length {length} is not one of split {split!r}: evaluated lengths are "
            f"{', '.join(map(str, EVAL_LENGTHS))}; training keeps {LENGTH_GAP} tokens away from them"
        )
    one_shot = False if cell.kind == "vt" and length < _ONE_SHOT_FROM else "auto"
    return ruler_examples(cell, length, tokenizer, n, seed, one_shot=one_shot, keep=partial(in_split, split=split))


@dataclass(frozen=True)
class Curriculum:
    """A mixture of families of problems whose difficulty grows with the progress of the training.

    Parameters
    ----------
    weights : dict of str to float
        Share of each family of `FAMILIES`. Need not sum to 1.
    max_length : int
        Longest prompt of RULER or of many paragraphs, tokens, reached at ``ramp`` of the training.
    ramp : float
        Share of the training over which lengths, hops and needles grow to their full range.
    direct : float
        Share of problems that are answered without reasoning.
    skew : float
        How much more often short prompts come than long ones: 1 spreads the logarithm of the length evenly, 2 draws
        half of the prompts from its first quarter. A short problem teaches the same chain for fewer tokens.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    max_length: int = 1024
    ramp: float = 0.5
    direct: float = 0.1
    skew: float = 2.0

    def __post_init__(self) -> None:
        unknown = set(self.weights) - set(FAMILIES)
        if unknown:
            raise ValueError(f"unknown family {', '.join(sorted(unknown))}: known are {', '.join(FAMILIES)}")
        if not self.weights or min(self.weights.values()) < 0 or sum(self.weights.values()) <= 0:
            raise ValueError(f"weights must be >= 0 and not all 0, got {dict(self.weights)}")
        if self.max_length < SHORTEST:
            raise ValueError(f"max_length must be at least {SHORTEST} tokens, got {self.max_length}")
        if not 0 < self.ramp <= 1 or not 0 <= self.direct <= 1:
            raise ValueError(f"ramp must lie in (0, 1] and direct in [0, 1], got {self.ramp} and {self.direct}")
        if self.skew <= 0:
            raise ValueError(f"skew must be above 0, got {self.skew}")

    def draw(self, tokenizer: Any, key: str, progress: float) -> tuple[Example, str]:
        """Draw a problem and its mode, ``"thinking"`` or ``"direct"``.

        Parameters
        ----------
        tokenizer : transformers.PreTrainedTokenizerBase
            Counts the tokens of RULER's prompts.
        key : str
            Seed of every choice: the same key gives the same problem.
        progress : float
            Share of the training that is done, 0 to 1.
        """
        rng = random.Random(key)
        mode = "direct" if rng.random() < self.direct else "thinking"
        family = rng.choices(list(self.weights), list(self.weights.values()))[0]
        seed = rng.randrange(2**31)
        if family in DATA_SETS:
            return synthetic_examples(family, 1, seed, "train")[0], mode
        difficulty = min(1.0, progress / self.ramp)
        if family in GENERATORS:
            shortest, longest = _DOCUMENTS[0], max(_DOCUMENTS[0], min(_DOCUMENTS[1], self.max_length))
            length = _skewed(rng, shortest, shortest + round(difficulty * (longest - shortest)), self.skew)
            return GENERATORS[family].examples(1, seed, "train", tokenizer, length)[0], mode
        cell = _vt_cell(rng, difficulty) if family == "vt" else _niah_cell(rng, difficulty)
        longest = SHORTEST + 128 + round(difficulty * max(0, self.max_length - SHORTEST - 128))
        least = _least_length(cell)
        length = _train_length(rng, least, max(least, min(longest, self.max_length)), self.skew)
        return _ruler_problems(cell, 1, seed, "train", tokenizer, length)[0], mode


def _vt_cell(rng: random.Random, difficulty: float) -> RulerCell:
    """One chain or several, mostly several, the hard case; one hop each at first, up to ten in the end."""
    chains = rng.choices((1, 2, 3), (0.35, 0.25, 0.4))[0]
    hardest = {1: 10, 2: 4, 3: 3}[chains]
    return RulerCell("vt", hops=rng.randint(1, 1 + round(difficulty * (hardest - 1))), chains=chains)


def _niah_cell(rng: random.Random, difficulty: float) -> RulerCell:
    """One to eight needles, all of one key or each of its own."""
    count = rng.randint(1, 2 + round(difficulty * 6))
    return RulerCell("niah", **{rng.choice(("queries", "values")): count})


def _least_length(cell: RulerCell) -> int:
    """Tokens that hold the problem, whatever its names, and some haystack."""
    if cell.kind == "vt":
        return max(SHORTEST, 80 + 18 * cell.chains * (cell.hops + 1))
    return max(SHORTEST, 130 + 46 * cell.queries * cell.values)


def _skewed(rng: random.Random, low: int, high: int, skew: float) -> int:
    """A random length from ``low`` to ``high``; its logarithm is spread as ``Curriculum.skew`` says."""
    return round(low * (high / low) ** (rng.random() ** skew))


def _train_length(rng: random.Random, low: int, high: int, skew: float) -> int:
    """A random length from ``low`` to ``high``, or the next above that is not evaluated."""
    length = _skewed(rng, low, high, skew)
    while not _is_train_length(length):
        length += 1
    return length


def _is_train_length(length: int) -> bool:
    return all(abs(length - evaluated) > LENGTH_GAP for evaluated in EVAL_LENGTHS)
