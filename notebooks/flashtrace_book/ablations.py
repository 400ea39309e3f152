"""What the chapters of ablations share: hops one by one, mass that moves, and differences turned to one side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.evaluation.results_table import clusters_of, frame_from_records
from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.sample import Sample

from .claims import BESIDE, DECIDES
from .figures.mass import mass_frame
from .figures.style import METHOD_STYLES
from .figures.tables import Shown, interval_grid
from .results import CURVE, RANKING, Results, by_sentence
from .run import Run
from .statistics import against, mean_row, paired_difference

# Labels of settings that have no style of their own, in figures and tables.
LABELS = {
    "choice_propagated": "residual propagated", "choice_first_hop": "first hop on T ∪ O",
    "choice_smoothing": "smoothed over 5 tokens", "choice_by_token": "token by token",
    "choice_recursion": "recursion over T ∪ O", "choice_punctuation": "punctuation skipped",
    "choice_raw_hops": "hops as raw sums",
    "paper": "FlashTrace", "paper_k0": "K = 0", "second_candidate": "FlashTrace.best()",
    "propagated": "residual propagated", "first_hop": "first hop on T ∪ O",
    "candidate": "residual and first hop", "candidate_smooth5": "residual, first hop, smoothed",
    "candidate_k0": "residual and first hop, K = 0", "candidate_k2": "residual and first hop, K = 2",
}  # fmt: skip
CHOICES = tuple(name for name in LABELS if name.startswith("choice_"))


def label_of(method: str) -> str:
    """Name of a method or a setting for readers."""
    return LABELS.get(method) or (METHOD_STYLES[method].label if method in METHOD_STYLES else method)


def whose(results: Results) -> str:
    """Which answers a chapter explains: ``"own"`` where the models gave any, since these decide; else what there is."""
    kinds = list(results.samples()["answers"])
    return "own" if "own" in kinds else kinds[0]


def note(run: Run, name: str, numbers: pd.DataFrame, answers: str, role: str = DECIDES, **about: Any) -> Shown | None:
    """`Run.claim`, where there are numbers; those of forced answers stand beside and decide nothing."""
    if numbers.empty:
        return None
    return run.claim(name, numbers, answers=answers, role=role if answers == "own" else BESIDE, **about)


def by_hops(
    results: Results, method: str = "flashtrace_k3", metrics: Sequence[str] = RANKING, whole: str = "", **where: Any
) -> pd.DataFrame:
    """Metrics of rankings with the first K hops of a method (`hop_records`); ``whole`` as for `Results.frame`."""
    rows = by_sentence(hop_records(results, method, **where), whole)
    return frame_from_records(rows, metrics).astype({"value": float})


def hop_records(results: Results, method: str = "flashtrace_k3", **where: Any) -> list[dict[str, Any]]:
    """Records of a method with its first K hops alone, labelled ``flashtrace_k0``, ``flashtrace_k1``, ….

    The first K hops of one run are exactly the run with K hops.
    """
    hops = {s.id: first_hops(s, a) for s, a in zip(*results.attributions(method, **where), strict=True)}
    records = results.records([method], **where).to_dict("records")
    return [row | {"method": f"flashtrace_k{k}", "scores": scores}
            for row in records for k, scores in enumerate(hops[row["sample"]])]  # fmt: skip


def first_hops(sample: Sample, attribution: Attribution) -> list[np.ndarray]:
    """Scores on I, shape [|I|], of the first hop, of the first two, …: Σ_k (Π_{j<k} ρ_j) w^(k) (section 4.3)."""
    total, carried, found = np.zeros(len(sample.prompt_ids)), 1.0, []
    for hop in attribution.hops:
        scores = hop.scores.double().numpy()  # [N]
        total = total + carried * scores[slice(*sample.segments.prompt)]
        carried *= scores[slice(*sample.segments.reasoning)].sum()
        found.append(total)
    return found


def minus(frame: pd.DataFrame, reference: str, by: tuple[str, ...] = ("metric",)) -> pd.DataFrame:
    """`statistics.against` with ``label`` for readers; empty without the reference, without what has no pair."""
    if reference not in set(frame["method"]) or frame["method"].nunique() < 2:
        return pd.DataFrame(columns=["method", "label", *by, "difference", "low", "high", "n", "n_effective", "better"])
    table = against(frame, reference, by)
    table.insert(1, "label", table["method"].map(label_of))
    order = list(dict.fromkeys(frame["metric"]))
    table = table.sort_values("metric", key=lambda names: names.map(order.index), kind="stable")
    return table[table["n"] > 0].reset_index(drop=True)


def grid(table: pd.DataFrame, columns: str = "metric", index: str = "label", value: str = "difference") -> pd.DataFrame:
    """A long table with intervals for readers: a row a method or property, a column for each metric, cell or group."""
    form = "+.3f" if value == "difference" else "+.2f"
    return interval_grid(table, index, columns, value, form).rename_axis(columns=None).reset_index()


def contrast(
    frame: pd.DataFrame, first: str, second: str, metrics: Sequence[str], *, above: bool = True, name: str = ""
) -> pd.DataFrame:
    """`statistics.paired_difference` of two methods for a claim: all its numbers point one way.

    Parameters
    ----------
    frame : DataFrame
        Of own answers; the right ones alone count for metrics against gold.
    first, second : str
        Methods. Where one is missing there are no rows.
    metrics : sequence of str
    above : bool
        True: above 0 the first is better, so that metrics of which lower is better change their sign. False: below 0.
    name : str
        Put before the metric in the column ``label``.
    """
    gold = ~frame["metric"].isin((*CURVE, "lds"))
    part = frame[frame["metric"].isin(metrics) & (frame["right"].astype(bool) | ~gold)]
    if not {first, second} <= set(part["method"]):
        return pd.DataFrame()
    table = paired_difference(part, first, second)
    table = table[table["n"] > 0].sort_values("metric", key=lambda names: names.map(list(metrics).index))
    turned = table["metric"].map(HIGHER_IS_BETTER).astype(bool) != above
    low, high = np.where(turned, -table["high"], table["low"]), np.where(turned, -table["low"], table["high"])
    label = name + table["metric"] + np.where(turned, ", sign turned", "")
    return table.assign(label=label, difference=np.where(turned, -1, 1) * table["difference"], low=low, high=high)


def mass_shift(samples: Sequence[Sample], attributions: Sequence[Attribution]) -> pd.DataFrame:
    """Mean shares and place of the mass at each hop, and their change since hop 0 (Fig. 7, appendix H).

    Returns
    -------
    pandas.DataFrame
        ``quantity, hop, mean, low, high``, ``change, change_low, change_high, n, n_effective``. A quantity is the share
        of a hop's mass on a segment, or ``place in T``: the mean relative position of the mass on T, 0 at its first
        token and 1 at its last. The change is on the same samples.
    """
    cluster_of, rows = clusters_of(samples), []
    masses = mass_frame(samples, attributions).rename(columns={"segment": "quantity", "mass": "value"})
    frame = pd.concat([masses, _places(samples, attributions)], ignore_index=True)
    for quantity, part in frame.groupby("quantity", sort=False):
        wide = part.pivot_table(index="sample", columns="hop", values="value")
        for hop in wide:
            both = wide[[0, hop]].dropna() if hop else wide[[0]].dropna()
            shared = [cluster_of[sample] for sample in both.index]
            change = mean_row(both[hop] - both[0], "change", "change_", shared)
            rows.append({"quantity": quantity, "hop": hop, **mean_row(both[hop], clusters=shared), **change})
    return pd.DataFrame(rows)


def _places(samples: Sequence[Sample], attributions: Sequence[Attribution]) -> pd.DataFrame:
    """Mean place of each hop's mass within T; samples with fewer than two tokens there have none."""
    rows = []
    for sample, attribution in zip(samples, attributions, strict=True):
        start, stop = sample.segments.reasoning
        for k, hop in enumerate(attribution.hops):
            inside = hop.scores[start:stop].double().numpy()
            if len(inside) > 1 and inside.sum() > 0:
                place = np.average(np.linspace(0, 1, len(inside)), weights=inside)
                rows.append({"sample": sample.id, "hop": k, "quantity": "place in T", "value": place})
    return pd.DataFrame(rows, columns=["sample", "hop", "quantity", "value"])


def shift_signed(shift: pd.DataFrame, name: str = "") -> pd.DataFrame:
    """Changes from hop 0 to hop 1 that the paper names, each signed so that above 0 is what it says."""
    signs = {"prompt": ("I gains", 1), "reasoning": ("T loses", -1), "place in T": ("earlier within T", -1)}
    rows = []
    for row in shift[(shift["hop"] == 1) & shift["quantity"].isin(signs)].to_dict("records"):
        words, sign = signs[row["quantity"]]
        low, high = sorted((sign * row["change_low"], sign * row["change_high"]))
        rows.append({"label": name + words, "change": sign * row["change"], "low": low, "high": high,
                     "n": row["n"], "n_effective": row["n_effective"]})  # fmt: skip
    return pd.DataFrame(rows)
