"""Tables of a sweep of time and memory: fitted growth, attention modes, speed-up, cost against MAS, other tools.

``frame`` is always that of `sweep.sweep`, except that `attention_table` and `attention_savings` take that of
`sweep.sweep_attention`, and `tools_table` that of `sweep.sweep_tools`.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from ..efficiency.other_tools import ADAPTERS
from ..efficiency.supervised_process import OK, TIME_OUT
from ..efficiency.sweep import ATTENTION_MODES, HEADLINE, PARETO
from ..paper_numbers import paper_value, text_value
from ..statistics import power_law_exponent
from .checks import require
from .style import method_order, method_style

# Table 6: (time, working memory) of the attribution, forward pass excluded. N: context, M: target span, D: width.
_NAIVE, _SPANWISE = ("O(M·N·D)", "O(M·N)"), ("O(K·N·(M + D))", "O(N + D)")
_PAPER_COMPLEXITY = {"ifr": _NAIVE, "ifr_one_by_one": _NAIVE, "rollout": _NAIVE, "flashtrace": _SPANWISE}
_SAME_SCORES = {"ifr_one_by_one": "ifr"}  # the second gives the same scores, and has a MAS
_PAPER_CELL, _PAPER_COLUMNS = "qwen3_4b_2048", ("seconds", "seconds_sd", "peak_gib")  # Table 9
_TAIL = 3  # sizes that the growth at the end is fitted to
_AXES = {"input": "I", "generation": "T+O"}
_PASSES = {"forward": "forward_passes", "backward": "backward_passes", "sweeps": "hop_passes"}
_QUANTITIES = {"seconds": "time", "peak_gib": "memory"}


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Exponents of time and of peak memory in the length that varies.

    Returns
    -------
    pandas.DataFrame
        ``method, axis, quantity, exponent, low, high, points, tail``. ``exponent`` is fitted to all sizes that ran,
        ``tail`` to the last three alone, where the other length, which is held, matters least.
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
    """Table 6: complexity by the paper, and the fitted growth of time and memory.

    Returns
    -------
    long : pandas.DataFrame
        `growth` with ``paper_time`` and ``paper_memory``, the paper's expressions, empty where it has none.
    wide : pandas.DataFrame
        For readers: a row for each method, with the passes it took. An entry reads ``1.02 [0.90, 1.14] (6)``:
        exponent, interval, number of sizes.
    """
    long = growth(frame)
    for i, column in enumerate(("paper_time", "paper_memory")):
        long[column] = [_PAPER_COMPLEXITY.get(method, ("", ""))[i] for method in long["method"]]
    rows = []
    for method, fits in long.groupby("method", sort=False):
        row = {
            "method": method_style(method).label,
            "paper: time": fits["paper_time"].iloc[0] or "–",
            "paper: memory": fits["paper_memory"].iloc[0] or "–",
            "passes": _passes(frame, method),
        }
        rows.append(row | _exponents(fits))
    return long, pd.DataFrame(rows)


def _exponents(fits: pd.DataFrame) -> dict[str, str]:
    """Entries of a method in the wide table, by column."""
    entries = {(fit.quantity, fit.axis): _exponent(fit) for fit in fits.itertuples()}
    return {
        f"{quantity} in {symbol}": entries.get((quantity, axis), "–")
        for quantity in _QUANTITIES.values()
        for axis, symbol in _AXES.items()
    }


def _exponent(fit: tuple) -> str:
    """``1.02 [0.90, 1.14] (6)``: exponent, interval, number of sizes."""
    if math.isnan(fit.exponent):
        return f"– ({fit.points})"
    interval = "" if math.isnan(fit.low) else f" [{fit.low:.2f}, {fit.high:.2f}]"
    return f"{fit.exponent:.2f}{interval} ({fit.points})"


def _passes(frame: pd.DataFrame, method: str) -> str:
    """Passes of the longest generation that ran: forward, backward and over the cache."""
    generation = _along_generation(frame, method)
    ran = generation[generation["outcome"] == OK]
    if ran.empty:
        return "–"
    longest = ran.sort_index().iloc[-1]
    return ", ".join(f"{longest[column]:.0f} {name}" for name, column in _PASSES.items() if longest[column] > 0)


def attention_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 9: time and peak memory of each attention mode, with the paper's two rows at the end.

    Returns
    -------
    pandas.DataFrame
        ``mode, tokens`` (of the context), ``outcome, seconds, seconds_sd`` (standard deviation over the runs),
        ``ratio`` (forward passes), ``peak_gib, n, source``.
    """
    require(frame, "method", "n_input", "n_generated", "outcome", "seconds", "peak_gib", "runs_s")
    rows = []
    for record in frame.sort_values("n_input", kind="stable").itertuples():
        mode, tokens = record.method.removeprefix("flashtrace_"), record.n_input + record.n_generated
        runs = record.runs_s if record.outcome == OK else []
        deviation = float(np.std(runs, ddof=1)) if len(runs) > 1 else math.nan
        measured = [record.outcome, record.seconds, deviation, record.ratio, record.peak_gib]
        rows.append([mode, tokens, *measured, len(runs), record.model])
    for mode in ATTENTION_MODES[:2]:
        seconds, deviation, peak = (paper_value(9, mode, _PAPER_CELL, name) for name in _PAPER_COLUMNS)
        rows.append([mode, 2048, OK, seconds, deviation, math.nan, peak, 5, "the paper: Qwen3-4B"])
    columns = "mode tokens outcome seconds seconds_sd ratio peak_gib n source".split()
    return pd.DataFrame(rows, columns=columns)


def attention_savings(frame: pd.DataFrame) -> pd.DataFrame:
    """Memory that recomputing attention saves over caching it, and the time that it adds, by size.

    Returns
    -------
    pandas.DataFrame
        ``tokens, memory_saved, latency_added`` (fractions of the cached mode's), ``paper_memory_saved,
        paper_latency_added``; sizes at which one of the two modes did not run are left out.
    """
    rows = []
    for size, part in frame[frame["outcome"] == OK].groupby("n_input"):
        modes = part.set_index("method")
        if not {"flashtrace_cached", "flashtrace_recompute"} <= set(modes.index):
            continue
        cached, recomputed = modes.loc["flashtrace_cached"], modes.loc["flashtrace_recompute"]
        saved = 1 - recomputed["peak_gib"] / cached["peak_gib"] if cached["peak_gib"] > 0 else math.nan
        added = recomputed["seconds"] / cached["seconds"] - 1
        rows.append({"tokens": int(size + cached["n_generated"]), "memory_saved": saved, "latency_added": added})
    table = pd.DataFrame(rows, columns=["tokens", "memory_saved", "latency_added"])
    return table.assign(paper_memory_saved=text_value("memory_saved"), paper_latency_added=text_value("latency_added"))


def headline(frame: pd.DataFrame) -> pd.DataFrame:
    """How many times faster FlashTrace is than IFR and AttnLRP, at the longest generation that both explain.

    Returns
    -------
    pandas.DataFrame
        ``method`` (IFR one target row at a time, as in the paper, and batched; AttnLRP), ``n_generated, seconds,
        flashtrace_seconds, speedup, kind, paper``. ``kind`` is ``"measured"``, or ``"at least"`` where the method was
        stopped at the time limit, which ``seconds`` then holds; it is left out where a longer generation was measured.
        Seconds of different machines are not compared: such a length is left out. ``paper`` is for 5000 tokens.
    """
    flashtrace = _along_generation(frame, "flashtrace")
    ours = flashtrace.loc[flashtrace["outcome"] == OK, "seconds"]
    rows = []
    for method in ("ifr_one_by_one", "ifr", "attnlrp"):
        theirs = _along_generation(frame, method)
        theirs = theirs[theirs["hardware"] == flashtrace["hardware"].reindex(theirs.index)]
        measured = theirs.loc[theirs["outcome"] == OK, "seconds"]
        limit = theirs.loc[theirs["outcome"] == TIME_OUT, "time_limit"].astype(float)
        for kind, seconds in (("measured", measured), ("at least", limit)):
            common = ours.index.intersection(seconds.index)
            if len(common):
                n = int(common.max())
                if kind == "at least" and rows and rows[-1][0] == method and rows[-1][1] >= n:
                    continue
                speedup = seconds[n] / ours[n]
                rows.append([method, n, seconds[n], ours[n], speedup, kind])
    table = pd.DataFrame(rows, columns=["method", "n_generated", "seconds", "flashtrace_seconds", "speedup", "kind"])
    one_by_one = table["method"] == "ifr_one_by_one"
    return table.assign(paper=np.where(one_by_one, text_value("speedup_5k"), math.nan))


def _along_generation(frame: pd.DataFrame, method: str) -> pd.DataFrame:
    """Rows of a method in which the length of the generation varies, indexed by it; one row a length."""
    rows = frame[frame["axis"].isin(["generation", HEADLINE]) & (frame["method"] == method)]
    return rows.drop_duplicates("length", keep="last").set_index("length")


def cost_and_mas(frame: pd.DataFrame, mas: pd.DataFrame, n_input: int) -> tuple[pd.DataFrame, list[str]]:
    """Fig. 4e: cost and faithfulness of each method at one length of the input.

    Parameters
    ----------
    frame : DataFrame
        From `sweep.sweep`, and from `sweep.sweep_pareto` where a profile has methods for this figure alone.
    mas : DataFrame
        ``method, mean, low, high, n`` of MAS, one row for each method.
    n_input : int
        The length, tokens.

    Returns
    -------
    table : pandas.DataFrame
        ``method, ratio, mas, low, high, n, front``; ``front`` where no other method is both cheaper and more faithful.
        No seconds: methods may have been measured on different machines.
    left_out : list of str
        Measured methods that did not run at that length or have no MAS, each with the reason.

    Raises
    ------
    ValueError
        If that length was not swept.
    """
    part = frame[frame["axis"].isin(["input", PARETO]) & (frame["length"] == n_input)]
    if part.empty:
        raise ValueError(f"no input of {n_input} tokens was swept: choose one of {sorted(set(frame['length']))}")
    scores = mas.set_index("method")
    rows, left_out = [], []
    for record in part.itertuples():
        scored = _SAME_SCORES.get(record.method, record.method)
        if record.outcome != OK or scored not in scores.index:
            reason = record.outcome if record.outcome != OK else "no MAS"
            left_out.append(f"{method_style(record.method).label} ({reason})")
            continue
        score = scores.loc[scored]
        rows.append([record.method, record.ratio, score["mean"], score["low"], score["high"], int(score["n"])])
    columns = ["method", "ratio", "mas", "low", "high", "n"]
    table = pd.DataFrame(rows, columns=columns).sort_values("ratio", ignore_index=True)
    # A point is on the front if every cheaper one is less faithful.
    table["front"] = table["mas"] < table["mas"].shift(fill_value=math.inf).cummin()
    return table, left_out


def tools_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each published tool beside the library's nearest method, at equal lengths.

    Returns
    -------
    pandas.DataFrame
        ``tool, nearest, tokens, outcome, ratio, nearest_ratio`` (forward passes), ``times`` (the first over the
        second), ``peak_gib, nearest_peak_gib``.
    """
    rows = []
    records = frame.set_index(["method", "n_input"])
    for tool in frame[frame["method"].isin(list(ADAPTERS))].itertuples():
        name = ADAPTERS[tool.method].nearest
        nearest = records.loc[(name, tool.n_input)]
        ratios = [tool.ratio, nearest["ratio"], tool.ratio / nearest["ratio"]]
        memory = [tool.peak_gib, nearest["peak_gib"]]
        rows.append([tool.method, name, tool.n_input + tool.n_generated, tool.outcome, *ratios, *memory])
    columns = "tool nearest tokens outcome ratio nearest_ratio times peak_gib nearest_peak_gib".split()
    return pd.DataFrame(rows, columns=columns)
