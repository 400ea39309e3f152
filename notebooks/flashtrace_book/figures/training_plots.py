"""Figures of the embedded reasoner: how the training went, and how often it is right."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import WIDTH

from ..reasoner.curriculum import TASKS
from .axes import FEW, note, require
from .style import styled

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vP"
_MODES = {"thinking": ("#0072B2", "o"), "direct": ("#E69F00", "s")}

# What a reasoner has to reach, in thinking mode, to be worth explaining: right answers for variable tracking,
# arithmetic and bridges, recalled values for needles.
_AIMS = {"h4_c1": 0.95, "h6_c1": 0.95, "h10_c1": 0.95, "h2_c3": 0.7, "mq_q2": 0.9, "mq_q4": 0.9, "mv_v2": 0.9,
         "mv_v4": 0.9, "mq_q8": 0.7, "mv_v8": 0.7, "gsm8k": 0.7, "math500": 0.7, "morehopqa": 0.7}  # fmt: skip
TARGETS = pd.DataFrame([{"task": task, "mode": "thinking", "aim": aim} for task, aim in _AIMS.items()])


@styled
def learning_curves(log: pd.DataFrame, *, window: int = 20, title: str = "Training of the adapter") -> Figure:
    """Loss of every step, and the share of held-out responses that teacher-forced greedy decoding gets right.

    Parameters
    ----------
    log : DataFrame
        ``step, split, task, n, loss, exact, tokens``, as training writes it.
    window : int
        Steps of the running mean.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(log, "step", "split", "task", "n", "loss", "exact", "tokens")
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    trained = log[log["split"] == "train"]
    loss = _weighted(trained, "loss", "tokens")
    left.plot(loss.index, loss, color="#BBBBBB", lw=0.6, label="one step")
    smooth = loss.rolling(window, min_periods=1).mean()
    left.plot(smooth.index, smooth, color=_COLOURS[0], label=f"mean of {window} steps")
    left.set(xlabel="step", ylabel="loss on the response (nats a token)", yscale="log")
    left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    left.set_title(title, pad=16)
    left.legend()
    note(left, f"{int(trained['n'].sum())} problems; they grow harder over the first half")
    held_out = log[log["split"] == "eval"]
    for i, (task, part) in enumerate(held_out.groupby("task", sort=False)):
        exact = _weighted(part, "exact", "n")
        right.plot(exact.index, exact, color=_COLOURS[i % 6], marker=_MARKERS[i % 6], label=task)
    right.set(xlabel="step", ylabel="whole responses right (fraction)", ylim=(-0.03, 1.03))
    right.set_title("Held-out problems, true beginning given", pad=16)
    right.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    counts = held_out.groupby(["step", "task"])["n"].sum()
    note(right, f"n = {counts.min() if len(counts) else 0} problems a task, thinking mode")
    return figure


def _weighted(frame: pd.DataFrame, value: str, weight: str) -> pd.Series:
    """Mean of ``value`` at every step, weighted."""
    totals = frame.assign(total=frame[value] * frame[weight]).groupby("step")[["total", weight]].sum()
    return totals["total"] / totals[weight]


@styled
def accuracy_bars(table: pd.DataFrame, *, title: str = "Score on held-out problems") -> Figure:
    """Mean score by task and mode, with intervals and what was aimed at.

    Parameters
    ----------
    table : DataFrame
        ``task, mode, n, score, score_low, score_high`` (`accuracy.accuracy_table`).
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    require(table, "task", "mode", "n", "score", "score_low", "score_high")
    tasks = [task for task in TASKS if task in set(table["task"])]
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    axes = figure.add_subplot()
    modes = [mode for mode in _MODES if mode in set(table["mode"])]
    width = 0.8 / len(modes)
    for i, mode in enumerate(modes):
        part = table[table["mode"] == mode].set_index("task").reindex(tasks)
        x = np.arange(len(tasks)) + (i - (len(modes) - 1) / 2) * width
        colour, marker = _MODES[mode]
        axes.bar(x, part["score"], 0.92 * width, color=colour, alpha=0.85, label=mode, hatch="" if i == 0 else "///",
                 edgecolor="white")  # fmt: skip
        error = np.clip([part["score"] - part["score_low"], part["score_high"] - part["score"]], 0, None)
        axes.errorbar(x, part["score"], yerr=error, fmt="none", ecolor="#222222", capsize=2, lw=0.9)
    aims = TARGETS.set_index("task")["aim"].reindex(tasks)
    offset = -(len(modes) - 1) / 2 * width  # over the bars of the first mode
    aim = {"ls": "", "marker": "_", "ms": 13, "mew": 1.6, "color": "#CC79A7", "label": "aim, thinking"}
    axes.plot(np.arange(len(tasks)) + offset, aims, **aim)
    axes.set_xticks(np.arange(len(tasks)), [task.replace("_", " ") for task in tasks], rotation=30, ha="right")
    axes.set(ylabel="recall (needles)\nor right answers (fraction)", ylim=(0, 1.05))
    axes.set_title(title, pad=16)
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    n = sorted({int(table["n"].min()), int(table["n"].max())})
    note(axes, f"n = {'–'.join(map(str, n))} problems a task; whiskers: 95 % interval, {FEW}")
    return figure
