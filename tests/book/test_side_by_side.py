"""The input of a sample under several attributions, its evidence set apart."""

import pytest
import torch

from flashtrace_book.figures import side_by_side
from flashtrace_lib.attribution import Attribution
from tests.oracles.tiny import tiny_sample


def test_the_input_alone_is_shown_with_its_evidence_apart(monkeypatch):
    seen = {}
    monkeypatch.setattr(side_by_side, "comparison_figure", lambda *args, **kwargs: seen.update(args=args, **kwargs))
    sample = tiny_sample()
    sample.tokens = [f"t{i}" for i in range(len(sample))]
    first, stop = sample.segments.prompt
    scores = torch.rand(stop - first)
    side_by_side.on_input(sample, {"a": Attribution(scores, "m"), "b": Attribution(scores * 2, "m")})
    tokens, shown = seen["args"]
    assert tokens == sample.tokens[first:stop] and list(shown) == ["a", "b"] and shown["a"] is scores
    assert [label == "evidence" for label in seen["labels"]] == sample.gold_in_prompt.tolist()
    assert seen["top_k"] == int(sample.gold_in_prompt.sum())


def test_what_cannot_be_shown_is_named():
    sample = tiny_sample()
    with pytest.raises(ValueError, match="no display tokens"):
        side_by_side.on_input(sample, {})
    sample.tokens, sample.gold = ["t"] * len(sample), None
    with pytest.raises(ValueError, match="no gold evidence"):
        side_by_side.on_input(sample, {})
