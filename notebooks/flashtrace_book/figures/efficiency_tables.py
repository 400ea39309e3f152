"""Tables of a sweep of time and memory (`efficiency`): fitted growth, ways to attention, headline, cost against MAS."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from ..efficiency.other_tools import ADAPTERS
from ..efficiency.supervised_process import OK, TIME_OUT
from ..efficiency.sweep import ATTENTION_MODES
from ..paper_numbers import paper_value, text_value
from ..statistics import power_law_exponent
from .axes import require
from .style import method_order, method_style

# Table 6: (time, working memory) of the attribution, forward pass excluded. N: context, M: target span, D: width.
NAIVE, SPANWISE = ("O(M·N·D)", "O(M·N)"), ("O(K·N·(M + D))", "O(N + D)")
PAPER_COMPLEXITY = {"ifr": NAIVE, "ifr_one_by_one": NAIVE, "rollout": NAIVE, "flashtrace": SPANWISE}
SAME_SCORES = {"ifr_one_by_one": "ifr"}  # the label whose faithfulness is its own
PAPER_CELL = "qwen3_4b_2048"  # Table 9
_TAIL = 3  # sizes of the growth at the end
_QUANTITIES = {"seconds": "time", "peak_gib": "memory"}


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Exponents of time and of peak memory in the length that varies.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`.

    Returns
    -------
    pandas.DataFrame
        ``method, axis, quantity, exponent, low, high, points, tail``: over all sizes that ran, and ``tail`` over the
        last three alone, where the length that is held matters least.
    """
    require(frame, "axis", "method", "length", "outcome", "seconds", "peak_gib")
    rows = []
    for method in method_order(list(frame["method"])):
        for axis, part in frame[frame["method"] == method].groupby("axis", sort=False):
            ran = part[part["outcome"] == OK].sort_values("length")
            for column, quantity in _QUANTITIES.items():
                fit = power_law_exponent(ran["length"], ran[column])
                end = power_law_exponent(ran["length"].tail(_TAIL), ran[column].tail(_TAIL))
                tail = end["exponent"] if end["points"] == _TAIL else math.nan
                rows.append({"method": method, "axis": axis, "quantity": quantity, **fit, "tail": tail})
    return pd.DataFrame(rows)


def complexity_table(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 6: what the paper derives for a method, the passes it took, and how its time and memory grew here.

    Returns
    -------
    long : pandas.DataFrame
        `growth` with ``paper_time`` and ``paper_memory``, the paper's expressions, empty where it has none.
    wide : pandas.DataFrame
        For readers: a row a method. An entry reads ``1.02 [0.90, 1.14] (6)``: exponent, interval, number of sizes.
    """
    long = growth(frame)
    for i, column in enumerate(("paper_time", "paper_memory")):
        long[column] = [PAPER_COMPLEXITY.get(method, ("", ""))[i] for method in long["method"]]
    rows = []
    for method, part in long.groupby("method", sort=False):
        row = {"method": method_style(method).label, "paper: time": part["paper_time"].iloc[0] or "–",
               "paper: memory": part["paper_memory"].iloc[0] or "–", "passes": _passes(frame, method)}  # fmt: skip
        entries = {(e.quantity, e.axis): _exponent(e) for e in part.itertuples()}
        for quantity in _QUANTITIES.values():
            for axis, symbol in (("input", "I"), ("generation", "T+O")):
                row[f"{quantity} in {symbol}"] = entries.get((quantity, axis), "–")
        rows.append(row)
    return long, pd.DataFrame(rows)


def _exponent(fit: tuple) -> str:
    if math.isnan(fit.exponent):
        return f"– ({fit.points})"
    interval = "" if math.isnan(fit.low) else f" [{fit.low:.2f}, {fit.high:.2f}]"
    return f"{fit.exponent:.2f}{interval} ({fit.points})"


def _passes(frame: pd.DataFrame, method: str) -> str:
    """Passes of the longest generation that ran: forward, backward and over the cache."""
    ran = frame[(frame["method"] == method) & (frame["outcome"] == OK) & (frame["axis"] == "generation")]
    if ran.empty:
        return "–"
    last = ran.sort_values("length").iloc[-1]
    counts = {"forward": last["forward_passes"], "backward": last["backward_passes"], "sweeps": last["hop_passes"]}
    return ", ".join(f"{count:.0f} {name}" for name, count in counts.items() if count > 0)


def attention_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 9: time and peak memory of each way to the sums of attention, the paper's two rows at the end.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep_attention`.

    Returns
    -------
    pandas.DataFrame
        ``mode, tokens`` (of the context), ``outcome, seconds, seconds_sd`` (standard deviation over the runs),
        ``ratio`` (forward passes), ``peak_gib, n, source``.
    """
    require(frame, "method", "n_input", "n_generated", "outcome", "seconds", "peak_gib", "runs_s")
    rows = []
    for record in frame.sort_values("n_input", kind="stable").itertuples():
        runs = record.runs_s if record.outcome == OK else []
        rows.append(
            {"mode": record.method.removeprefix("flashtrace_"), "tokens": record.n_input + record.n_generated,
             "outcome": record.outcome, "seconds": record.seconds,
             "seconds_sd": float(np.std(runs, ddof=1)) if len(runs) > 1 else math.nan, "ratio": record.ratio,
             "peak_gib": record.peak_gib, "n": len(runs), "source": record.model}
        )  # fmt: skip
    for mode in ATTENTION_MODES[:2]:
        printed = {name: paper_value(9, mode, PAPER_CELL, name) for name in ("seconds", "seconds_sd", "peak_gib")}
        rows.append({"mode": mode, "tokens": 2048, "outcome": OK, "ratio": math.nan, "n": 5,
                     "source": "the paper: Qwen3-4B", **printed})  # fmt: skip
    return pd.DataFrame(rows)


def attention_savings(frame: pd.DataFrame) -> pd.DataFrame:
    """What recomputing attention saves over caching it, and what it costs, by size; columns with the paper's figures.

    Returns
    -------
    pandas.DataFrame
        ``tokens, memory_saved, latency_added`` (fractions of the cached mode's), ``paper_memory_saved,
        paper_latency_added``; sizes at which one of the two did not run are left out.
    """
    ran = frame[frame["outcome"] == OK]
    rows = []
    for size, part in ran.groupby("n_input"):
        modes = part.set_index("method")
        if {"flashtrace_cached", "flashtrace_recompute"} <= set(modes.index):
            cached, again = modes.loc["flashtrace_cached"], modes.loc["flashtrace_recompute"]
            saved = 1 - again["peak_gib"] / cached["peak_gib"] if cached["peak_gib"] > 0 else math.nan
            rows.append({"tokens": int(size + cached["n_generated"]), "memory_saved": saved,
                         "latency_added": again["seconds"] / cached["seconds"] - 1})  # fmt: skip
    table = pd.DataFrame(rows, columns=["tokens", "memory_saved", "latency_added"])
    return table.assign(paper_memory_saved=text_value("memory_saved"), paper_latency_added=text_value("latency_added"))


def headline(frame: pd.DataFrame) -> pd.DataFrame:
    """How many times faster FlashTrace is than IFR, at the longest generation that both explain.

    Returns
    -------
    pandas.DataFrame
        ``method`` (IFR one target row at a time, as in the paper, and batched), ``n_generated, seconds,
        flashtrace_seconds, speedup, kind, paper``. ``kind`` is ``"measured"``, or ``"at least"`` where IFR was stopped
        at the limit of time that ``seconds`` gives. The paper's is of a span of 5000 tokens.
    """
    ours = _generation(frame, "flashtrace")
    fast = ours[ours["outcome"] == OK]["seconds"]
    rows = []
    for method in ("ifr_one_by_one", "ifr"):
        slow = _generation(frame, method)
        ran = slow[slow["outcome"] == OK]["seconds"]
        stopped = slow[slow["outcome"] == TIME_OUT]["time_limit"].astype(float)
        for kind, seconds in (("measured", ran), ("at least", stopped)):
            common = fast.index.intersection(seconds.index)
            if len(common):
                n = int(common.max())
                row = {"n_generated": n, "seconds": seconds[n], "flashtrace_seconds": fast[n]}
                rows.append({"method": method, **row, "speedup": seconds[n] / fast[n], "kind": kind})
    table = pd.DataFrame(rows, columns=["method", "n_generated", "seconds", "flashtrace_seconds", "speedup", "kind"])
    one_by_one = table["method"] == "ifr_one_by_one"
    return table.assign(paper=np.where(one_by_one, text_value("speedup_5k"), math.nan))


def _generation(frame: pd.DataFrame, method: str) -> pd.DataFrame:
    """Rows of a method along the generation, by its length."""
    return frame[(frame["axis"] == "generation") & (frame["method"] == method)].set_index("length")


def cost_and_mas(frame: pd.DataFrame, mas: pd.DataFrame, n_input: int) -> tuple[pd.DataFrame, list[str]]:
    """Fig. 4e: what a method costs at one length of the input, and how faithful it is.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`.
    mas : DataFrame
        ``method, mean, low, high, n`` of MAS, one row a method.
    n_input : int
        The length, tokens; ValueError where it was not swept.

    Returns
    -------
    table : pandas.DataFrame
        ``method, seconds, ratio, mas, low, high, n, front``; ``front`` where no other method is both cheaper and more
        faithful.
    left_out : list of str
        Measured methods that did not run at that length or have no MAS, each with the reason.
    """
    part = frame[(frame["axis"] == "input") & (frame["length"] == n_input)]
    if part.empty:
        raise ValueError(f"no input of {n_input} tokens was swept: choose one of {sorted(set(frame['length']))}")
    scores = mas.set_index("method")
    rows, left_out = [], []
    for record in part.itertuples():
        label, name = method_style(record.method).label, SAME_SCORES.get(record.method, record.method)
        if record.outcome != OK or name not in scores.index:
            left_out.append(f"{label} ({record.outcome if record.outcome != OK else 'no MAS'})")
            continue
        score = scores.loc[name]
        rows.append({"method": record.method, "seconds": record.seconds, "ratio": record.ratio, "mas": score["mean"],
                     "low": score["low"], "high": score["high"], "n": int(score["n"])})  # fmt: skip
    columns = ["method", "seconds", "ratio", "mas", "low", "high", "n"]
    table = pd.DataFrame(rows, columns=columns).sort_values("ratio", ignore_index=True)
    # A point is on the front where all that is cheaper is less faithful.
    table["front"] = table["mas"] < table["mas"].shift(fill_value=math.inf).cummin()
    return table, left_out


def tools_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each published tool beside the library's nearest method, at equal lengths.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep_tools`.

    Returns
    -------
    pandas.DataFrame
        ``tool, nearest, tokens, outcome, ratio, nearest_ratio`` (forward passes), ``times`` (the first over the
        second), ``peak_gib, nearest_peak_gib``.
    """
    columns = "tool nearest tokens outcome ratio nearest_ratio times peak_gib nearest_peak_gib".split()
    rows = []
    ours = frame.set_index(["method", "n_input"])
    for tool in frame[frame["method"].isin(list(ADAPTERS))].itertuples():
        nearest = ADAPTERS[tool.method].nearest
        mine = ours.loc[(nearest, tool.n_input)]
        rows.append([tool.method, nearest, tool.n_input + tool.n_generated, tool.outcome, tool.ratio, mine["ratio"],
                     tool.ratio / mine["ratio"], tool.peak_gib, mine["peak_gib"]])  # fmt: skip
    return pd.DataFrame(rows, columns=columns)
