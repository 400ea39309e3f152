"""Figures of the ablations: differences with their intervals, and who takes the places of the evidence."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.viewer.colours import INK, WIDTH

from .axes import FEW, n_range, name_rows, new_panels, note
from .checks import require, require_metrics
from .marks import side_by_side, whiskers
from .palette import GREY, MARKERS, PALETTE
from .style import CONTROLS, method_order, method_style, metric_name, styled

_LABEL = 0.058  # inches of a character of a row's name
_STEP = 0.24  # rows between the marks of two series


@styled
def forest(table: pd.DataFrame, metrics: Sequence[str], *, reference: str, series: str = "", title: str = "") -> Figure:
    """Differences with their intervals, sorted by the first metric's, best on top.

    Parameters
    ----------
    table : DataFrame
        ``method, label, metric, difference, low, high, n`` and, where there is one, the column ``series``.
    metrics : sequence of str
        Values of the column ``metric``, a panel each.
    reference : str
        What the differences are to, for the axes.
    series : str
        Column whose values stand side by side on a row, in colours of their own. Default: there is one series.

    Returns
    -------
    matplotlib.figure.Figure
        A filled mark's interval leaves out zero. What was not measured has no mark. In a single series controls are
        grey.
    """
    require(table, "method", "label", "metric", "difference", "low", "high", "n", *[series] * bool(series))
    require_metrics(table, metrics)
    groups = dict(iter(table.groupby(series, sort=False))) if series else {"": table}
    sign = -1 if HIGHER_IS_BETTER[metrics[0]] else 1
    first = table[table["metric"] == metrics[0]].assign(order=lambda t: sign * t["difference"])
    best = first.groupby("label", sort=False)["order"].mean().sort_values(kind="stable")
    rows = list(dict.fromkeys([*best.index, *table["label"]]))
    height = (0.16 + 0.1 * len(groups)) * len(rows) + 1.2
    figure, panels = new_panels(title, 1, len(metrics), height=height, sharey=True)
    for axes, metric in zip(panels[0], metrics, strict=True):
        for i, (name, group) in enumerate(groups.items()):
            part = group[group["metric"] == metric].set_index("label")
            style = {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}
            _draw_series(axes, part, rows, side_by_side(i, len(groups), _STEP), style, str(name))
        axes.axvline(0, color=INK, lw=0.8, zorder=1)
        name_rows(axes, rows)
        axes.grid(axis="y", visible=False)
        arrow = "→" if HIGHER_IS_BETTER[metric] else "←"
        axes.set_xlabel(f"{metric_name(metric).replace(' (fraction)', '')},\nminus {reference}; {arrow} better")
        panel = (WIDTH - _LABEL * max(map(len, rows))) / len(metrics) - 0.2  # inches
        n = table.loc[table["metric"] == metric, "n"]
        note(axes, f"n = {n_range(n)}; 95 % interval, {FEW}", beside=WIDTH - panel)
        axes.locator_params(axis="x", nbins=4)
    if series:
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(groups))
    return figure


def _draw_series(axes: Axes, part: pd.DataFrame, rows: Sequence[str], shift: float, style: dict, name: str) -> None:
    """The differences of one series, each on its row, and the series' entry in the legend."""
    for label, row in part.iterrows():
        colour = GREY if not name and row["method"] in CONTROLS else style["color"]
        fill = colour if row["low"] > 0 or row["high"] < 0 else "white"
        spread = whiskers(row["difference"], row["low"], row["high"])
        mark = {"ls": "", "capsize": 2, "ms": 4.5, "elinewidth": 0.9, **style, "color": colour, "markerfacecolor": fill}
        axes.errorbar(row["difference"], rows.index(label) + shift, xerr=spread, **mark)
    axes.plot([], [], ls="", ms=4.5, label=name, **style)


@styled
def gains_by_off_path(table: pd.DataFrame, metric: str, *, reference: str, title: str = "") -> Figure:
    """Paired differences against the number of facts off the path, a line a method, a panel a mode of reasoning.

    Parameters
    ----------
    table : DataFrame
        ``method, reasoning, off_path, metric, difference, low, high, n`` (`ablations.minus` by cell).
    reference : str
        What the differences are to, for the axes.
    """
    part = table[table["metric"] == metric]
    require(part, "method", "reasoning", "off_path", "difference", "low", "high", "n")
    modes, steps = list(dict.fromkeys(part["reasoning"])), sorted(part["off_path"].unique())
    figure, panels = new_panels(title, 1, len(modes), height=3.4, sharey=True)
    methods = method_order(list(part["method"]))
    for axes, mode in zip(panels[0], modes, strict=True):
        for i, name in enumerate(methods):
            rows = part[(part["method"] == name) & (part["reasoning"] == mode)].sort_values("off_path")
            x = [steps.index(k) + side_by_side(i, len(methods), 0.09) for k in rows["off_path"]]
            style, spread = method_style(name), whiskers(rows["difference"], rows["low"], rows["high"])
            line = {"elinewidth": 0.8, "capsize": 1.5, "ms": 4, "lw": 1.1, "label": style.label, **style.plot_options}
            axes.errorbar(x, rows["difference"], yerr=spread, **line)
        axes.axhline(0, color=INK, lw=0.8, zorder=1)
        axes.set_xticks(range(len(steps)), [str(k) for k in steps])
        axes.set_xlabel("facts off the path that T notes, k")
        axes.set_title(f"reasoning: {mode}", loc="left")
        note(axes, f"n = {n_range(part[part['reasoning'] == mode]['n'])} a mark; 95 % interval", beside=WIDTH / 2)
    panels[0][0].set_ylabel(f"{metric_name(metric)},\nminus {reference}")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
