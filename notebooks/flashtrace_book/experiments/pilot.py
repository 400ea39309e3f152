"""The pilot study (section 3.2, Fig. 1, appendix I): effect of reasoning on attribution, and cost of naive cures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Method
from flashtrace_lib.bench.measure import attribution_seconds, random_sample
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import STEPS, Collection, can_think, collect, teacher_forced
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.tasks.ruler_problems import RulerCell

from ..efficiency.timing import timed_method
from ..run import Run
from ..samples import all_samples, held_out
from ..statistics import mean_row, power_law, rank_correlation

N_OUTPUT = 16  # tokens of O in the cost measurement
_FITTED = 3  # sizes that an extrapolation is fitted to: measured whatever they take


def _problems(run: Run, tokenizer: Any, hops: int, n: int, length: int) -> list[Example]:
    """Problems with one chain of ``hops`` assignments, in prompts of ``length`` tokens."""
    cell = RulerCell("vt", hops=hops, chains=1)
    return ruler_examples(cell, length, tokenizer, n, seed=run.profile.seed + 1, one_shot=False, keep=held_out(run))


def growing_reasoning(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples whose reasoning grows with the number of assignments, by cell; answered by the model itself.

    A model whose template has no switch to thinking has its reasoning drawn out (`responses.prompt_settings`). A cell
    that the model cannot answer is teacher-forced and marked, as in `responses.collect`; one of ``forced_from``
    assignments and more is so without an attempt.
    """
    settings = run.profile.pilot
    store, mode = Store(run.store("pilot_responses")), None if can_think(tokenizer) else STEPS
    collections = {}
    for hops in tqdm(settings.hops, desc="pilot cells"):
        examples = _problems(run, tokenizer, hops, 3 * settings.samples, settings.length)
        if settings.forced_from is not None and hops >= settings.forced_from:
            collections[examples[0].cell] = teacher_forced(examples[: settings.samples], tokenizer, mode)
            continue
        collections[examples[0].cell] = collect(
            examples, model, tokenizer, settings.samples, store=store, max_new_tokens=settings.max_new_tokens, mode=mode
        )
    store.compact()
    return collections


def answered_both_ways(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """The same problems answered directly and after reasoning; only those that are right in both ways.

    A model whose template has no switch to thinking answers as it comes, and with its reasoning drawn out. Where no
    problem is right in both ways, the first ones are teacher-forced in both.

    Returns
    -------
    dict of way to Collection
        ``direct`` and ``thinking``, pairwise the same problems.
    """
    settings = run.profile.pilot
    examples = _problems(run, tokenizer, settings.compare_hops, 2 * settings.compare_samples, settings.compare_length)
    store = Store(run.store("pilot_responses"))
    modes = ("direct", "thinking") if can_think(tokenizer) else (None, STEPS)
    asked = dict(zip(("direct", "thinking"), modes, strict=True))
    found, right = {}, {}
    for way, mode in asked.items():
        found[way] = collect(
            examples,
            model,
            tokenizer,
            len(examples),
            store=store,
            max_new_tokens=settings.max_new_tokens,
            mode=mode,
            fallback="none",
        )
        right[way] = {sample.id: sample for sample in found[way].samples}
    store.compact()
    ids = [e.id for e in examples if e.id in right["direct"] and e.id in right["thinking"]][: settings.compare_samples]
    if ids:
        return {way: replace(found[way], samples=[right[way][key] for key in ids]) for way in found}
    chains = examples[: settings.compare_samples]
    chosen = {"direct": [replace(example, reasoning="") for example in chains], "thinking": chains}
    forced = {way: teacher_forced(chosen[way], tokenizer, mode) for way, mode in asked.items()}
    return {way: replace(forced[way], counts=found[way].counts) for way in found}


def pilot_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """All samples of the pilot study: growing reasoning, and problems answered both ways."""
    growing = all_samples(growing_reasoning(run, model, tokenizer))
    return [*growing, *all_samples(answered_both_ways(run, model, tokenizer))]


def mass_on_reasoning(
    store: Store, samples: Iterable[Sample], model: torch.nn.Module, methods: Iterable[str]
) -> pd.DataFrame:
    """Share of the attribution mass on T, from stored records.

    Gradient methods have signed scores: the negative ones count as 0, as in their ranking (appendix D.1).

    Parameters
    ----------
    store : Store
        Filled by `evaluation.evaluate`.
    samples : iterable of Sample
    model : transformers.PreTrainedModel
        Records of another model are left out.
    methods : iterable of str
        Labels wanted, as `evaluation.evaluate` got them.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, method, hop, n_reasoning, share, share_of_both``; methods without hops have only hop 0.
        ``share`` is of the mass on the whole context, ``share_of_both`` of the mass on I and T.
    """
    records = store.records()
    of_samples = records["sample_key"].isin({sample_fingerprint(sample) for sample in samples})
    of_methods = records["method"].isin(list(methods))
    of_model = records["model_key"] == model_fingerprint(model)
    rows = []
    for record in records[of_samples & of_methods & of_model].to_dict("records"):
        about = (record["sample"], record["cell"], record["method"])
        for hop, mass in enumerate(json.loads(record["method_metadata"]).get("mass", [])):
            on_reasoning = mass["reasoning"]
            of_both = on_reasoning / max(on_reasoning + mass["prompt"], 1e-30)
            rows.append((*about, hop, int(record["n_reasoning"]), on_reasoning, of_both))
    columns = ["sample", "cell", "method", "hop", "n_reasoning", "share", "share_of_both"]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.drop_duplicates(["sample", "method", "hop"])  # the same hops of a run with more of them
    return frame.sort_values(["method", "hop", "n_reasoning", "sample"], ignore_index=True)


def mean_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean shares of `mass_on_reasoning` by method, hop and cell: ``…, n_reasoning, share, share_of_both, n``."""
    groups = frame.groupby(["method", "hop", "cell"], sort=False)
    means = groups[["n_reasoning", "share", "share_of_both"]].mean()
    return means.assign(n=groups.size()).reset_index().sort_values(["method", "hop", "n_reasoning"], ignore_index=True)


def rank_correlations(frame: pd.DataFrame, share: str = "share") -> pd.DataFrame:
    """Spearman correlation of a share on T with |T|, per method and hop; columns ``method, hop, rho, n``."""
    rows = [
        {"method": method, "hop": hop, "rho": rank_correlation(part["n_reasoning"], part[share]), "n": len(part)}
        for (method, hop), part in frame.groupby(["method", "hop"], sort=False)
    ]
    return pd.DataFrame(rows)


def change_with_reasoning(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Metric after reasoning minus metric of the direct answer to the same problem, with its 95 % interval.

    Parameters
    ----------
    frames : mapping
        ``"direct"`` and ``"thinking"``, each from `evaluation.evaluate`, on the same problems.

    Returns
    -------
    pandas.DataFrame
        ``method, metric, difference, low, high, n``.
    """
    index = ["method", "metric", "sample"]
    direct, thinking = (frames[mode].set_index(index)["value"] for mode in ("direct", "thinking"))
    differences = (thinking - direct).dropna()
    rows = []
    for (method, metric), group in differences.groupby(level=["method", "metric"], sort=False):
        rows.append({"method": method, "metric": metric, **mean_row(group, "difference")})
    return pd.DataFrame(rows)


def cost_of_hops(run: Run, model: torch.nn.Module, methods: Mapping[str, Method], naive: Iterable[str]) -> pd.DataFrame:
    """Seconds of each method against |T|: measured up to the profile's limit, then extrapolated.

    FlashTrace explains O and recurses through T. A naive multi-hop attribution needs a vector for every token of T and
    of O: its method gets a sample whose output is all of them.

    Parameters
    ----------
    methods : mapping of label to Method
    naive : iterable of str
        Labels that explain every generated token.

    Returns
    -------
    pandas.DataFrame
        ``method, n_reasoning, seconds, measured``, the seconds of the median run. Where ``measured`` is False the
        seconds follow the power law fitted, by least squares on the logarithms, to the last three sizes that were
        measured.
    """
    settings, naive = run.profile.pilot, set(naive)
    store = Store(run.store("pilot_cost"))
    rows = []
    for label, method in methods.items():
        seconds = []
        for n_reasoning in tqdm(settings.cost_reasoning, desc=f"cost of {label}"):
            generated = (0, n_reasoning + N_OUTPUT) if label in naive else (n_reasoning, N_OUTPUT)
            shape = (settings.cost_input, *generated)
            seconds.append(_measured(store, model, label, method, shape, n_reasoning, settings.cost_runs))
            rows.append((label, n_reasoning, seconds[-1], True))
            if seconds[-1] > settings.cost_limit and len(seconds) >= _FITTED:
                break
        skipped = settings.cost_reasoning[len(seconds) :]
        if skipped:
            generated = [n + N_OUTPUT for n in settings.cost_reasoning[: len(seconds)]]
            factor, exponent = power_law(generated[-_FITTED:], seconds[-_FITTED:])
            rows += [(label, n, factor * (n + N_OUTPUT) ** exponent, False) for n in skipped]
    store.compact()
    return pd.DataFrame(rows, columns=["method", "n_reasoning", "seconds", "measured"])


def _measured(
    store: Store,
    model: torch.nn.Module,
    label: str,
    method: Method,
    shape: tuple[int, int, int],
    n_reasoning: int,
    runs: int,
) -> float:
    """Seconds of the median attribution, from the store where it was measured before; ``shape`` is |I|, |T|, |O|."""
    repeated = {"runs": runs} if runs > 1 else {}
    key = fingerprint({"model": model_fingerprint(model), "shape": shape, **repeated, **timed_method(method)})
    if key not in store:
        sample = random_sample(*shape, model.get_input_embeddings().num_embeddings)
        seconds = attribution_seconds(model, {label: method}, sample, runs)[label]
        store.put(key, {"method": label, "n_reasoning": n_reasoning, "seconds": statistics.median(seconds)})
    return float(store.get(key)["seconds"])
