"""Targets within generated code, and code judged by its tests."""

from dataclasses import replace

import pytest
import torch

from flashtrace_book.experiments.code_targets import OnCode, code_span, last_line_span, with_target
from flashtrace_lib import FlashTrace, Sample, Segments
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.methods import IFR
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import task_examples
from flashtrace_lib.tasks.scoring import score
from tests.environment import ROOT
from tests.oracles.tiny import tiny_model

PIECES = ["Add", " one", ".", "<|", "think", "ing", "|>", "f.py", "\n", "```", "python", "\n",
          "def", " f(x):", "\n", "    y = x", " + 1", "\n    return", " y", "\n", "```"]  # fmt: skip


def code_sample(pieces=PIECES, output=(7, 21)):
    ids = torch.arange(3, 3 + len(pieces))
    return Sample(ids, Segments((0, 3), (4, 6), output), tokens=pieces, mask_token_id=0, metadata={"id": "code"})


def test_the_code_is_what_stands_in_the_fence():
    sample = code_sample()
    assert "".join(PIECES[slice(*code_span(sample))]) == "def f(x):\n    y = x + 1\n    return y"
    assert "".join(PIECES[slice(*last_line_span(sample))]) == "\n    return y"  # a token is not cut
    bare = code_sample(["a", "b", "c", "<", "t", "u", ">", "x = 1", "\n", "y", " = 2", "\n"], (7, 12))
    assert code_span(bare) == (7, 12) and last_line_span(bare) == (9, 11)


def test_targets_keep_the_response_that_is_scored():
    sample = code_sample()
    last, whole = with_target(sample, "last_line"), with_target(sample, "code")
    assert last.segments.output == (17, 19) and last.segments.reasoning == (4, 17)
    assert whole.segments.output == (12, 19) and whole.segments.reasoning == (4, 6)
    assert last.response == whole.response == sample.response
    with pytest.raises(ValueError, match="target must be one of last_line, code, got 'all'"):
        with_target(sample, "all")
    with pytest.raises(ValueError, match="has no display tokens"):
        code_span(replace(sample, tokens=None))
    with pytest.raises(ValueError, match="code of its response is empty"):
        code_span(code_sample(["a", "b", "c", "<", "t", "u", ">", "```", "\n", "```"], (7, 10)))


def test_a_method_on_code_is_the_method_on_the_other_sample(tmp_path):
    model, sample = tiny_model(), code_sample()
    for method, target in ((IFR(), "last_line"), (FlashTrace(hops=2), "last_line"), (FlashTrace(), "code")):
        expected = method.attribute(model, with_target(sample, target)).scores
        assert torch.equal(OnCode(method, target).attribute(model, sample).scores, expected)
    methods = {"last": OnCode(IFR(), "last_line"), "all": OnCode(IFR(), "code"), "deep": OnCode(FlashTrace(), "code")}
    frame = evaluate(model, methods, [sample], store=Store(tmp_path / "records"), metrics=("rise",), steps=2)
    assert frame["key"].nunique() == 3 and set(frame["method"]) == set(methods)  # options are part of the key
    with pytest.raises(ValueError, match="target must be one of"):
        OnCode(IFR(), "line")


def test_code_is_judged_by_its_tests_not_by_its_words():
    example = task_examples("exercism", 1, folder=ROOT / "tests" / "records", seed=None)[0]
    assert score(example, example.output, "unit_tests") == 1
    assert score(example, "```python\ndef other():\n    pass\n```", "unit_tests") == 0
    with pytest.raises(ValueError, match="unit_tests needs one file"):
        score(replace(example, files={}), example.output, "unit_tests")
