"""The reasoning tasks (sections 5.1 and 5.2, appendices D.3 and E.2): their samples, and what is asked of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation.results_table import summarise
from flashtrace_lib.metrics import mean_interval
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import documents_examples, task_examples
from flashtrace_lib.tasks.responses import Collection, collect
from flashtrace_lib.text.offsets import tokenise
from flashtrace_lib.text.sentences import asking_from

from .. import paths
from ..methods import profile_methods
from ..run import Run
from ..samples import stored_attributions
from ..statistics import rank_correlation

_SIX_DIGITS = 2e-5  # relative; tables keep six digits


def task_collection(run: Run, model: torch.nn.Module, tokenizer: Any, kind: str) -> Collection:
    """Samples of a reasoning task under the profile: its records, answered by the model.

    Parameters
    ----------
    kind : str
        A data set, see `tasks.datasets.task_examples`.

    Returns
    -------
    Collection
        Where the model is right too rarely, what ``reasoning.fallback`` of the profile says. Code is right where it
        passes the exercise's own tests.
    """
    settings = run.profile.reasoning
    examples = task_examples(kind, settings.max_tries, **_source(run, kind))
    if kind == "exercism":  # another solution than the reference one is right as well
        examples = [replace(example, scorer="unit_tests") for example in examples]
    store = Store(run.store(f"{kind}_responses"))
    found = collect(
        examples, model, tokenizer, settings.samples, store=store, max_new_tokens=settings.max_new_tokens,
        fallback=settings.fallback,
    )  # fmt: skip
    store.compact()
    return _checked(found, kind)


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
        ``counts`` has ``too long`` in addition: records whose supporting paragraphs alone do not fit; and, where there
        are any, ``faulty``: records whose supporting sentence does not exist.

    Raises
    ------
    ValueError
        If no record fits.
    """
    settings = run.profile.hotpotqa
    asked = settings.length if length is None else length
    examples, refused = documents_examples(
        settings.max_tries, asked, lambda text: len(tokenise(tokenizer, text)[0]), gold=settings.gold,
        **_source(run, "hotpotqa"),
    )  # fmt: skip
    if not examples:
        found = ", ".join(f"{n} {why}" for why, n in refused.items())
        raise ValueError(f"no record of HotpotQA fits into {asked} tokens ({found}): raise the profile's length")
    if length is not None:
        examples = [replace(example, cell=f"hotpotqa_{length}") for example in examples]
    store = Store(run.store("hotpotqa_responses"))
    found = collect(
        examples, model, tokenizer, settings.samples if length is None else settings.long_samples, store=store,
        max_new_tokens=settings.max_new_tokens, fallback=run.profile.reasoning.fallback, filtered=filtered,
    )  # fmt: skip
    store.compact()
    return _checked(replace(found, counts={**found.counts, **refused}), "HotpotQA")


def task_samples(run: Run, model: torch.nn.Module, tokenizer: Any, kind: str) -> list[Sample]:
    """Samples of a reasoning task, see `task_collection`."""
    return task_collection(run, model, tokenizer, kind).samples


def hotpotqa_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of HotpotQA in Table 1, see `hotpotqa_collection`."""
    return hotpotqa_collection(run, model, tokenizer).samples


def long_hotpotqa_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of HotpotQA at all lengths of Table 8, right or wrong, see `hotpotqa_collection`."""
    lengths = run.profile.hotpotqa.long_lengths
    found = (hotpotqa_collection(run, model, tokenizer, length, filtered=False) for length in lengths)
    return [sample for collection in found for sample in collection.samples]


def _checked(found: Collection, what: str) -> Collection:
    """The collection; ValueError where it has no sample, which no table could be made of."""
    if not found.samples:
        counts = ", ".join(f"{n} {name}" for name, n in found.counts.items())
        raise ValueError(
            f"no sample of {what} ({counts}): raise max_tries or max_new_tokens in the profile, or choose another "
            "reasoning.fallback"
        )
    return found


def _source(run: Run, kind: str) -> dict[str, Any]:
    """Where the profile's records come from; the exercises, which no hub holds, from a folder in the place of it."""
    source = run.profile.reasoning.source
    source = "folder" if (kind, source) == ("exercism", "hub") else source
    folder = paths.data_dir(run.profile.data_dir) if source == "folder" else None
    return {"source": source, "folder": folder, "seed": run.profile.seed}


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
    part = pd.qcut(lengths, min(bins, lengths.nunique()), labels=False, duplicates="drop")
    spans = lengths.groupby(part).agg(["median", "min", "max"]).set_axis(["length", "shortest", "longest"], axis=1)
    summary = summarise(frame.assign(bin=frame["sample"].map(part)), ("method", "metric", "bin"))
    table = summary.join(spans, on="bin").drop(columns="bin")
    return table.sort_values(["metric", "method", "length"], ignore_index=True)


def score_agreement(store: Store, samples: list[Sample], first: str, second: str) -> pd.DataFrame:
    """How two methods rank the input, sample by sample (Table 3 asks what the exhaustive rollout adds).

    Returns
    -------
    pandas.DataFrame
        ``sample, rho`` (Spearman's, over the tokens of I).
    """
    pairs = zip(
        samples, stored_attributions(store, samples, first), stored_attributions(store, samples, second), strict=True
    )
    rows = [{"sample": s.id, "rho": rank_correlation(a.scores, b.scores)} for s, a, b in pairs]
    return pd.DataFrame(rows, columns=["sample", "rho"])


def question_share(store: Store, samples: list[Sample], methods: Iterable[str]) -> pd.DataFrame:
    """How much of each method's mass on I lies on the question, see `question_start`.

    Returns
    -------
    pandas.DataFrame
        ``method``, ``mass`` with ``low, high`` (`metrics.mean_interval`), ``tokens`` (the share of I's tokens that
        stand there: what a ranking by lot gives) and ``n``. Samples that a method gives no mass are left out.
    """
    starts = [question_start(s) - s.segments.prompt[0] for s in samples]
    tokens = float(np.mean([1 - start / len(s.prompt_ids) for s, start in zip(samples, starts, strict=True)]))
    rows = []
    for method in methods:
        found = zip((a.scores.clamp(min=0) for a in stored_attributions(store, samples, method)), starts, strict=True)
        part = mean_row([float(x[start:].sum() / x.sum()) for x, start in found if x.any()])
        rows.append({"method": method, "mass": part["mean"], "low": part["low"], "high": part["high"],
                     "tokens": tokens, "n": part["n"]})  # fmt: skip
    return pd.DataFrame(rows)


def question_start(sample: Sample) -> int:
    """Position in the context from which on I asks its question.

    What the task knows (``metadata["question_start"]``, from `Example.question`); else the sentence that
    `sentences.asking_from` finds; of a sample without display tokens, which cannot be read, the last sentence.

    Raises
    ------
    ValueError
        If I has no sentences, or the position lies outside of it.
    """
    first, stop = sample.segments.prompt
    known = sample.metadata.get("question_start")
    if known is not None:
        if not first <= known < stop:
            raise ValueError(f"sample {sample.id}: question_start {known} lies outside its prompt ({first}, {stop})")
        return int(known)
    inside = sorted((a, b) for a, b in sample.sentences or () if first <= a and b <= stop)
    if not inside:
        raise ValueError(f"sample {sample.id} has no sentences in its prompt: make it by `collect`, or set `sentences`")
    if sample.tokens is None:
        return inside[-1][0]
    return inside[asking_from(["".join(sample.tokens[a:b]) for a, b in inside])][0]


def mean_row(values: Iterable[float]) -> dict[str, float]:
    """``mean``, its 95 % interval ``low, high`` (`metrics.mean_interval`), and ``n``."""
    values = np.asarray(list(values), dtype=float)
    low, high = mean_interval(values)
    return {"mean": float(values.mean()) if len(values) else np.nan, "low": low, "high": high, "n": len(values)}


def median_seconds(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds of one attribution of every method (`timing.paired_seconds`): ``method, median, low, high, n``.

    ``low`` and ``high`` are the quartiles.
    """
    once = frame.drop_duplicates(["sample", "method"])
    rows: list[Mapping[str, Any]] = []
    for method, part in once.groupby("method", sort=False):
        low, median, high = part["seconds"].quantile([0.25, 0.5, 0.75])
        rows.append({"method": method, "median": median, "low": low, "high": high, "n": len(part)})
    return pd.DataFrame(rows)


def printed_medians(records: pd.DataFrame, profile: str) -> list[tuple[str, str, Any, Any, bool]]:
    """Compare the medians that Table 3 prints with those of the runs in the store ``rollout_cost``.

    Returns
    -------
    list of (name, what is checked, printed, found, whether both agree)
    """
    path = paths.figures_dir(profile) / "table3_seconds.csv"
    if not path.is_file():
        return [(path.name, "is there", "", "missing", False)]
    each = records.assign(seconds=[float(np.median(runs)) for runs in records["seconds"]])
    medians = median_seconds(each).set_index("method")["median"]
    checks = []
    for row in pd.read_csv(path).itertuples():
        found = float(medians.get(row.method, math.nan))
        agrees = math.isclose(row.median, found, rel_tol=_SIX_DIGITS)
        checks.append((f"{path.stem}: {row.method}", "median of the stored runs", row.median, found, agrees))
    return checks
