"""The plan of `better_flashtrace`, written down before it is run: cells, seeds, metrics, variants.

How many samples a profile gives it stands in its section ``better_flashtrace`` (`profiles.BetterProfile`), whose
defaults are the whole plan.

What was looked at before: three samples a cell of mq_q2, mv_v2, h4_c1, h6_c1, mq_q4 and mv_v4 at 1024 tokens, with the
metric of recovery among others. The candidate was picked there. So the first four cells are for tuning, whatever they
say; the samples of all others are drawn with another seed, mq_q4 and mv_v4 among them, whose kind was seen and whose
samples were not.

What the first draw of the held-out cells showed (seed 1, eleven samples of profile laptop): a first hop over T ∪ O
loses where the reasoning lists more than the evidence, the propagated residual alone never does, and smoothing adds
most to it. So there is a second candidate: the residual propagated, scores smoothed over five tokens. It was chosen on
those samples, and a further seed judges it (``held_out_seed`` of the profile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation.draws import random_draws
from flashtrace_lib.methods import IFR, AttnLRP, FlashTrace, IFRAll

from .choices import punctuation_tokens
from .open_questions import HELD_OUT, TUNING

POOLED = "pooled"
REAL_QUESTIONS = "real questions"
PRIMARY = "r_precision_haystack"
# Of a ranking alone; then from masks that all methods share; then with passes of each method's own.
RANKING = (
    PRIMARY, "recovery", "r_precision", "auroc", "ap", "recovery_haystack", "auroc_haystack", "ap_haystack",
    "sentence_hit_haystack",
)  # fmt: skip
MASKED = ("lds", "lds_output")
DROPPED = ("drop3",)


@dataclass(frozen=True)
class Cell:
    """Samples of one kind.

    Parameters
    ----------
    source : str
        A RULER cell, or a synthetic task of `tasks.datasets.task_examples`.
    half : {"tuning", "held-out"}
        What they are for.
    group : str
        Which kind of cell it is, in tables.
    haystack : {"essay", "noise"}, optional
        Of a RULER cell. Default: the benchmark's.
    """

    source: str
    half: str
    group: str
    haystack: str | None = None


CELLS: dict[str, Cell] = {
    **{name: Cell(name, TUNING, "needles") for name in ("mq_q2", "mv_v2")},
    **{name: Cell(name, TUNING, "chains") for name in ("h4_c1", "h6_c1")},
    **{name: Cell(name, HELD_OUT, "needles") for name in ("mq_q4", "mv_v4", "mq_q8", "mv_v8")},
    **{name: Cell(name, HELD_OUT, "chains") for name in ("h2_c3", "h10_c1")},
    **{f"{name}_noise": Cell(name, HELD_OUT, "needles in noise", "noise") for name in ("mq_q2", "mv_v2")},
    **{f"{name}_noise": Cell(name, HELD_OUT, "needles in noise", "noise") for name in ("mq_q4", "mv_v4")},
    # Not math500: its problems have no gold and hardly two sentences, so nothing of the plan can be measured on them.
    **{name: Cell(name, HELD_OUT, "synthetic tasks") for name in ("hotpotqa", "morehopqa", "gsm8k")},
    # Only for a profile whose records are real, and which names them.
    **{f"{name}_real": Cell(name, HELD_OUT, REAL_QUESTIONS) for name in ("hotpotqa", "morehopqa")},
}


# --- variants -------------------------------------------------------------------------------------------------

PAPER, CANDIDATE, SECOND = "paper", "candidate", "second_candidate"
BASES: dict[str, dict[str, Any]] = {
    PAPER: {"hops": 1},
    CANDIDATE: {"hops": 1, "residual": "propagated", "first_hop": "generation"},
}
FACTORS: dict[str, dict[str, Any]] = {  # one at a time, around both
    "k0": {"hops": 0},
    "k2": {"hops": 2},
    "k3": {"hops": 3},
    "by_token": {"aggregation": "mean"},
    "heads_summed": {"heads": "sum"},
    "smooth3": {"smoothing": 3},
    "smooth5": {"smoothing": 5},
    "no_sink": {"sink": "removed"},
    "no_punctuation": {},  # the tokenizer's tokens: see `variants`
}
FACTOR_LABELS = {
    "k0": "K = 0", "k2": "K = 2", "k3": "K = 3", "by_token": "token by token", "heads_summed": "heads summed",
    "smooth3": "smoothed over 3", "smooth5": "smoothed over 5", "no_sink": "first token removed",
    "no_punctuation": "punctuation skipped",
}  # fmt: skip
# What separates the two bases, alone, and token by token.
BETWEEN: dict[str, dict[str, Any]] = {
    "propagated": {"hops": 1, "residual": "propagated"},
    "first_hop": {"hops": 1, "first_hop": "generation"},
    "propagated_by_token": {"hops": 1, "residual": "propagated", "aggregation": "mean"},
    "first_hop_by_token": {"hops": 1, "first_hop": "generation", "aggregation": "mean"},
    SECOND: {"hops": 1, "residual": "propagated", "smoothing": 5},
    "propagated_k0": {"hops": 0, "residual": "propagated"},
    "propagated_k2": {"hops": 2, "residual": "propagated"},
}
BEST_BEFORE = "best_before"  # `FlashTrace.best` as it stood when the candidate was found
MAIN = (PAPER, "propagated", SECOND, "first_hop", CANDIDATE, "candidate_by_token", "candidate_smooth5", BEST_BEFORE)
BASELINES = ("ifr", "ifr_all", "attnlrp")
LABELS = {
    PAPER: "the paper's setting",
    CANDIDATE: "candidate: propagated, first hop on T ∪ O",
    "propagated": "residual propagated",
    SECOND: "second candidate: propagated, smoothed over 5",
    "propagated_k0": "residual propagated, K = 0",
    "propagated_k2": "residual propagated, K = 2",
    "first_hop": "first hop on T ∪ O",
    "propagated_by_token": "residual propagated, token by token",
    "first_hop_by_token": "first hop on T ∪ O, token by token",
    BEST_BEFORE: "heads summed, first hop on T ∪ O, no first token",
    **{f"{base}_{name}": f"{base}, {FACTOR_LABELS[name]}" for base in BASES for name in FACTORS},
    "ifr": "IFR", "ifr_all": "IFR on T ∪ O", "attnlrp": "AttnLRP", "random": "random",
}  # fmt: skip


def settings() -> dict[str, dict[str, Any]]:
    """Options of every setting of FlashTrace of the plan, by its name in tables; but for the tokens to skip."""
    options = dict(BASES) | BETWEEN
    for base, own in BASES.items():
        options |= {f"{base}_{name}": own | factor for name, factor in FACTORS.items()}
    return options | {BEST_BEFORE: {"hops": 1, "heads": "sum", "first_hop": "generation", "sink": "removed"}}


def variants(tokenizer: Any) -> dict[str, FlashTrace]:
    """The methods of `settings`.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Of the model: it says which tokens are punctuation.
    """
    skipped = {"skip_tokens": punctuation_tokens(tokenizer)}
    return {
        name: FlashTrace(**options, **(skipped if name.endswith("_no_punctuation") else {}))
        for name, options in settings().items()
    }


def compared(tokenizer: Any, draws: int) -> dict[str, Method]:
    """`variants`, the baselines, and the draws of the random one."""
    return variants(tokenizer) | dict(zip(BASELINES, (IFR(), IFRAll(), AttnLRP()), strict=True)) | random_draws(draws)


def main_methods(tokenizer: Any, draws: int) -> dict[str, Method]:
    """The few of `compared` that get passes of their own."""
    methods = compared(tokenizer, draws)
    return {name: method for name, method in methods.items() if name in MAIN or name not in settings()}
