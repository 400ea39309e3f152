"""Tables of a sweep of time and memory: fitted growth, attention modes, speed-up, published tools, cost against MAS.

``frame`` is always that of `by_axis`. Times of different machines are compared only in forward passes of their process.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from ..efficiency import NEAREST, OK, TIME_OUT
from ..paper_numbers import TEXT, paper_value, text_value
from ..statistics import line_slope, power_law_exponent
from .style import method_order, method_style

AXES = {  # comparison -> what it is called
    "input": "length of the input", "generation": "length of the generation", "headline": "the paper's length",
    "attention": "attention modes", "pareto": "Fig. 4e alone", "tools": "published tools",
}  # fmt: skip
COLUMNS = (
    "axis", "method", "n_input", "n_generated", "length", "outcome", "seconds", "forward_s", "ratio", "peak_gib",
    "forward_peak_gib", "n", "n_peak", "forward_passes", "backward_passes", "hop_passes", "time_limit", "memory_limit",
    "detail", "model", "dtype", "hardware", "runs_s",
)  # fmt: skip
_GENERATED = ("generation", "headline")  # axes along which the generation varies
# Table 6: (time, working memory) of the attribution, forward pass excluded. N: context, M: target span, D: width.
_NAIVE, _SPANWISE = ("O(M·N·D)", "O(M·N)"), ("O(K·N·(M + D))", "O(N + D)")
_COMPLEXITY = {"ifr": _NAIVE, "ifr_one_by_one": _NAIVE, "rollout": _NAIVE, "flashtrace": _SPANWISE}
_SAME_SCORES = {"ifr_one_by_one": "ifr"}  # the second gives the same scores, and has a MAS
_PAPER_CELL = "qwen3_4b_2048"  # Table 9
_TAIL = 3  # sizes that the growth at the end is fitted to


def by_axis(rows: pd.DataFrame) -> pd.DataFrame:
    """Stored rows of part ``sweep``, one row a comparison, method and size: ``COLUMNS``.

    ``length`` is that of the input or of the generation, whichever varies. ``n`` runs are behind a time, ``n_peak``
    behind a peak of memory. Where ``outcome`` is not ``"ok"`` there are no numbers.
    """
    frame = rows.assign(axis=rows["axes"].map(json.loads)).explode("axis", ignore_index=True)
    frame["length"] = frame["n_generated"].where(frame["axis"].isin(_GENERATED), frame["n_input"])
    frame, whole = frame.reindex(columns=list(COLUMNS)), ["n_input", "n_generated", "length"]
    frame[whole] = frame[whole].astype(int)
    places = [frame["axis"].map(list(AXES).index), frame["method"].map(method_order(list(frame["method"])).index)]
    return frame.iloc[np.lexsort([frame["length"], *places[::-1]])].reset_index(drop=True)


def overview(frame: pd.DataFrame) -> pd.DataFrame:
    """How much was measured, by comparison and machine; runs are those behind a time."""
    groups = frame.assign(axis=frame["axis"].map(AXES)).groupby(["axis", "hardware"], sort=False)
    counts = groups.agg(methods=("method", "nunique"), sizes=("length", "nunique"), measured=("n", "count"))
    runs = groups["n"].agg(lambda n: " or ".join(f"{runs:.0f}" for runs in sorted(set(n.dropna()))))
    return counts.assign(runs=runs).reset_index().rename(columns={"axis": "compared"})


def complexity_table(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 6: complexity by the paper, and the fitted growth of time and memory in the length that varies.

    Returns
    -------
    long : pandas.DataFrame
        ``method, axis, quantity, exponent, low, high, points, tail, paper``. ``tail`` is fitted to the three longest
        sizes alone, where the other length, which is held, matters least; ``paper`` is the paper's expression.
    wide : pandas.DataFrame
        For readers: a row for each method. An entry reads ``1.02 [0.90, 1.14] (6)``: exponent, interval, sizes.
    """
    rows, wide = [], []
    ran = frame[(frame["outcome"] == OK) & frame["axis"].isin(["input", "generation"])]
    for method in method_order(list(ran["method"])):
        paper = dict(zip(("time", "memory"), _COMPLEXITY.get(method, ("–", "–")), strict=True))
        shown = {"method": method_style(method).label, **{f"{name} (paper)": text for name, text in paper.items()}}
        for axis, part in ran[ran["method"] == method].groupby("axis", sort=False):
            for column, quantity in (("seconds", "time"), ("peak_gib", "memory")):
                fit = power_law_exponent(part["length"], part[column])
                end = power_law_exponent(part["length"].tail(_TAIL), part[column].tail(_TAIL))
                tail = end["exponent"] if end["points"] == _TAIL else math.nan
                about = {"method": method, "axis": axis, "quantity": quantity}
                rows.append({**about, **fit, "tail": tail, "paper": paper[quantity]})
                shown[f"{quantity} in {'I' if axis == 'input' else 'T + O'}"] = _exponent(fit)
        wide.append(shown)
    return pd.DataFrame(rows), pd.DataFrame(wide).fillna("–")


def _exponent(fit: dict[str, float]) -> str:
    """``1.02 [0.90, 1.14] (6)``: exponent, interval, number of sizes."""
    exponent = "–" if math.isnan(fit["exponent"]) else f"{fit['exponent']:.2f}"
    interval = "" if math.isnan(fit["low"]) else f" [{fit['low']:.2f}, {fit['high']:.2f}]"
    return f"{exponent}{interval} ({fit['points']})"


def paired_growth(frame: pd.DataFrame, first: str, second: str, axes: tuple[str, ...] = _GENERATED) -> dict[str, float]:
    """Exponent of one method's time in the generated tokens minus another's, fitted to the sizes that both ran.

    The times are in forward passes of the same process, so that a size may be of another machine. The interval is that
    of the slope of the logarithm of their ratio.

    Returns
    -------
    dict
        ``difference, low, high, n, n_effective``; a line has one parameter more than a mean, so that the last is n - 1.
    """
    ran = frame[(frame["outcome"] == OK) & frame["axis"].isin(axes)]
    ratios = ran.pivot_table(index="length", columns="method", values="ratio").reindex(columns=[first, second]).dropna()
    fit = line_slope(np.log(ratios.index), np.log(ratios[first] / ratios[second]))
    return {"difference": fit.pop("slope"), **fit, "n": fit["points"], "n_effective": fit["points"] - 1}


def next_cheapest(frame: pd.DataFrame) -> pd.DataFrame:
    """Time (in forward passes) and memory of the cheapest other method over FlashTrace's, at its longest sizes.

    Returns
    -------
    pandas.DataFrame
        ``label, value, n``.
    """
    rows = []
    for axis, tokens in (("generation", "generated tokens"), ("input", "tokens of input")):
        ran = frame[(frame["axis"] == axis) & (frame["outcome"] == OK)]
        longest = ran.loc[ran["method"] == "flashtrace", "length"].max()
        here = ran[ran["length"] == longest].set_index("method")
        for column, quantity in (("ratio", "time"), ("peak_gib", "memory")) if len(here) > 1 else ():
            others, runs = here[column].drop("flashtrace"), "n" if column == "ratio" else "n_peak"
            label = f"{quantity} of {method_style(others.idxmin()).label}, {longest:,} {tokens}"
            value = others.min() / here.loc["flashtrace", column]
            n = here.loc[["flashtrace", others.idxmin()], runs].min()
            rows.append({"label": label, "value": value, "n": int(n)})
    return pd.DataFrame(rows)


def attention_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 9: time and peak memory of each attention mode, with the paper's two rows at the end.

    Returns
    -------
    pandas.DataFrame
        ``mode, tokens`` (of the context), ``outcome, seconds, seconds_sd`` (standard deviation over the runs),
        ``ratio`` (forward passes), ``peak_gib, n, source``.
    """
    rows = []
    for row in frame[frame["axis"] == "attention"].sort_values("length", kind="stable").itertuples():
        runs = row.runs_s if row.outcome == OK else []
        deviation = float(np.std(runs, ddof=1)) if len(runs) > 1 else math.nan
        measured = [row.outcome, row.seconds, deviation, row.ratio, row.peak_gib, len(runs), row.hardware]
        rows.append([row.method.removeprefix("flashtrace_"), row.n_input + row.n_generated, *measured])
    for mode in ("cached", "recompute"):
        seconds, deviation, peak = (paper_value(9, mode, _PAPER_CELL, c) for c in ("seconds", "seconds_sd", "peak_gib"))
        rows.append([mode, 2048, OK, seconds, deviation, math.nan, peak, 5, "the paper: Qwen3-4B, A800"])
    return pd.DataFrame(rows, columns="mode tokens outcome seconds seconds_sd ratio peak_gib n source".split())


def attention_savings(frame: pd.DataFrame) -> pd.DataFrame:
    """Memory that recomputing attention saves over caching it, and the time that it adds, as shares of caching's.

    Returns
    -------
    pandas.DataFrame
        ``tokens, memory_saved, time_added, n`` by size, and the paper's numbers.
    """
    rows = []
    for size, part in frame[(frame["axis"] == "attention") & (frame["outcome"] == OK)].groupby("length"):
        modes = part.set_index("method")
        if {"flashtrace_cached", "flashtrace_recompute"} <= set(modes.index):
            cached, again = modes.loc["flashtrace_cached"], modes.loc["flashtrace_recompute"]
            saved, added = 1 - again["peak_gib"] / cached["peak_gib"], again["seconds"] / cached["seconds"] - 1
            rows.append([int(size + cached["n_generated"]), saved, added, int(cached["n"])])
    table = pd.DataFrame(rows, columns=["tokens", "memory_saved", "time_added", "n"])
    return table.assign(paper_memory_saved=text_value("memory_saved"), paper_time_added=text_value("latency_added"))


def headline(frame: pd.DataFrame) -> pd.DataFrame:
    """Every method beside FlashTrace at the longest generation that it explains, on one machine.

    Returns
    -------
    pandas.DataFrame
        ``method, n_generated, outcome, seconds, forward_s, ratio, peak_gib, n, times`` (its seconds over FlashTrace's;
        at least that, where it was stopped), ``paper`` (the same, at 5,000 tokens), ``hardware``.
    """
    rows = frame[frame["axis"].isin(_GENERATED)]
    ours = rows[(rows["method"] == "flashtrace") & (rows["outcome"] == OK)].nlargest(1, "length").squeeze()
    same = (rows["length"] == ours["length"]) & (rows["hardware"] == ours["hardware"])
    table = rows[same & rows["outcome"].isin([OK, TIME_OUT])].drop_duplicates("method").reset_index(drop=True)
    table["times"] = table["seconds"].fillna(table["time_limit"]) / ours["seconds"]
    table["paper"] = np.where(table["method"] == "ifr_one_by_one", text_value("speedup_5k"), math.nan)
    names = "method n_generated outcome seconds forward_s ratio peak_gib n times paper hardware".split()
    return table[names].sort_values("times", ignore_index=True)


def at_paper_size(file: Path) -> pd.DataFrame:
    """Rows of ``scripts/gpu_bench.sh`` beside what the authors measured; empty where nobody has run it.

    Returns
    -------
    pandas.DataFrame
        ``size, method, seconds, forward_s, ratio, peak_gib`` (over the model), ``targets`` (target tokens that IFR one
        by one explained), ``paper_seconds, paper_gib`` (model included), ``hardware``.
    """
    table = pd.DataFrame(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else [])
    names = "size method seconds forward_s ratio peak_gib targets paper_seconds paper_gib hardware".split()
    table = table.reindex(columns=list(dict.fromkeys([*table.columns, *names])))
    ours = table["method"] == "flashtrace"
    for unit in ("seconds", "gib"):
        table[f"paper_{unit}"] = table["size"].map(lambda size, unit=unit: TEXT.get(f"{unit}_{size}", [math.nan])[0])
    return table[names].assign(**{name: table[name].where(ours) for name in ("paper_seconds", "paper_gib")})


def tools_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each published tool beside the library's nearest method, at equal lengths.

    Returns
    -------
    pandas.DataFrame
        ``tool, nearest, tokens, outcome, ratio, nearest_ratio`` (forward passes), ``times`` (the first over the
        second), ``peak_gib, nearest_peak_gib, n, hardware``.
    """
    tools = frame[frame["axis"] == "tools"].assign(nearest=lambda rows: rows["method"].map(NEAREST))
    ours = frame[frame["axis"] == "input"][["method", "n_input", "n_generated", "hardware", "ratio", "peak_gib"]]
    ours = ours.rename(columns={"method": "nearest", "ratio": "nearest_ratio", "peak_gib": "nearest_peak_gib"})
    table = tools.merge(ours, on=["nearest", "n_input", "n_generated", "hardware"], how="left")
    table = table.assign(tool=table["method"], tokens=table["n_input"] + table["n_generated"])
    table["times"] = table["ratio"] / table["nearest_ratio"]
    names = "tool nearest tokens outcome ratio nearest_ratio times peak_gib nearest_peak_gib n hardware".split()
    return table[names]


def cost_and_faithfulness(frame: pd.DataFrame, scores: pd.DataFrame, n_input: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fig. 4e: cost and faithfulness of each method at one length of the input.

    Parameters
    ----------
    frame : DataFrame
    scores : DataFrame
        ``method, metric, mean, low, high, n, n_effective``, one row a method, of a metric that is better when lower.
    n_input : int
        The length, tokens.

    Returns
    -------
    table : pandas.DataFrame
        ``method, ratio`` (forward passes), ``metric, mean, low, high, n, n_effective, front, hardware``; ``front``
        where no other method is both as cheap and better. No seconds: they speak of one machine.
    left_out : pandas.DataFrame
        ``method, outcome, ratio`` of those that did not run at that length or have no score.
    """
    part = frame[frame["axis"].isin(["input", "pareto"]) & (frame["length"] == n_input)]
    costs = part[["method", "outcome", "ratio", "hardware"]].assign(scored=part["method"].replace(_SAME_SCORES))
    both = costs.merge(scores.rename(columns={"method": "scored"}), on="scored", how="left").sort_values("ratio")
    complete = (both["outcome"] == OK) & both["mean"].notna()
    table = both[complete].reset_index(drop=True)
    # A point is on the front if every cheaper one is less faithful.
    table["front"] = table["mean"] < table["mean"].shift(fill_value=math.inf).cummin()
    names = "method ratio metric mean low high n n_effective front hardware".split()
    return table[names], both.loc[~complete, ["method", "outcome", "ratio"]].reset_index(drop=True)


def as_cheap_and_better(table: pd.DataFrame) -> int:
    """Number of methods of `cost_and_faithfulness` that cost no more than FlashTrace and are more faithful."""
    ours = table[table["method"] == "flashtrace"].iloc[0]
    return int(((table["ratio"] <= ours["ratio"]) & (table["mean"] < ours["mean"])).sum())
