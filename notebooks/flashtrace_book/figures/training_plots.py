"""Figures of the embedded reasoner: its training, and its accuracy on held-out problems."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.viewer.colours import WIDTH

from ..reasoner.curriculum import TASKS
from .axes import FEW, legend_below, n_range, name_groups, new_axes, note, plain_numbers
from .checks import require
from .marks import grouped_bars, whiskers
from .palette import BLUE, HATCHES, ORANGE, PURPLE, series_style
from .style import styled

_MODE_COLOURS = {"thinking": BLUE, "direct": ORANGE}

# Scores that make a reasoner worth explaining, in thinking mode: right answers for variable tracking, arithmetic and
# multi-hop questions, recalled values for needles.
_AIMS = {"h4_c1": 0.95, "h6_c1": 0.95, "h10_c1": 0.95, "h2_c3": 0.7, "mq_q2": 0.9, "mq_q4": 0.9, "mv_v2": 0.9,
         "mv_v4": 0.9, "mq_q8": 0.7, "mv_v8": 0.7, "gsm8k": 0.7, "math500": 0.7, "morehopqa": 0.7,
         "documents_qa": 0.7, "long_word_problems": 0.7}  # fmt: skip
TARGETS = pd.DataFrame([{"task": task, "mode": "thinking", "aim": aim} for task, aim in _AIMS.items()])


@styled
def learning_curves(log: pd.DataFrame, *, window: int = 20, title: str = "Training of the adapter") -> Figure:
    """Loss at every step, and the share of held-out responses that teacher-forced greedy decoding gets right.

    Parameters
    ----------
    log : DataFrame
        ``step, split, task, n, loss, exact, tokens``, as training writes it.
    window : int
        Steps of the running mean.
    """
    require(log, "step", "split", "task", "n", "loss", "exact", "tokens")
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_loss(left, log[log["split"] == "train"], window, title)
    _draw_held_out(right, log[log["split"] == "eval"])
    return figure


def _draw_loss(axes: Axes, log: pd.DataFrame, window: int, title: str) -> None:
    """Loss of every training step, and its running mean."""
    loss = _weighted_by_step(log, "loss", "tokens")
    smooth = loss.rolling(window, min_periods=1).mean()
    axes.plot(loss.index, loss, color="#BBBBBB", lw=0.6, label="one step")
    axes.plot(smooth.index, smooth, color=BLUE, label=f"mean of {window} steps")
    axes.set(xlabel="step", ylabel="loss on the response (nats a token)", yscale="log")
    plain_numbers(axes.yaxis)
    axes.set_title(title, pad=16)
    axes.legend()
    note(axes, f"{int(log['n'].sum())} problems")


def _draw_held_out(axes: Axes, log: pd.DataFrame) -> None:
    """Share of right responses on held-out problems, a line for each task."""
    for i, (task, part) in enumerate(log.groupby("task", sort=False)):
        exact = _weighted_by_step(part, "exact", "n")
        axes.plot(exact.index, exact, label=task, **series_style(i))
    axes.set(xlabel="step", ylabel="whole responses right (fraction)", ylim=(-0.03, 1.03))
    axes.set_title("Held-out problems, true beginning given", pad=16)
    legend_below(axes, ncols=3, gap=0.2)
    counts = log.groupby(["step", "task"])["n"].sum()
    note(axes, f"n = {counts.min() if len(counts) else 0} problems a task, thinking mode")


def _weighted_by_step(frame: pd.DataFrame, value: str, weight: str) -> pd.Series:
    """Weighted mean of ``value`` at every step."""
    totals = frame.assign(total=frame[value] * frame[weight]).groupby("step")[["total", weight]].sum()
    return totals["total"] / totals[weight]


@styled
def accuracy_bars(table: pd.DataFrame, *, title: str = "Score on held-out problems") -> Figure:
    """Mean score by task and mode, with intervals and the aims of `TARGETS`.

    Parameters
    ----------
    table : DataFrame
        ``task, mode, n, score, score_low, score_high`` (`accuracy.accuracy_table`).
    """
    require(table, "task", "mode", "n", "score", "score_low", "score_high")
    tasks = [task for task in TASKS if task in set(table["task"])]
    figure, axes = new_axes(title, "", "recall (needles)\nor right answers (fraction)", height=3.3, width=WIDTH)
    modes = [mode for mode in _MODE_COLOURS if mode in set(table["mode"])]
    bars_x = []  # of each mode
    for i, mode in enumerate(modes):
        part = table[table["mode"] == mode].set_index("task").reindex(tasks)
        spread = whiskers(part["score"], part["score_low"], part["score_high"])
        style = {"color": _MODE_COLOURS[mode], "alpha": 0.85, "hatch": HATCHES[i]}
        bars_x.append(grouped_bars(axes, part["score"], spread, series=i, n_series=len(modes), label=mode, **style))
    aims = TARGETS.set_index("task")["aim"].reindex(tasks)
    style = {"ls": "", "marker": "_", "ms": 13, "mew": 1.6, "color": PURPLE}
    axes.plot(bars_x[0], aims, label="aim, thinking", **style)
    name_groups(axes, [task.replace("_", " ") for task in tasks], rotation=30, ha="right")
    axes.set_ylim(0, 1.05)
    legend_below(axes, ncols=3, gap=0.38)
    note(axes, f"n = {n_range(table['n'])} problems a task; whiskers: 95 % interval, {FEW}")
    return figure
