"""Failure analysis by search (appendix N): the samples of the lowest recovery, and the tokens that take their mass.

The paper names two ways to fail: evidence that is diffuse, and structural tokens that take more mass than they mean.
Both are measured here on every attribution, so that failures are found and not picked. Kinds of token need the text of
a sample, which is not stored where it quotes essays: so `make` measures while the text is at hand, and the chapter
reads the parts ``kinds``, ``places`` and ``properties``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.evaluation.results_table import clusters, clusters_of
from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.metrics import r_precision, ranking, recovery_cap, recovery_rate, top_count
from flashtrace_lib.sample import Sample

from ..figures.mass import mass_by_label, mass_share
from ..profile import Profile, read
from ..statistics import mean_row

# Kinds of token: of the template, of I, and the rest; every token of a context has one.
KINDS = ("first token", "template", "punctuation", "connective", "question", "other words", "reasoning", "output")
STRUCTURE = KINDS[:4]
ON_INPUT = ("punctuation", "connective", "question", "other words")
# Properties of a sample that may go with its failure; `sample_properties` defines them.
DIFFUSE = ("gold_share", "gold_pieces", "gold_evenness", "spread")
MASS = ("gold_mass", "question", "punctuation", "connective", "first_token", "template", "quoted")
KINDS_PART, PLACES_PART, PROPERTIES_PART = "kinds", "places", "properties"
_CONNECTIVES = frozenset(
    "a an the this that these those and or but nor so yet if then than as at by for from in into of on onto to up with "
    "is are was were be been being am do does did has have had it its he she they them his her their we you i".split()
)


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the three parts, of FlashTrace as it is by default on the first samples of each cell.

    Parameters
    ----------
    profile : Profile
    name : str
        Section whose groups the samples are of.
    settings : mapping
        ``model``, and ``samples``: of each cell.
    """
    from .groups import model_of  # here and below, since a chapter that reads the parts needs no task and no model

    samples = first_samples(profile, name, **settings)
    model, _ = model_of(profile, settings["model"])
    return rows_of(samples, [FlashTrace().attribute(model, sample) for sample in samples], settings["model"])


def first_samples(profile: Profile, name: str, model: str, samples: int) -> list[Sample]:
    """The first samples of each cell of a section's groups of one model, with their text."""
    from .groups import Group, first_of_cells, group_collections

    groups = [read(Group, data, f"results.{name}.groups") for data in profile.results[name]["groups"]]
    cells = [group_collections(profile, group) for group in groups if group.model == model]
    everything = [sample for of_group in cells for collection in of_group.values() for sample in collection.samples]
    return first_of_cells(everything, samples)


def rows_of(samples: Sequence[Sample], attributions: Sequence[Attribution], model: str) -> list[dict[str, Any]]:
    """The rows of `make` for some samples and their attributions."""
    tables = {KINDS_PART: mass_by_kind, PLACES_PART: top_places, PROPERTIES_PART: sample_properties}
    return [
        {"part": part, "model": model, **row}
        for part, measure in tables.items()
        for row in measure(samples, attributions).to_dict("records")
    ]


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
    first, stop = sample.segments.prompt
    last = max((a for a, b in sample.sentences if first <= a and b <= stop), default=stop)
    question = sample.metadata.get("question_start", last)
    outside_input, kinds = {"context": "template", "reasoning": "reasoning", "output": "output"}, []
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
    """Share of each hop's mass on every kind of token (`mass_by_label`): ``kind``, ``mass``, ``expected``.

    ``expected`` is the share of the tokens that are of the kind, which an even spread would give.
    """
    frame = mass_by_label(samples, attributions, token_kinds, KINDS)
    return frame.rename(columns={"label": "kind", "tokens": "expected"})


def structure_table(frame: pd.DataFrame, kinds: Iterable[str] = STRUCTURE) -> pd.DataFrame:
    """Means of `mass_by_kind`: ``hop, kind, mean`` (of the mass) with its interval and n, and ``expected``."""
    groups = frame[frame["kind"].isin(list(kinds))].astype({"hop": int}).groupby(["hop", "kind"], sort=False)
    rows = [
        {"hop": hop, "kind": kind, **mean_row(part["mass"], clusters=clusters(part))}
        | {"expected": part["expected"].mean()}
        for (hop, kind), part in groups
    ]
    return pd.DataFrame(rows)


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
            cell = str(sample.metadata.get("cell", ""))
            about = {"sample": sample.id, "cluster": cluster_of[sample.id], "cell": cell}
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


def top_places(samples: Iterable[Sample], attributions: Iterable[Attribution]) -> pd.DataFrame:
    """Composition of the top tenth of I: shares of the evidence and of the kinds of other tokens.

    Returns
    -------
    pandas.DataFrame
        ``sample, cluster, cell, kind, places`` (share of the top tenth) and ``expected`` (share of I, the value of
        a random ranking); the kinds are ``evidence`` and, outside it, those of ``ON_INPUT``; both shares sum to 1.
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
            rows.append((sample.id, cluster_of[sample.id], str(sample.metadata.get("cell", "")), kind, *shares))
    return pd.DataFrame(rows, columns=["sample", "cluster", "cell", "kind", "places", "expected"])
