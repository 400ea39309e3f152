"""What several notebooks do with a run: its samples, its methods, the comparisons they print.

Everything here resumes from the run's stores and shows progress; notebooks hold the narrative and the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .activations import LayerActivations
from .attribution import Attribution, Hop, Method
from .fingerprints import sample_fingerprint
from .frames import clusters
from .generation import GENERATED, MARKS, Collection, can_think, collect
from .methods import METHODS, FlashTrace
from .methods.hops import accumulate
from .methods.units import UnitMethod
from .metrics import mean_interval, recovery_rate
from .profiles import Profile
from .proximity import aggregate, head_proximity
from .reference import captured_maps
from .report.output import Run
from .report.style import HIGHER_IS_BETTER
from .sample import Sample, Span
from .store import Store
from .tasks.ruler import ruler_examples
from .tasks.ruler_problems import Keep
from .tasks.splits import in_split

TOO_FEW = "too few samples"  # stands for a verdict where there is no interval


def profile_methods(run: Run, names: Iterable[str] | None = None, tokenizer: Any = None) -> list[Method]:
    """The methods of the run's profile, or those named, with the profile's options and number of hops.

    Parameters
    ----------
    names : iterable of str, optional
        Keys of ``METHODS``. Default: the profile's.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The model's, for methods that take one (ReAGent with a masked language model).

    Raises
    ------
    ValueError
        If a method or an option is unknown, or an option does not fit.
    """
    profile = run.profile
    names = list(profile.methods if names is None else names)
    unknown = [name for name in (*names, *profile.method_options) if name not in METHODS]
    if unknown:
        raise ValueError(f"profile {profile.name}: unknown methods {unknown}; known are {sorted(METHODS)}")
    return [_made(profile, name, tokenizer) for name in names]


def _made(profile: Profile, name: str, tokenizer: Any) -> Method:
    """One method with the profile's options."""
    try:
        return build_method(name, method_options(profile, name), tokenizer)
    except ValueError as error:
        raise ValueError(f"profile {profile.name}: {error}") from None


def method_options(profile: Profile, name: str) -> dict[str, Any]:
    """Options of a method under a profile: its own, and the profile's number of hops."""
    options = dict(profile.method_options.get(name, {}))
    if issubclass(METHODS[name], FlashTrace):
        options = {"hops": profile.hops} | options
    return options


def sweep_options(profile: Profile, name: str) -> dict[str, Any]:
    """`method_options` for a sweep of lengths: sentences throughout, so that a curve measures one algorithm."""
    units = {"units": "sentence"} if issubclass(METHODS[name], UnitMethod) else {}
    return units | method_options(profile, name)


def build_method(name: str, options: Mapping[str, Any], tokenizer: Any = None) -> Method:
    """A method by its name, with options; one that takes a tokenizer gets it.

    Raises
    ------
    ValueError
        If it has no such option, or a value does not fit.
    """
    known = [f.name for f in fields(METHODS[name]) if f.init]
    if unknown := [option for option in options if option not in known]:
        raise ValueError(f"method {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        return METHODS[name](**options, **({"tokenizer": tokenizer} if "tokenizer" in known else {}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"method {name}: {error}") from None


def ruler_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of every RULER cell of the profile, answered by the model or, where it cannot, teacher-forced."""
    settings = run.profile.ruler
    store = Store(run.store("ruler_responses"))
    collections = {}
    for cell in tqdm(settings.cells, desc="RULER cells"):
        haystack = None if cell.startswith("h") else settings.haystack  # assignments always stand in noise
        examples = ruler_examples(
            cell, settings.length_of(cell), tokenizer, settings.max_tries, seed=run.profile.seed, haystack=haystack,
            one_shot=settings.one_shot if cell.startswith("h") else "auto", keep=held_out(run),
        )  # fmt: skip
        collections[cell] = collect(
            examples, model, tokenizer, settings.samples, store=store, max_new_tokens=settings.max_new_tokens
        )
    store.compact()
    return collections


def held_out(run: Run) -> Keep | None:
    """What a problem may be made of: with the embedded model's adapter, only what its training never showed."""
    return partial(in_split, split="eval") if run.model_name == "embedded" else None


def ruler_setting(profile: Profile) -> str:
    """How the profile's samples of Table 1 differ in what the benchmark leaves open; a sentence for captions."""
    shot = {
        True: "with RULER's worked example",
        False: "without RULER's worked example",
        "auto": "with RULER's worked example where the length leaves room for it",
    }[profile.ruler.one_shot]
    return f"Variable tracking {shot}; evidence of HotpotQA: the supporting {profile.hotpotqa.gold}s."


def all_samples(collections: Mapping[str, Collection]) -> list[Sample]:
    """Samples of all cells, in order."""
    return [sample for collection in collections.values() for sample in collection.samples]


def count_table(collections: Mapping[str, Collection]) -> pd.DataFrame:
    """One row a cell: what was tried, kept and dropped, how long the parts are, how much of the input is gold."""
    rows = []
    for cell, collection in collections.items():
        parts = [sample.segments for sample in collection.samples]
        gold = [float(s.gold_in_prompt.float().mean()) for s in collection.samples if s.gold is not None]
        rows.append(
            {"cell": cell, **collection.counts, "kept": len(parts), "responses": _kind(collection),
             "|I|": _median(p.prompt for p in parts), "|T|": _median(p.reasoning for p in parts),
             "|O|": _median(p.output for p in parts), "gold share": round(float(np.mean(gold)), 3) if gold else None}
        )  # fmt: skip
    table = pd.DataFrame(rows)
    refused = table.columns.intersection(["too long", "faulty"])  # counted of documents alone
    return table.assign(**{name: table[name].fillna(0).astype(int) for name in refused})


def _kind(collection: Collection) -> str:
    return "the model's own" if collection.kind == GENERATED else collection.kind + MARKS[collection.kind]


def _median(spans: Iterable[tuple[int, int]]) -> int:
    lengths = [stop - start for start, stop in spans]
    return int(np.median(lengths)) if lengths else 0


def mark_cells(frame: pd.DataFrame, collections: Mapping[str, Collection]) -> pd.DataFrame:
    """Put ‡ behind the name of every cell whose responses are teacher-forced, § behind unfiltered ones, for display."""
    marked = {cell: cell + MARKS[collection.kind] for cell, collection in collections.items()}
    return frame.replace({"cell": marked})


def paired_difference(frame: pd.DataFrame, first: str, second: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """Mean difference ``first − second`` on the same samples, with its 95 % interval (`metrics.mean_interval`).

    What a group holds of one template or record (`frames.clusters`) is averaged first, so that ``n`` counts what is
    independent. Cells are fixed and their samples drawn apart: pooled over cells, the differences between cells
    add to the spread, and the interval is rather too wide than too narrow.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluation.evaluate`.
    first, second : str
        Labels of two methods.
    by : tuple of str
        Columns that form the groups, ``metric`` among them.

    Returns
    -------
    pandas.DataFrame
        The groups with ``difference, low, high, n`` and ``better``: the method that the interval favours,
        ``"neither"`` where it holds zero, `TOO_FEW` where there is none.
    """
    of_sample = clusters(frame).groupby(frame["sample"]).first()
    wide = frame.pivot_table(index=["sample", "cell", "metric"], columns="method", values="value").reset_index()
    rows = []
    for keys, group in wide.groupby(list(by), sort=False):
        metric = dict(zip(by, keys, strict=True))["metric"]
        gaps = (group[first] - group[second]).dropna().groupby(group["sample"].map(of_sample)).mean().to_numpy()
        low, high = mean_interval(gaps)
        ahead = low > 0 if HIGHER_IS_BETTER.get(metric) else high < 0
        behind = high < 0 if HIGHER_IS_BETTER.get(metric) else low > 0
        verdict = TOO_FEW if np.isnan(low) else first if ahead else second if behind else "neither"
        values = {"difference": gaps.mean() if len(gaps) else np.nan, "low": low, "high": high, "n": len(gaps)}
        rows.append({**dict(zip(by, keys, strict=True)), **values, "better": verdict})
    return pd.DataFrame(rows)


def against(frame: pd.DataFrame, reference: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """`paired_difference` of every other method to one, ``method`` in front; which of them beat a control, say."""
    others = [method for method in dict.fromkeys(frame["method"]) if method != reference]
    parts = [paired_difference(frame, other, reference, by).assign(method=other) for other in others]
    table = pd.concat(parts, ignore_index=True)
    return table[["method", *(column for column in table if column != "method")]]


def stored_attributions(store: Store, samples: Iterable[Sample], method: str) -> list[Attribution]:
    """Attributions rebuilt from stored records, in the order of ``samples``; ValueError where one is missing."""
    records = store.records()
    records = records[records["method"] == method].drop_duplicates("sample_key", keep="last").set_index("sample_key")
    rebuilt = []
    for sample in samples:
        if (key := sample_fingerprint(sample)) not in records.index:
            raise ValueError(f"no stored record of {method} for sample {sample.id}: run evaluate with this store first")
        record = records.loc[key]
        hops = [
            Hop(torch.tensor(np.asarray(scores, dtype=np.float32)), tuple(int(x) for x in target), torch.empty(0))
            for scores, target in zip(record["hop_scores"], record["hop_targets"], strict=True)
        ]
        scores = torch.tensor(np.asarray(record["scores"], dtype=np.float32))
        rebuilt.append(Attribution(scores, method, float(record["seconds"]), hops, [float(r) for r in record["flow"]]))
    return rebuilt


def example_sample(run: Run, model: torch.nn.Module, tokenizer: Any, length: int = 256) -> Sample:
    """First short needle sample (two keys) that the model answers without reasoning, or else its true answer.

    In noise rather than in essays: it is printed and drawn, and the essays are their author's.
    """
    examples = ruler_examples(
        "mq_q2", length, tokenizer, 10, seed=run.profile.seed + 1, haystack="noise", keep=held_out(run)
    )
    store = Store(run.store("example_responses"))
    mode = "direct" if can_think(tokenizer) else None
    collection = collect(examples, model, tokenizer, 1, store=store, max_new_tokens=64, batch_size=5, mode=mode)
    store.compact()
    return collection.samples[0]


@dataclass
class OverviewPanel:
    """What Fig. 2 draws of one layer and head: attention [m, N], its sum [N], the proximity [N]."""

    head: int
    attention: torch.Tensor
    aggregated: torch.Tensor
    proximity: torch.Tensor


@torch.inference_mode()
def overview_panel(layer: LayerActivations, sample: Sample, weights: torch.Tensor, target: Span) -> OverviewPanel:
    """Pick the head whose proximity on the gold evidence is largest, and return its parts."""
    aggregated, _, y = aggregate(layer, weights[None], target, target[0])
    each = head_proximity(layer, aggregated, y)[0]  # [H, N]
    head = int(each[:, sample.gold].sum(-1).argmax())
    maps = captured_maps(layer, target, target[0])  # [H, m, N]
    return OverviewPanel(head, maps[head], aggregated[0, head], each[head])


def rank_correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """Spearman's rank correlation of two score vectors."""
    return float(pd.Series(a.numpy()).rank().corr(pd.Series(b.numpy()).rank()))  # Pearson's of the ranks


def recovery_by_hops(samples: list[Sample], attributions: list[Attribution]) -> pd.DataFrame:
    """Recovery with the first K hops of each attribution, and the paired gain over K = 0.

    The first K hops of one run are exactly the run with K hops.

    Returns
    -------
    pandas.DataFrame
        ``K, recovery, low, high, gain, gain_low, gain_high, n``; intervals are `metrics.mean_interval`'s.
    """
    depth = max(len(attribution.hops) for attribution in attributions)
    values = np.array(
        [
            [recovery_rate(accumulate(a.hops[: k + 1], s)[0], s.gold_in_prompt) for k in range(depth)]
            for s, a in zip(samples, attributions, strict=True)
        ]
    )  # [samples, depth]
    rows = []
    for k in range(depth):
        low, high = mean_interval(values[:, k])
        gains = values[:, k] - values[:, 0]
        gain_low, gain_high = mean_interval(gains)
        rows.append(
            {"K": k, "recovery": values[:, k].mean(), "low": low, "high": high, "gain": gains.mean(),
             "gain_low": gain_low, "gain_high": gain_high, "n": len(values)}
        )  # fmt: skip
    return pd.DataFrame(rows)
