"""The figure of a suppression matrix holds its numbers, its names and its unit."""

import numpy as np
import pytest
import torch

from flashtrace_book.figures.graph_plots import first_words, suppression_heatmap
from flashtrace_lib.methods.suppression import SuppressionMatrix

TOKENS = ["<s>", "The ", "sky ", "is ", "blue.", " Why", "?", "<t>", "It ", "scatters ", "$5", " light.", " Blue", "."]
ROWS, COLUMNS = [(8, 10), (10, 12), (12, 14)], [(1, 5), (5, 7), (8, 10), (10, 12)]
VALUES = torch.tensor([[0.5, 0.1, 0.0, 0.0], [0.2, 0.3, 0.4, 0.0], [0.1, 0.05, 0.6, 0.7]])


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_a_suppression_matrix_holds_every_effect_and_names_sentences():
    figure = suppression_heatmap(SuppressionMatrix(VALUES, ROWS, COLUMNS), TOKENS)
    axes, bar = figure.axes
    drawn = axes.collections[0].get_array().reshape(3, 4)  # seaborn draws a mesh
    assert np.ma.getmaskarray(drawn).tolist() == [[False, False, True, True], [False, False, False, True], [False] * 4]
    assert drawn.filled(0) == pytest.approx(VALUES.numpy())
    assert labels(axes.xaxis) == ["The sky is blue.", "Why?", "It scatters", r"\$5 light."]
    assert labels(axes.yaxis) == ["It scatters", r"\$5 light.", "Blue."]
    assert "nats per token" in bar.get_ylabel() and "suppressed" in axes.get_title(loc="left")
    borders = [line.get_xydata()[0].tolist() for line in axes.lines]
    assert borders == [[2, 0], [0, 2]]  # I | T, T | O


def test_of_many_sentences_of_the_input_those_with_an_effect_are_shown():
    figure = suppression_heatmap(SuppressionMatrix(VALUES, ROWS, COLUMNS), TOKENS, most=1)
    assert labels(figure.axes[0].xaxis) == ["The sky is blue.", "It scatters", r"\$5 light."]
    assert any("1 of 2 sentences of I" in text.get_text() for text in figure.axes[0].texts)
    with pytest.raises(ValueError, match="display text of 14 tokens"):
        suppression_heatmap(SuppressionMatrix(VALUES, ROWS, COLUMNS), TOKENS[:5])
    with pytest.raises(ValueError, match="most >= 1"):
        suppression_heatmap(SuppressionMatrix(VALUES, ROWS, COLUMNS), TOKENS, most=0)


def test_a_sentence_is_named_by_its_first_words():
    assert first_words(["one two ", "three four five six seven"], (0, 2)) == "one two three four …"
    assert first_words(["\n "], (0, 1)) == "…"
