"""The reasoning tasks (sections 5.1 and 5.2, appendices D.3 and E.2): their samples and measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation.results_table import clusters, clusters_of, summarise
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import REAL, documents_examples, task_examples
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import NOTHING, Collection
from flashtrace_lib.tasks.synthetic import by_task
from flashtrace_lib.text.offsets import tokenise
from flashtrace_lib.text.sentences import question_in

from .. import paths
from ..methods import profile_methods
from ..run import Run
from ..samples import all_samples, collect_stored, stored_attributions
from ..statistics import line_slope, mean_row, rank_correlation

_SIX_DIGITS = 2e-5  # relative; tables keep six digits


def task_collection(run: Run, model: torch.nn.Module, tokenizer: Any, kind: str) -> Collection:
    """Samples of a reasoning task under the profile: its records, answered by the model.

    Code is correct where it passes the exercise's own tests.

    Parameters
    ----------
    kind : str
        A data set, see `tasks.datasets.task_examples`.

    Returns
    -------
    Collection
        Where too few responses are correct, its samples follow the profile's ``reasoning.fallback`` or ``fallbacks``.
        Where that is ``"none"``, they are the correct ones, however few, of all records that may be tried.

    Raises
    ------
    ValueError
        If no sample is left.
    """
    settings = run.profile.reasoning
    examples = task_examples(kind, settings.tries_of(kind), **records_from(run, kind))
    if kind == "exercism":  # a solution that differs from the reference can be correct
        examples = [replace(example, scorer="unit_tests") for example in examples]
    fallback = settings.fallback_of(kind)
    options = {"max_new_tokens": settings.max_new_tokens, "fallback": fallback, "give_up": fallback != NOTHING}
    options |= {"grounded": grounded(run, kind), **asked_as(run, kind)}
    store = f"{kind}_responses"
    return _checked(collect_stored(run, store, examples, model, tokenizer, settings.samples, **options), kind)


def hotpotqa_collection(
    run: Run, model: torch.nn.Module, tokenizer: Any, length: int | None = None, *, filtered: bool = True
) -> Collection:
    """Samples of HotpotQA in long contexts under the profile (Table 1; Table 8).

    Parameters
    ----------
    length : int, optional
        Tokens of the prompts. Default: the profile's, and the cell is called ``hotpotqa``; else ``hotpotqa_<length>``.
    filtered : bool
        Keep only correct responses; else the first finished ones, right or wrong (appendix K.1).

    Returns
    -------
    Collection
        Its ``counts`` also have ``too long``: records whose supporting paragraphs alone do not fit; and, where there
        are any, ``faulty``: records whose supporting sentence does not exist.

    Raises
    ------
    ValueError
        If no record fits, or no sample is left.
    """
    settings = run.profile.hotpotqa
    n_tokens = settings.length if length is None else length
    examples, refused = hotpotqa_examples(run, tokenizer, settings.max_tries, n_tokens)
    if not examples:
        counts = ", ".join(f"{n} {reason}" for reason, n in refused.items())
        raise ValueError(f"no record of HotpotQA fits into {n_tokens} tokens ({counts}): raise the profile's length")
    if length is not None:
        examples = [replace(example, cell=f"hotpotqa_{length}") for example in examples]
    n = settings.samples if length is None else settings.long_samples
    options = {"max_new_tokens": settings.max_new_tokens, "fallback": run.profile.reasoning.fallback_of("hotpotqa")}
    options |= asked_as(run, "hotpotqa")
    options["filtered"] &= filtered
    options["grounded"] = options["filtered"] and grounded(run, "hotpotqa")
    collection = collect_stored(run, "hotpotqa_responses", examples, model, tokenizer, n, **options)
    return _checked(replace(collection, counts={**collection.counts, **refused}), "HotpotQA")


def hotpotqa_examples(run: Run, tokenizer: Any, tries: int, n_tokens: int) -> tuple[list[Example], dict[str, int]]:
    """At most ``tries`` records of HotpotQA in prompts of ``n_tokens``, and how many were left out, by reason."""
    count, gold = (lambda text: len(tokenise(tokenizer, text)[0])), run.profile.hotpotqa.gold
    return documents_examples(tries, n_tokens, count, gold=gold, **records_from(run, "hotpotqa"))


def asked_as(run: Run, kind: str) -> dict[str, Any]:
    """How the profile has a task put to the model, what it keeps, and how it stores that: options of `collect`."""
    settings = run.profile.reasoning
    return {"mode": settings.modes.get(kind), "filtered": kind not in settings.unfiltered, "sealed": settings.is_real}


def grounded(run: Run, kind: str) -> bool:
    """Whether a response must restate its evidence to be kept, as those to the generated problems must."""
    return run.profile.reasoning.source == "synthetic" and kind in by_task.GENERATORS


def task_samples(run: Run, model: torch.nn.Module, tokenizer: Any, kind: str) -> list[Sample]:
    """Samples of a reasoning task, see `task_collection`."""
    return task_collection(run, model, tokenizer, kind).samples


def hotpotqa_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of HotpotQA in Table 1, see `hotpotqa_collection`."""
    return hotpotqa_collection(run, model, tokenizer).samples


def long_hotpotqa_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of HotpotQA at all lengths of Table 8, right or wrong, see `hotpotqa_collection`."""
    return all_samples(long_hotpotqa(run, model, tokenizer, filtered=False))


def long_hotpotqa(run: Run, model: torch.nn.Module, tokenizer: Any, *, filtered: bool) -> dict[str, Collection]:
    """HotpotQA at all lengths of Table 8, by cell; with Table 1's filter or without, see `hotpotqa_collection`."""
    lengths = run.profile.hotpotqa.long_lengths
    found = [hotpotqa_collection(run, model, tokenizer, length, filtered=filtered) for length in lengths]
    return {f"hotpotqa_{length}": collection for length, collection in zip(lengths, found, strict=True)}


def right_long_hotpotqa_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of HotpotQA at all lengths of Table 8 with Table 1's filter, see `hotpotqa_collection`."""
    return all_samples(long_hotpotqa(run, model, tokenizer, filtered=True))


def _checked(collection: Collection, name: str) -> Collection:
    """The collection; ValueError where it has no sample."""
    if not collection.samples:
        counts = ", ".join(f"{n} {outcome}" for outcome, n in collection.counts.items())
        raise ValueError(
            f"no sample of {name} ({counts}): raise max_tries or max_new_tokens in the profile, or choose another "
            "reasoning.fallback"
        )
    return collection


def records_from(run: Run, kind: str) -> dict[str, Any]:
    """Source of the profile's records of a data set, as arguments of `datasets.task_examples`."""
    source = run.profile.reasoning.source
    if (kind, source) == ("exercism", "hub"):  # no hub holds the exercises
        source = "folder"
    folder = paths.data_dir(run.profile.data_dir) if source == "folder" else None
    seed = run.profile.seed if run.profile.reasoning.shuffle or source not in REAL else None
    return {"source": source, "folder": folder, "seed": seed}


def reasoning_methods(run: Run, tokenizer: Any = None) -> list[Method]:
    """The methods that the profile compares on the reasoning tasks; see `methods.profile_methods`."""
    return profile_methods(run, run.profile.reasoning.methods, tokenizer)


def by_length(frame: pd.DataFrame, bins: int = 4) -> pd.DataFrame:
    """Means of every metric by the length of the reasoning (Fig. 5): samples in bins of nearly equal size.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluation.evaluate`.
    bins : int
        Quantiles of |T|; fewer where many samples are equally long.

    Returns
    -------
    pandas.DataFrame
        ``method, metric, length`` (median |T| of the bin, tokens), ``shortest, longest, mean, low, high, n, flagged``.

    Raises
    ------
    ValueError
        If ``bins`` is not positive.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    lengths = frame.drop_duplicates("sample").set_index("sample")["n_reasoning"].astype(int)
    bin_of = pd.qcut(lengths, min(bins, lengths.nunique()), labels=False, duplicates="drop")
    ranges = lengths.groupby(bin_of).agg(length="median", shortest="min", longest="max")
    summary = summarise(frame.assign(bin=frame["sample"].map(bin_of)), ("method", "metric", "bin"))
    table = summary.join(ranges, on="bin").drop(columns="bin")
    return table.sort_values(["metric", "method", "length"], ignore_index=True)


def length_slopes(frame: pd.DataFrame, per: int = 100) -> pd.DataFrame:
    """Change of every metric for each ``per`` further tokens of reasoning (Fig. 5), by a line through the samples.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluation.evaluate`.

    Returns
    -------
    pandas.DataFrame
        ``metric, method, slope, low, high, n`` (`statistics.line_slope`); samples without a value are left out, those
        of one template or record (`results_table.clusters`) averaged first, so that n counts independent points.
    """
    rows = []
    for (metric, method), part in frame.dropna(subset="value").groupby(["metric", "method"], sort=False):
        points = part.groupby(clusters(part), sort=False)[["n_reasoning", "value"]].mean()
        line = line_slope(points["n_reasoning"] / per, points["value"])
        rows.append({"metric": metric, "method": method, **line})
    return pd.DataFrame(rows, columns=["metric", "method", "slope", "low", "high", "points"]).rename(
        columns={"points": "n"}
    )


def score_agreement(store: Store, samples: list[Sample], first: Method, second: Method) -> pd.DataFrame:
    """Spearman's correlation of two methods' scores over the tokens of I (Table 3): ``sample, rho``."""
    of_first = stored_attributions(store, samples, first)
    of_second = stored_attributions(store, samples, second)
    rows = [
        {"sample": sample.id, "rho": rank_correlation(a.scores, b.scores)}
        for sample, a, b in zip(samples, of_first, of_second, strict=True)
    ]
    return pd.DataFrame(rows, columns=["sample", "rho"])


def means_over_samples(table: pd.DataFrame, samples: list[Sample]) -> pd.DataFrame:
    """Mean of every column of a table that has a row for each sample: ``quantity, mean, low, high, n``."""
    shared = table["sample"].map(clusters_of(samples))
    rows = [{"quantity": name, **mean_row(table[name], clusters=shared)} for name in table if name != "sample"]
    return pd.DataFrame(rows, columns=["quantity", "mean", "low", "high", "n"])


def question_share(store: Store, samples: list[Sample], methods: Iterable[Method]) -> pd.DataFrame:
    """Share of each method's mass on I that lies on the question, see `question_start`.

    Returns
    -------
    pandas.DataFrame
        ``method``, ``mass`` with ``low, high, n`` (`statistics.mean_row`), and ``tokens``, the question's share of I's
        tokens, which is the value of a random ranking. Samples that a method gives no mass are left out.
    """
    starts = [question_start(s) - s.segments.prompt[0] for s in samples]
    tokens = float(np.mean([1 - start / len(s.prompt_ids) for s, start in zip(samples, starts, strict=True)]))
    cluster_of, rows = clusters_of(samples), []
    for method in methods:
        shares, shared = [], []
        found = stored_attributions(store, samples, method)
        for sample, attribution, start in zip(samples, found, starts, strict=True):
            scores = attribution.scores.clamp(min=0)
            if scores.any():
                shares.append(float(scores[start:].sum() / scores.sum()))
                shared.append(cluster_of[sample.id])
        rows.append({"method": method.name, "tokens": tokens, **mean_row(shares, "mass", clusters=shared)})
    return pd.DataFrame(rows, columns=["method", "mass", "low", "high", "tokens", "n"])


def question_start(sample: Sample) -> int:
    """Position in the context where the question of I starts.

    The task gives it (``metadata["question_start"]``, from `Example.question`); else it is the sentence that
    `sentences.asking_from` finds, or the last one where the sample has no display tokens to read.

    Raises
    ------
    ValueError
        If I has no sentences, or the position lies outside of it.
    """
    first, stop = sample.segments.prompt
    start = sample.metadata.get("question_start")
    if start is not None:
        if not first <= start < stop:
            raise ValueError(f"sample {sample.id}: question_start {start} lies outside its prompt ({first}, {stop})")
        return int(start)
    sentences = sorted((a, b) for a, b in sample.sentences or () if first <= a and b <= stop)
    if not sentences:
        raise ValueError(f"sample {sample.id} has no sentences in its prompt: make it by `collect`, or set `sentences`")
    if sample.tokens is None:
        return sentences[-1][0]
    return question_in(sample.tokens, sentences, (first, stop))


def median_seconds(frame: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of each method's seconds (`timing.paired_seconds`): ``method, median, low, high, n``."""
    rows = []
    for method, part in frame.drop_duplicates(["sample", "method"]).groupby("method", sort=False):
        low, median, high = part["seconds"].quantile([0.25, 0.5, 0.75])
        rows.append({"method": method, "median": median, "low": low, "high": high, "n": len(part)})
    return pd.DataFrame(rows)


def printed_medians(records: pd.DataFrame, profile: str) -> list[tuple[str, str, Any, Any, bool]]:
    """Compare the medians that Table 3 prints with those of the runs in the store ``rollout_cost``.

    Returns
    -------
    list of (str, str, Any, Any, bool)
        File or method, name of the check, printed value, value found, and whether both agree.
    """
    path = paths.figures_dir(profile) / "table3_seconds.csv"
    if not path.is_file():
        return [(path.name, "is there", "", "missing", False)]
    seconds = records.assign(seconds=[float(np.median(runs)) for runs in records["seconds"]])
    medians = median_seconds(seconds).set_index("method")["median"]
    checks = []
    for row in pd.read_csv(path).itertuples():
        found = float(medians.get(row.method, math.nan))
        agrees = math.isclose(row.median, found, rel_tol=_SIX_DIGITS)
        checks.append((f"{path.stem}: {row.method}", "median of the stored runs", row.median, found, agrees))
    return checks
