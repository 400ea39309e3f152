"""Open questions of the paper: every choice against the paper's reading on the same samples, and the best setting.

Half of every cell's samples is for tuning: a setting is chosen on it alone (`chosen`) and reported on the other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.metrics import HIGHER_IS_BETTER, Scorer
from flashtrace_lib.model.architecture import decoder_layers
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from ..profiles import Profile
from ..run import Run
from ..statistics import TOO_FEW, against, paired_difference
from .choices import CHOICES, choice_options

DEFAULT, CHOSEN_LABEL = "flashtrace", "flashtrace_chosen"
TUNING, HELD_OUT = "tuning", "held-out"
RECOVERY, DELETION = ("recovery", "r_precision"), ("rise", "mas")
EXACT, EXACT_PARTNER = "residual_by_token", "by_token"  # the exact rollout; without propagation of the residual


# --- settings -------------------------------------------------------------------------------------------------


def setting(names: Iterable[str], tokenizer: Any, hops: int = 1) -> FlashTrace:
    """FlashTrace with the alternative reading of each named choice."""
    return FlashTrace(hops=hops, **choice_options(names, tokenizer))


def label(names: Sequence[str]) -> str:
    """Name of a setting in tables."""
    return "+".join(names) or DEFAULT


def readings(names: Iterable[str]) -> list[str]:
    """What each named choice, or `EXACT`, does in a few words, for figures."""
    words = {name: choice.other for name, choice in CHOICES.items()} | {EXACT: "propagated, token by token"}
    return [words[name] for name in names]


def choice_methods(profile: Profile, tokenizer: Any, model: torch.nn.Module) -> dict[str, FlashTrace]:
    """The paper's setting, and one method for each choice, which takes the alternative reading of it alone.

    Value biases are left out where the model has none: `value_bias.value_bias_table` shows that nothing moves.
    """
    biased = any(layer.value_bias() is not None for layer in decoder_layers(model))
    methods = {DEFAULT: setting((), tokenizer, profile.hops)}
    for name, choice in CHOICES.items():
        if biased or "value_bias" not in choice.options:
            methods[name] = setting((name,), tokenizer, profile.hops)
    return methods


def by_token_methods(profile: Profile) -> dict[str, FlashTrace]:
    """Single tokens in place of a span, with the residual in the denominator or propagated (the exact rollout).

    Both need a row for every token of T, so they are for few samples.
    """
    return {
        EXACT_PARTNER: FlashTrace(hops=profile.hops, aggregation="mean"),
        EXACT: FlashTrace(hops=profile.hops, aggregation="mean", residual="propagated"),
    }


# --- samples --------------------------------------------------------------------------------------------------


def halves(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Sample id -> ``"tuning"`` or ``"held-out"``: cell by cell, in the order of the ids' hashes, in turn.

    Parameters
    ----------
    pairs : iterable of (cell, sample id)
        Of all samples; repeats and their order do not matter.
    """
    ordered = sorted(set(pairs), key=lambda pair: (pair[0], fingerprint(pair[1])))
    return {sample: HELD_OUT if i % 2 else TUNING for i, (_, sample) in enumerate(ordered)}


def halves_of(samples: Iterable[Sample]) -> dict[str, str]:
    """`halves` of samples."""
    return halves((str(sample.metadata["cell"]), sample.id) for sample in samples)


def in_half(samples: Iterable[Sample], half: str, shortest: int | None = None) -> list[Sample]:
    """Samples of one half, or only its ``shortest`` ones, on which deletion curves take least time."""
    samples = list(samples)
    half_of = halves_of(samples)
    part = [sample for sample in samples if half_of[sample.id] == half]
    return part if shortest is None else sorted(part, key=lambda s: (len(s), s.id))[:shortest]


def with_half(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of `evaluation.evaluate` with the column ``half``; it must hold all samples under some method."""
    half_of = halves(zip(frame["cell"], frame["sample"], strict=True))
    return frame.assign(half=frame["sample"].map(half_of))


# --- measurements ---------------------------------------------------------------------------------------------


def measure(
    run: Run,
    model: torch.nn.Module,
    methods: Mapping[str, FlashTrace],
    samples: Sequence[Sample],
    store: Store,
    scorer: Scorer,
    parts: Sequence[str] = (TUNING, HELD_OUT),
) -> pd.DataFrame:
    """Recovery on all samples of the named halves, RISE and MAS on the shortest of each, as the profile says.

    Returns
    -------
    pandas.DataFrame
        As from `evaluation.evaluate`.
    """
    settings = run.profile.open_questions
    options = {"store": store, "steps": settings.steps, "scorer": scorer}
    frames = []
    for half in parts:
        shortest = in_half(samples, half, settings.deletion_samples)
        frames.append(evaluate(methods, in_half(samples, half), model, metrics=RECOVERY, **options))
        frames.append(evaluate(methods, shortest, model, metrics=DELETION, **options))
    return pd.concat(frames, ignore_index=True)


def rank_choices(frame: pd.DataFrame) -> pd.DataFrame:
    """Effect of every choice on the same samples, best first: its alternative reading minus the paper's.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `measure`, of `choice_methods` and, optionally, of `by_token_methods`.

    Returns
    -------
    pandas.DataFrame
        ``metric, rank, choice, question, difference, low, high, n, better``; ``better`` is the reading that the
        95 % interval favours, else as in `statistics.paired_difference`.
    """
    table = against(frame[frame["method"].isin([DEFAULT, *CHOICES])], DEFAULT)
    table["question"] = [CHOICES[name].question for name in table["method"]]
    if EXACT in set(frame["method"]):
        exact = paired_difference(frame, EXACT, EXACT_PARTNER).dropna(subset="difference")
        question = CHOICES["residual"].question + ", token by token"
        table = pd.concat([table, exact.assign(method=EXACT, question=question)], ignore_index=True)
    gain = table["difference"].where(table["metric"].map(HIGHER_IS_BETTER), -table["difference"])
    table["rank"] = gain.groupby(table["metric"]).rank(ascending=False, method="min").astype(int)
    readings = {DEFAULT: "the paper's", EXACT_PARTNER: "the paper's", "neither": "neither", TOO_FEW: TOO_FEW}
    table["better"] = [readings.get(favoured, "the other") for favoured in table["better"]]
    order = {metric: i for i, metric in enumerate((*RECOVERY, *DELETION))}
    table = table.sort_values("rank", kind="stable")
    table = table.sort_values("metric", key=lambda metrics: metrics.map(order), kind="stable")
    columns = ["metric", "rank", "choice", "question", "difference", "low", "high", "n", "better"]
    return table.rename(columns={"method": "choice"})[columns].reset_index(drop=True)


# --- the best setting -----------------------------------------------------------------------------------------


def candidates(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """Settings among which the best is chosen: the paper's, then the helpful choices added in order of their gain.

    A choice is helpful if on the tuning half it raises the mean recovery and does not raise the mean RISE.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `choice_methods`, with the column ``half``.
    """
    tuning = frame[(frame["half"] == TUNING) & frame["method"].isin([DEFAULT, *CHOICES])]
    effects = against(tuning, DEFAULT).pivot(index="method", columns="metric", values="difference")
    gains = effects["recovery"]
    helpful = [name for name in gains.index if gains[name] > 0 and not effects.loc[name].get("rise", 0) > 0]
    helpful.sort(key=lambda name: (-gains[name], name))
    return [tuple(helpful[:k]) for k in range(len(helpful) + 1)]


def chosen(frame: pd.DataFrame) -> tuple[str, ...]:
    """The candidate with the highest mean recovery on the tuning half; of equal ones that with the fewest changes.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `choice_methods` and of the settings of `candidates`, with the column ``half``.

    Raises
    ------
    ValueError
        If a candidate was not measured.
    """
    means = _tuning_recovery(frame).groupby("method")["value"].mean()
    settings = candidates(frame)
    missing = [label(names) for names in settings if label(names) not in means]
    if missing:
        raise ValueError(
            f"the settings {', '.join(missing)} were not measured on the tuning half: run measure with them"
        )
    return max(settings, key=lambda names: (round(means[label(names)], 9), -len(names)))


def candidate_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each candidate's gain in recovery over the paper's setting on the tuning half: ``setting, difference, low, …``.

    Where no choice helps, the paper's setting is the only candidate and there is no row.
    """
    labels = [label(names) for names in candidates(frame)]
    if len(labels) == 1:
        return pd.DataFrame(columns=["setting", "metric", "difference", "low", "high", "n", "better"])
    tuning = _tuning_recovery(frame)
    return against(tuning[tuning["method"].isin(labels)], DEFAULT).rename(columns={"method": "setting"})


def _tuning_recovery(frame: pd.DataFrame) -> pd.DataFrame:
    """Recovery on the tuning half, once for each method and sample."""
    tuning = frame[(frame["half"] == TUNING) & (frame["metric"] == "recovery")]
    return tuning.drop_duplicates(["method", "sample"])


def held_out_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The best setting minus the paper's on the held-out half, by metric; as `statistics.paired_difference`."""
    return paired_difference(frame[frame["half"] == HELD_OUT], CHOSEN_LABEL, DEFAULT)
