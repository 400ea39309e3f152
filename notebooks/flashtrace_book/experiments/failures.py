"""Failure analysis by search (appendix N): the samples of the lowest recovery, and the tokens that take their mass.

The paper names two ways to fail: evidence that is diffuse, and structural tokens that take more mass than they mean.
Both are measured here on every stored attribution, so that failures are found and not picked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.evaluation.results_table import clusters, clusters_of
from flashtrace_lib.metrics import r_precision, ranking, recovery_cap, recovery_rate, top_count
from flashtrace_lib.metrics.intervals import difference_interval
from flashtrace_lib.sample import Sample

from ..figures.mass import mass_by_label, mass_share
from ..samples import cell_of
from ..statistics import mean_row
from .reasoning_tasks import question_start

# Kinds of token: of the template, of I, and the rest; every token of a context has one.
KINDS = ("first token", "template", "punctuation", "connective", "question", "other words", "reasoning", "output")
STRUCTURE = KINDS[:4]
ON_INPUT = ("punctuation", "connective", "question", "other words")
# Properties of a sample that may go with its failure; `sample_properties` defines them.
DIFFUSE = ("gold_share", "gold_pieces", "gold_evenness", "spread")
MASS = ("gold_mass", "question", "punctuation", "connective", "first_token", "template", "quoted")
_CONNECTIVES = frozenset(
    "a an the this that these those and or but nor so yet if then than as at by for from in into of on onto to up with "
    "is are was were be been being am do does did has have had it its he she they them his her their we you i".split()
)


def token_kinds(sample: Sample) -> list[str]:
    """One of ``KINDS`` for each token of the context.

    The first token is its own kind, since it is an attention sink. In I, a token without a letter or digit is
    punctuation (white space included), a function word is a connective, other words of the question are the question.

    Raises
    ------
    ValueError
        If the sample has no display tokens or no sentences.
    """
    if sample.tokens is None or not sample.sentences:
        raise ValueError(f"sample {sample.id} has no display tokens or sentences: build it with text.build_sample")
    question = question_start(sample)
    outside_input = {"context": "template", "reasoning": "reasoning", "output": "output"}
    kinds = []
    for i, (label, text) in enumerate(zip(sample.segments.labels(len(sample)), sample.tokens, strict=True)):
        kinds.append(outside_input.get(label) or _input_kind(text, in_question=i >= question))
    return ["first token", *kinds[1:]]


def _input_kind(text: str, in_question: bool) -> str:
    if not any(char.isalnum() for char in text):
        return "punctuation"
    if text.strip().lower() in _CONNECTIVES:
        return "connective"
    return "question" if in_question else "other words"


def mass_by_kind(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Share of each hop's mass on every kind of token: `mass_by_label` with ``kind`` in the place of ``label``."""
    return mass_by_label(samples, attributions, token_kinds, KINDS).rename(columns={"label": "kind"})


def structure_table(frame: pd.DataFrame, kinds: Iterable[str] = STRUCTURE) -> pd.DataFrame:
    """Means of `mass_by_kind`: ``hop, kind, mean`` (of the mass) with ``low, high, n``, and ``tokens``."""
    groups = frame[frame["kind"].isin(list(kinds))].groupby(["hop", "kind"], sort=False)
    rows = [
        {"hop": hop, "kind": kind, **mean_row(part["mass"], clusters=clusters(part)), "tokens": part["tokens"].mean()}
        for (hop, kind), part in groups
    ]
    return pd.DataFrame(rows, columns=["hop", "kind", "mean", "low", "high", "n", "tokens"])


def sample_properties(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """How well each attribution finds the evidence, and possible causes; samples without evidence are left out.

    Returns
    -------
    pandas.DataFrame
        ``sample, cluster, cell``; ``recovery``, ``reached`` (recovery over the highest that is possible),
        ``r_precision``; ``gold_share`` (evidence tokens over |I|), ``gold_pieces`` (unbroken runs of them),
        ``gold_evenness`` and ``spread`` (`evenness` of the scores on the evidence, and on I); ``gold_mass``,
        ``question``, ``punctuation``, ``connective`` (shares of the final mass on I); ``first_token``, ``template``
        (shares of hop 0's mass on the context); ``quoted`` (share of the evidence's tokens that T repeats).
    """
    samples, rows = list(samples), []
    cluster_of = clusters_of(samples)
    for sample, attribution in zip(samples, attributions, strict=True):
        if sample.gold is not None and sample.gold_in_prompt.any():
            about = {"sample": sample.id, "cluster": cluster_of[sample.id], "cell": cell_of(sample)}
            rows.append(about | _properties(sample, attribution))
    return pd.DataFrame(rows)


def _properties(sample: Sample, attribution: Attribution) -> dict[str, float]:
    gold = sample.gold_in_prompt.numpy()  # [|I|]
    scores = attribution.scores.double().clamp(min=0).numpy()  # [|I|]
    context_scores = attribution.hops[0].scores.double().numpy()  # [N]
    kinds = np.array(token_kinds(sample))  # [N]
    input_kinds = kinds[slice(*sample.segments.prompt)]
    reasoning_ids = sample.input_ids[slice(*sample.segments.reasoning)].numpy()
    recovery = recovery_rate(scores, gold)
    return {
        "recovery": recovery,
        "reached": recovery / recovery_cap(gold),
        "r_precision": r_precision(scores, gold),
        "gold_share": gold.mean(),
        "gold_pieces": int((np.diff(gold.astype(int), prepend=0) == 1).sum()),
        "gold_evenness": evenness(scores[gold]),
        "spread": evenness(scores),
        "gold_mass": mass_share(scores, gold),
        **{kind: mass_share(scores, input_kinds == kind) for kind in ("question", "punctuation", "connective")},
        "first_token": mass_share(context_scores, kinds == "first token"),
        "template": mass_share(context_scores, kinds == "template"),
        "quoted": np.isin(sample.prompt_ids.numpy()[gold], reasoning_ids).mean(),
    }


def evenness(scores: np.ndarray) -> float:
    """exp(entropy) of the normalised scores, over their number n: 1 where all are equal, 1/n where one has all."""
    if not scores.sum() > 0:
        return float("nan")
    shares = scores[scores > 0] / scores.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()) / len(scores))


def worst_samples(table: pd.DataFrame, n: int) -> pd.DataFrame:
    """The ``n`` rows of `sample_properties` with the least ``reached``; ties by R-precision, then ``gold_mass``."""
    return table.sort_values(["reached", "r_precision", "gold_mass"], kind="stable").head(n)


def contrast(table: pd.DataFrame, worst: Iterable[str], properties: Sequence[str] = (*DIFFUSE, *MASS)) -> pd.DataFrame:
    """Mean of every property among the worst samples and among the others.

    Parameters
    ----------
    table : pandas.DataFrame
        From `sample_properties`.
    worst : iterable of str
        Ids of samples.
    properties : sequence of str
        Columns of the table.

    Returns
    -------
    pandas.DataFrame
        ``property, worst, others, difference, low, high, n_worst, n``; Welch's t interval of the difference
        (`intervals.difference_interval`), NaN where a group has fewer than six clusters of samples.
    """
    is_worst = table["sample"].isin(list(worst))
    rows = []
    for name in properties:
        known = table.dropna(subset=name)
        a, b = known[is_worst], known[~is_worst]
        low, high = difference_interval(a[name], b[name], clusters=(clusters(a), clusters(b)))
        mean_a, mean_b = a[name].mean(), b[name].mean()
        rows.append((name, mean_a, mean_b, mean_a - mean_b, low, high, len(a), len(a) + len(b)))
    columns = ["property", "worst", "others", "difference", "low", "high", "n_worst", "n"]
    return pd.DataFrame(rows, columns=columns)


def top_places(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Composition of the top tenth of I: shares of the evidence and of the kinds of other tokens.

    Returns
    -------
    pandas.DataFrame
        ``sample, cluster, cell, kind, places`` (share of the top tenth) and ``tokens`` (share of I, which is the value
        of a random ranking); the kinds are ``evidence`` and, outside it, those of ``ON_INPUT``; both shares sum to 1.
    """
    samples, rows = list(samples), []
    cluster_of = clusters_of(samples)
    for sample, attribution in zip(samples, attributions, strict=True):
        gold = sample.gold_in_prompt.numpy()
        kinds = np.array(token_kinds(sample))[slice(*sample.segments.prompt)].astype(object)
        kinds[kinds == "first token"] = "other words"  # where I begins the context
        kinds[gold] = "evidence"
        top = kinds[ranking(attribution.scores)[: top_count(len(kinds))].numpy()]
        for kind in ("evidence", *ON_INPUT):
            shares = ((top == kind).mean(), (kinds == kind).mean())
            rows.append((sample.id, cluster_of[sample.id], cell_of(sample), kind, *shares))
    return pd.DataFrame(rows, columns=["sample", "cluster", "cell", "kind", "places", "tokens"])
