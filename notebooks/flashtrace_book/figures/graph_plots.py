"""Figures of how sentences depend on each other."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from flashtrace_lib.methods.suppression import SuppressionMatrix
from flashtrace_lib.sample import Span
from flashtrace_lib.viewer.colours import INK, SEQUENTIAL, WIDTH

from .axes import note
from .palette import LIGHT
from .style import styled

_CHARACTERS = 24  # of a sentence that fit beside the axes


@styled
def suppression_heatmap(
    matrix: SuppressionMatrix,
    tokens: Sequence[str],
    *,
    most: int = 24,
    title: str = "What each sentence loses when another is suppressed",
) -> Figure:
    """Effect of suppressing each sentence of I and T (columns) on each later sentence of T and O (rows).

    Parameters
    ----------
    matrix : SuppressionMatrix
        From `Suppression.matrix`.
    tokens : sequence of str
        Display text of each token of the context.
    most : int
        Sentences of I that are shown, those with the largest effect on any one sentence; all of T are.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        The darker, the larger the effect; grey where the column does not stand before the row. Lines divide T from
        I and from O.

    Raises
    ------
    ValueError
        If ``most`` is below 1, or the tokens do not reach the last sentence.
    """
    if most < 1 or matrix.rows[-1][1] > len(tokens):
        raise ValueError(
            f"needs most >= 1 and the display text of {matrix.rows[-1][1]} tokens or more, got most = {most} and "
            f"{len(tokens)} tokens"
        )
    n_reasoning = len(set(matrix.columns) & set(matrix.rows))
    n_input = len(matrix.columns) - n_reasoning
    values = matrix.values.numpy()
    shown = np.sort(np.argsort(-values[:, :n_input].max(0), kind="stable")[:most])  # of I, in the order of the text
    kept = [*shown.tolist(), *range(n_input, len(matrix.columns))]
    columns = [matrix.columns[i] for i in kept]
    later = np.array([[column[1] <= row[0] for column in columns] for row in matrix.rows])
    figure = Figure(figsize=(WIDTH, 0.16 * len(matrix.rows) + 2.4), layout="constrained")
    axes = figure.add_subplot()
    sns.heatmap(
        values[:, kept],
        ax=axes,
        mask=~later,
        cmap=SEQUENTIAL,
        vmin=0,
        cbar_kws={"label": "KL divergence (nats per token)", "pad": 0.02},
        xticklabels=[first_words(tokens, span) for span in columns],
        yticklabels=[first_words(tokens, span) for span in matrix.rows],
    )
    axes.set_facecolor(LIGHT)
    axes.grid(visible=False)
    axes.axvline(len(shown), color=INK, lw=0.8)
    axes.axhline(n_reasoning, color=INK, lw=0.8)
    axes.set(xlabel="suppressed sentence: of I, then of T", ylabel="later sentence: of T, then of O")
    axes.tick_params(length=0, labelsize=6)
    axes.tick_params(axis="x", labelrotation=90)
    axes.tick_params(axis="y", labelrotation=0)  # seaborn turns few labels upright
    axes.set_title(title, pad=16)
    of_input = f"{len(shown)} of {n_input} sentences of I, those with the largest effect" if n_input > most else ""
    note(axes, "; ".join(filter(None, ["one sample", of_input, "grey: not before the sentence of the row"])))
    return figure


def first_words(tokens: Sequence[str], span: Span) -> str:
    """The words that a sentence begins with, as many as fit beside the axes."""
    text = "".join(tokens[slice(*span)]).replace("$", r"\$")  # a pair of dollars would be read as a formula
    return shorten(text, _CHARACTERS, placeholder=" …") or "…"
