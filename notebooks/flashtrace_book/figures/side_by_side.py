"""The input of a sample under several attributions, its evidence marked."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.sample import Sample
from flashtrace_lib.viewer.figure import comparison_figure


def on_input(sample: Sample, attributions: Mapping[str, Attribution], *, budget: int = 160) -> Figure:
    """I under each attribution, side by side; passages of evidence are set apart and named.

    Parameters
    ----------
    sample : Sample
        With display tokens and gold.
    attributions : mapping of title to Attribution
    budget : int
        Tokens shown, about.

    Raises
    ------
    ValueError
        If the sample has no gold, or no display tokens.
    """
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens: build it with text.build_sample, or set tokens")
    labels = ["evidence" if gold else "prompt" for gold in sample.gold_in_prompt.tolist()]
    tokens = sample.tokens[slice(*sample.segments.prompt)]
    scores = {title: attribution.scores for title, attribution in attributions.items()}
    return comparison_figure(
        tokens, scores, labels=labels, budget=budget, top_k=len([x for x in labels if x == "evidence"])
    )
