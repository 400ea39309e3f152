"""The pilot study (section 3.2, Fig. 1, appendix I): effect of reasoning on attribution, and cost of naive cures."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib import FlashTrace
from flashtrace_lib.attribution import Attribution
from flashtrace_lib.bench.measure import attribution_seconds, random_sample
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint
from flashtrace_lib.methods import IFR, AttnLRP
from flashtrace_lib.methods.attnlrp import target_logits
from flashtrace_lib.methods.gradient_base import differentiable, embed, target_of
from flashtrace_lib.methods.lrp_rules import ATTNLRP, lrp_rules
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import STEPS, Collection, can_think, teacher_forced

from .. import paths
from ..figures.style import method_style
from ..profile import Profile, read
from ..results import Results
from ..statistics import mean_row, power_law, spearman
from .groups import RULER, Group, Plan, group_collections, group_examples, method_named, model_of, rows_of_group

SHARES = ("share", "share_of_both")
WAYS = ("direct", "thinking")
FLASHTRACE = "flashtrace"
FOLLOWED = FlashTrace(hops=2)  # where the reasoning grows: one hop more than the paper's, to see where its mass goes
N_OUTPUT = 16  # tokens of O in the cost measurement
_FITTED = 3  # sizes that an extrapolation is fitted to: measured whatever they take
_SEED = 1  # on top of the profile's: other problems than chapter 05's


class AttnLRPByToken(AttnLRP):
    """AttnLRP with a vector for every token of O: a backward pass for each, over one common forward pass."""

    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        target = target_of(model, sample)
        with differentiable(model), lrp_rules(model, ATTNLRP):
            embeddings = embed(model, target.context).requires_grad_()  # [1, n, d]
            logits = target_logits(model, embeddings, target)
            gradients = [torch.autograd.grad(logit, embeddings, retain_graph=True)[0][0] for logit in logits]
        relevance = [(gradient * embeddings[0].detach()).float().sum(-1) for gradient in gradients]
        return self._attribution(model, torch.stack(relevance).mean(0).cpu(), sample)


# A naive multi-hop attribution needs a vector for every token of T and of O, which are then the output of a sample.
NAIVE = {"attnlrp per token": AttnLRPByToken(), "ifr per token": IFR(batch_size=1)}


@dataclass(frozen=True)
class Pilot:
    """Settings of the pilot study.

    Parameters
    ----------
    model : str
        Of the profile's ``models``.
    hops : tuple of int
        Assignments of the chains whose reasoning grows.
    samples, length : int
        Chains of each, and tokens of their prompts.
    compare_hops, compare_samples, compare_length : int
        Of the problems that are answered both ways.
    methods, controls : tuple of str
        Labels; the controls rank the problems answered both ways alone.
    max_new_tokens : int
        The longest answer.
    cost_input : int
        |I| of the cost measurement, tokens.
    cost_reasoning : tuple of int
        Its lengths of T, ascending.
    cost_limit : float
        Seconds after which a method is not measured at longer ones.
    cost_runs : int
        Runs, of which the median is kept.
    forced_from : int, optional
        Chains of so many assignments and more get the reference reasoning without an attempt.
    """

    model: str
    hops: tuple[int, ...]
    samples: int
    length: int
    compare_hops: int
    compare_samples: int
    compare_length: int
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    max_new_tokens: int
    cost_input: int
    cost_reasoning: tuple[int, ...]
    cost_limit: float
    cost_runs: int
    forced_from: int | None = None

    def group(self, **settings: Any) -> Group:
        """Chains for the study's model."""
        about = {"model": self.model, "task": RULER, "seed": _SEED, "max_new_tokens": self.max_new_tokens, "plans": ()}
        return Group(**about, **settings)


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the study: chains whose reasoning grows, problems answered both ways, and times."""
    pilot = read(Pilot, settings, f"results.{name}.pilot")
    model, _ = model_of(profile, pilot.model)
    store = Store(paths.working_store(profile.name, name))
    growing, ways = growing_reasoning(profile, pilot), answered_both_ways(profile, pilot)
    chains = [sample for collection in growing.values() for sample in collection.samples]
    methods = {label: FOLLOWED if label == FLASHTRACE else method_named(profile, label) for label in pilot.methods}
    evaluate(model, methods, chains, store=store, metrics=("recovery",), steps=profile.steps)
    group = pilot.group(cells=tuple(growing))
    rows = rows_of_group(profile, group, [], growing, store)
    rows += rows_of_group(profile, group, [Plan((*pilot.methods, *pilot.controls))], ways, store)
    times = Store(paths.working_store(profile.name, f"{name}_cost"))
    return rows + [{"part": "cost", **row} for row in measured_cost(pilot, model, times)]


def growing_reasoning(profile: Profile, pilot: Pilot) -> dict[str, Collection]:
    """Samples whose reasoning grows with the number of assignments, by cell.

    The model answers by itself. A model whose template has no switch to thinking has its reasoning drawn out
    (`responses.prompt_settings`). A cell that it cannot answer is teacher-forced, as in `responses.collect`.
    """
    _, tokenizer = model_of(profile, pilot.model)
    mode = None if can_think(tokenizer) else STEPS
    n, found = pilot.samples, {}
    for hops in pilot.hops:
        group = pilot.group(cells=(f"h{hops}_c1",), length=pilot.length, samples=n, tries=3 * n, mode=mode)
        if pilot.forced_from is None or hops < pilot.forced_from:
            found |= group_collections(profile, group)
        else:
            problems = group_examples(profile, group, tokenizer)
            found |= {cell: teacher_forced(tokenizer, examples[:n], mode) for cell, examples in problems.items()}
    return found


def answered_both_ways(profile: Profile, pilot: Pilot) -> dict[str, Collection]:
    """The same problems answered ``direct`` and ``thinking``, pairwise; only those that are right in both ways.

    A model whose template has no switch to thinking answers as it comes, and with its reasoning drawn out. Where no
    problem is right in both ways, the first ones are teacher-forced in both.
    """
    _, tokenizer = model_of(profile, pilot.model)
    n, found = pilot.compare_samples, {}
    modes = WAYS if can_think(tokenizer) else (None, STEPS)
    about = {"cells": (f"h{pilot.compare_hops}_c1",), "length": pilot.compare_length, "tries": 2 * n, "samples": 2 * n}
    groups = {w: pilot.group(**about, name=w, mode=mode, keep="right") for w, mode in zip(WAYS, modes, strict=True)}
    for group in groups.values():
        found |= group_collections(profile, group)
    right = {way: {sample.id: sample for sample in found[way].samples} for way in WAYS}
    ids = [key for key in right["direct"] if key in right["thinking"]][:n]
    if ids:
        return {way: replace(found[way], samples=[right[way][key] for key in ids]) for way in WAYS}
    for way, group in groups.items():
        (chains,) = group_examples(profile, group, tokenizer).values()
        chains = [replace(e, cell=way, **{"reasoning": ""} if way == "direct" else {}) for e in chains[:n]]
        found[way] = replace(teacher_forced(tokenizer, chains, group.mode), counts=found[way].counts)
    return found


def measured_cost(pilot: Pilot, model: torch.nn.Module, store: Store) -> list[dict[str, Any]]:
    """Seconds of each method against |T|, the median of the runs, up to the limit: ``method, n_reasoning, seconds``."""
    rows = []
    for label, method in (NAIVE | {FLASHTRACE: FlashTrace()}).items():
        for count, n in enumerate(tqdm(pilot.cost_reasoning, desc=f"cost of {label}"), 1):
            shape = (pilot.cost_input, 0, n + N_OUTPUT) if label in NAIVE else (pilot.cost_input, n, N_OUTPUT)
            timed = {"shape": shape, "runs": pilot.cost_runs, "method": [method.name, method.options()]}
            key = fingerprint({"model": model_fingerprint(model), **timed})
            if key not in store:
                sample = random_sample(*shape, model.get_input_embeddings().num_embeddings)
                times = attribution_seconds(model, {label: method}, sample, pilot.cost_runs)[label]
                store.put(key, {"method": label, "n_reasoning": n, "seconds": statistics.median(times)})
            rows.append(dict(store.get(key)))
            if rows[-1]["seconds"] > pilot.cost_limit and count >= _FITTED:
                break
    return rows


def mass_on_reasoning(results: Results, methods: Sequence[str], **where: Any) -> pd.DataFrame:
    """Share of the attribution mass on T, by sample, method and hop.

    Gradient methods have signed scores: the negative ones count as 0, as in their ranking (appendix D.1).

    Parameters
    ----------
    results : Results
    methods : sequence of str
        Labels, in the order of the rows.
    **where
        Samples, as in `Results.samples`.

    Returns
    -------
    pandas.DataFrame
        ``cell, sample, answers, cluster, n_reasoning, method, hop, label, share, share_of_both``; methods without hops
        have only hop 0. ``share`` is of the mass on the whole context, ``share_of_both`` of the mass on I and T.
    """
    kept = ["cell", "sample", "answers", "cluster", "n_reasoning"]
    explained = results.part("method")[["sample_key", "method", "method_metadata"]]
    explained, rows = explained.merge(results.samples(**where)[["sample_key", *kept]], on="sample_key"), []
    for method in methods:
        for record in explained[explained["method"] == method].to_dict("records"):
            hops = json.loads(record["method_metadata"])["mass"]
            for hop, mass in enumerate(hops):
                label = method_style(method).label + (f" hop {hop}" if len(hops) > 1 else "")
                about = {name: record[name] for name in kept} | {"method": method, "hop": hop, "label": label}
                share = mass.get("reasoning", 0.0)
                rows.append({**about, "share": share, "share_of_both": share / max(share + mass["prompt"], 1e-30)})
    return pd.DataFrame(rows, columns=[*kept, "method", "hop", "label", *SHARES])


def mean_shares(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean shares of `mass_on_reasoning` by groups, by length: ``…, n_reasoning, share, share_of_both, n``."""
    groups = frame.groupby(list(by), sort=False)
    means = groups[["n_reasoning", *SHARES]].mean().assign(n=groups.size()).reset_index()
    return means.sort_values("n_reasoning", kind="stable", ignore_index=True)


def trends(frame: pd.DataFrame, *, within: bool = False) -> pd.DataFrame:
    """Spearman's correlation of the shares on T with |T| (`statistics.spearman`), by method and hop.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `mass_on_reasoning`, samples that are independent.
    within : bool
        Of the deviations from the mean of the cell: what length does where the number of assignments is the same.

    Returns
    -------
    pandas.DataFrame
        ``label, hop, share, rho, low, high, n``.
    """
    rows = []
    for (label, hop), part in frame.groupby(["label", "hop"], sort=False):
        values = part[["n_reasoning", *SHARES]]
        if within:
            values = values - part.groupby("cell")[["n_reasoning", *SHARES]].transform("mean")
        found = ((share, spearman(values["n_reasoning"], values[share])) for share in SHARES)
        rows += [{"label": label, "hop": hop, "share": share, **row} for share, row in found]
    return pd.DataFrame(rows)


def change_with_reasoning(frame: pd.DataFrame) -> pd.DataFrame:
    """Metric after reasoning minus metric of the direct answer to the same problem, with its 95 % interval.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `Results.frame`, cells ``direct`` and ``thinking``.

    Returns
    -------
    pandas.DataFrame
        ``method, metric, difference, low, high, n, n_effective``.
    """
    wide = frame.pivot_table(index=["method", "metric", "sample"], columns="cell", values="value", sort=False)
    groups = (wide["thinking"] - wide["direct"]).dropna().groupby(level=["method", "metric"], sort=False)
    return pd.DataFrame([{"method": m, "metric": name, **mean_row(part, "difference")} for (m, name), part in groups])


def cost_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Seconds of part ``cost``, extrapolated to lengths that another method alone was measured at.

    Returns
    -------
    pandas.DataFrame
        ``method, n_reasoning, seconds, measured``. Where ``measured`` is False the seconds follow the power law fitted,
        by least squares on the logarithms, to the last three lengths that were measured.
    """
    sizes, rows = sorted(measured["n_reasoning"].astype(int).unique()), []
    for method in (*NAIVE, FLASHTRACE):
        seconds = measured[measured["method"] == method].set_index("n_reasoning")["seconds"].sort_index()
        last = seconds.iloc[-_FITTED:]
        factor, exponent = power_law(last.index + N_OUTPUT, last)  # what grows is T and O
        for n in sizes:
            known = n in seconds.index
            rows.append((method, n, float(seconds[n]) if known else factor * (n + N_OUTPUT) ** exponent, known))
    return pd.DataFrame(rows, columns=["method", "n_reasoning", "seconds", "measured"])


def growth_of_factor(cost: pd.DataFrame) -> pd.DataFrame:
    """How many times as slow as FlashTrace a naive method is, at its shortest and its longest measured reasoning.

    Returns
    -------
    pandas.DataFrame
        ``method, shortest, longest`` (tokens of T), ``factor_shortest, factor_longest`` and ``value``, their ratio.
    """
    known, rows = cost[cost["measured"]].pivot(index="n_reasoning", columns="method", values="seconds"), []
    for method in NAIVE:
        factor = (known[method] / known[FLASHTRACE]).dropna()
        ends = {"shortest": factor.index[0], "longest": factor.index[-1]}
        first, last = factor.iloc[0], factor.iloc[-1]
        rows.append({"method": method, **ends, "factor_shortest": first, "factor_longest": last, "value": last / first})
    return pd.DataFrame(rows)
