"""Failure analysis by search (appendix N): the samples of the lowest recovery, and what their mass lies on.

The paper names two ways to fail: evidence that is diffuse, and structural tokens that take more mass than they mean.
Both are measured here on every stored attribution, so that what fails is found and not picked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.metrics import r_precision, ranking, recovery_cap, recovery_rate, top_count
from flashtrace_lib.metrics.intervals import difference_interval
from flashtrace_lib.sample import Sample

from .reasoning_tasks import mean_row, question_start

# Kinds of token: of the template, of I, and the rest; every token of a context has one.
KINDS = ("first token", "template", "punctuation", "connective", "question", "other words", "reasoning", "output")
STRUCTURE = KINDS[:4]
ON_INPUT = ("punctuation", "connective", "question", "other words")
# Properties of a sample that may go with its failure; `sample_properties` says what they are.
DIFFUSE = ("gold_share", "gold_pieces", "gold_evenness", "spread")
MASS = ("gold_mass", "question", "punctuation", "connective", "first_token", "template", "quoted")
_CONNECTIVES = frozenset(
    "a an the this that these those and or but nor so yet if then than as at by for from in into of on onto to up with "
    "is are was were be been being am do does did has have had it its he she they them his her their we you i".split()
)


def token_kinds(sample: Sample) -> list[str]:
    """One of ``KINDS`` for each token of the context.

    The first token is its own kind, since attention rests on it; in I, a token without a letter or digit is
    punctuation (white space included), a function word a connective, and the words of the question the question.

    Raises
    ------
    ValueError
        If the sample has no display tokens or no sentences.
    """
    if sample.tokens is None or not sample.sentences:
        raise ValueError(f"sample {sample.id} has no display tokens or sentences: build it with text.build_sample")
    asked = question_start(sample)
    names = {"context": "template", "reasoning": "reasoning", "output": "output"}
    labels = sample.segments.labels(len(sample))
    kinds = [
        names[label] if label in names else _input_kind(text, i >= asked)
        for i, (label, text) in enumerate(zip(labels, sample.tokens, strict=True))
    ]
    return ["first token", *kinds[1:]]


def _input_kind(text: str, asked: bool) -> str:
    if not any(char.isalnum() for char in text):
        return "punctuation"
    if text.strip().lower() in _CONNECTIVES:
        return "connective"
    return "question" if asked else "other words"


def mass_by_kind(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Share of each hop's mass on every kind of token, beside the share of the tokens that are of the kind.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, hop, kind, mass, tokens``; both shares of a hop sum to 1.
    """
    rows = []
    for sample, attribution in zip(samples, attributions, strict=True):
        kinds = np.array(token_kinds(sample))
        for k, hop in enumerate(attribution.hops):
            scores = hop.scores.double().numpy()
            for kind in KINDS:
                here = kinds == kind
                rows.append((sample.id, _cell(sample), k, kind, scores[here].sum() / scores.sum(), here.mean()))
    return pd.DataFrame(rows, columns=["sample", "cell", "hop", "kind", "mass", "tokens"])


def structure_table(frame: pd.DataFrame, kinds: Iterable[str] = STRUCTURE) -> pd.DataFrame:
    """Means of `mass_by_kind`: ``hop, kind, mean`` (of the mass) with ``low, high, n``, and ``tokens``."""
    rows = [
        {"hop": hop, "kind": kind, **mean_row(part["mass"]), "tokens": part["tokens"].mean()}
        for (hop, kind), part in frame[frame["kind"].isin(list(kinds))].groupby(["hop", "kind"], sort=False)
    ]
    return pd.DataFrame(rows, columns=["hop", "kind", "mean", "low", "high", "n", "tokens"])


def sample_properties(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """How well each attribution finds the evidence, and what may be to blame; samples without evidence are left out.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell``; ``recovery``, ``reached`` (recovery over the highest that is possible), ``r_precision``;
        ``gold_share`` (evidence tokens over |I|), ``gold_pieces`` (unbroken runs of them), ``gold_evenness`` and
        ``spread`` (exponential of the entropy of the scores on the evidence, and on I, over the number of tokens: 1
        where all have the same score); ``gold_mass``, ``question``, ``punctuation``, ``connective`` (shares of the
        final mass on I); ``first_token``, ``template`` (shares of hop 0's whole mass); ``quoted`` (share of the
        evidence's tokens that T repeats).
    """
    pairs = zip(samples, attributions, strict=True)
    return pd.DataFrame([_properties(s, a) for s, a in pairs if s.gold is not None and s.gold_in_prompt.any()])


def _properties(sample: Sample, attribution: Attribution) -> dict[str, float | str]:
    gold, scores = sample.gold_in_prompt.numpy(), attribution.scores.double().clamp(min=0).numpy()
    kinds = np.array(token_kinds(sample))
    on_input, whole = kinds[slice(*sample.segments.prompt)], attribution.hops[0].scores.double().numpy()
    in_reasoning = np.isin(sample.prompt_ids.numpy()[gold], sample.input_ids[slice(*sample.segments.reasoning)].numpy())
    recovery = recovery_rate(scores, gold)
    return {
        "sample": sample.id,
        "cell": _cell(sample),
        "recovery": recovery,
        "reached": recovery / recovery_cap(gold),
        "r_precision": r_precision(scores, gold),
        "gold_share": gold.mean(),
        "gold_pieces": int((np.diff(gold.astype(int), prepend=0) == 1).sum()),
        "gold_evenness": evenness(scores[gold]),
        "spread": evenness(scores),
        "gold_mass": scores[gold].sum() / scores.sum(),
        **{kind: scores[on_input == kind].sum() / scores.sum() for kind in ("question", "punctuation", "connective")},
        "first_token": whole[0] / whole.sum(),
        "template": whole[kinds == "template"].sum() / whole.sum(),
        "quoted": in_reasoning.mean(),
    }


def evenness(scores: np.ndarray) -> float:
    """exp(entropy) of the scores as a distribution, over their number: 1 where all are equal, 1/n where one has all."""
    if not scores.sum() > 0:
        return float("nan")
    shares = scores[scores > 0] / scores.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()) / len(scores))


def worst_samples(table: pd.DataFrame, n: int) -> pd.DataFrame:
    """The ``n`` rows of `sample_properties` that reached least; ties by R-precision, then by mass on the evidence."""
    return table.sort_values(["reached", "r_precision", "gold_mass"], kind="stable").head(n)


def contrast(table: pd.DataFrame, worst: Iterable[str], properties: Sequence[str] = (*DIFFUSE, *MASS)) -> pd.DataFrame:
    """What the worst samples share: the mean of every property among them and among the others.

    Parameters
    ----------
    table : pandas.DataFrame
        From `sample_properties`.
    worst : iterable of str
        Ids of samples.
    properties : sequence of str

    Returns
    -------
    pandas.DataFrame
        ``property, worst, others, difference, low, high, n_worst, n``; Welch's t interval of the difference
        (`intervals.difference_interval`), NaN where a group has fewer than six samples.
    """
    picked = table["sample"].isin(list(worst)).to_numpy()
    rows = []
    for name in properties:
        a, b = (part[~np.isnan(part)] for part in (table[name].to_numpy(float)[where] for where in (picked, ~picked)))
        low, high = difference_interval(a, b)
        means = [values.mean() if len(values) else np.nan for values in (a, b)]
        rows.append({"property": name, "worst": means[0], "others": means[1], "difference": means[0] - means[1],
                     "low": low, "high": high, "n_worst": len(a), "n": len(a) + len(b)})  # fmt: skip
    return pd.DataFrame(rows)


def top_places(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Who takes the places in the top tenth of I: the evidence, or which kind of other token.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, kind, places`` (share of the top tenth) and ``tokens`` (share of I, which a ranking by lot
        gives); the kinds are ``evidence`` and, outside it, those of ``ON_INPUT``; both shares sum to 1.
    """
    rows = []
    for sample, attribution in zip(samples, attributions, strict=True):
        gold = sample.gold_in_prompt.numpy()
        kinds = np.array(token_kinds(sample))[slice(*sample.segments.prompt)].astype(object)
        kinds[kinds == "first token"] = "other words"  # where I begins the context
        kinds[gold] = "evidence"
        top = kinds[ranking(attribution.scores)[: top_count(len(kinds))].numpy()]
        rows += [
            (sample.id, _cell(sample), kind, (top == kind).mean(), (kinds == kind).mean())
            for kind in ("evidence", *ON_INPUT)
        ]
    return pd.DataFrame(rows, columns=["sample", "cell", "kind", "places", "tokens"])


def _cell(sample: Sample) -> str:
    return str(sample.metadata.get("cell", ""))
