"""The method of chapter 15 is one: it passes what every registered method must, and its own slow loop finds a fault."""

import sys
import types

import jupytext
import pytest
import torch

from flashtrace_lib.methods import METHODS
from tests.environment import ROOT
from tests.methods import test_methods
from tests.oracles.planted import planted_model
from tests.oracles.tiny import tiny_model, tiny_sample

CELLS = [cell for cell in jupytext.read(ROOT / "notebooks/py/15_your_own_method.py").cells if cell.cell_type == "code"]


@pytest.fixture
def chapter(monkeypatch):
    """The chapter's method, registered, and its loop: the cells that import and define."""
    module = types.ModuleType("your_own_method")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for cell in CELLS:
        text = cell.source.partition("\nrun = ")[0]
        if text.startswith(("import", "@dataclass", "def ")):
            exec(compile(text, module.__name__, "exec"), vars(module))
    monkeypatch.setitem(METHODS, module.ValueNorm.name, module.ValueNorm)
    return module


def test_the_method_goes_through_the_matrix(chapter):
    name = chapter.ValueNorm.name
    test_methods.test_model_is_bit_identical_afterwards(name)
    test_methods.test_result_has_the_common_form(name, (9, 12))
    for position, kind in [(2, 0), (6, 2), (13, 3)]:
        test_methods.test_faithful_methods_rank_the_planted_evidence_first(planted_model(), name, position, kind)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral"])
def test_the_method_equals_the_loop(chapter, family):
    model, sample = tiny_model(family), tiny_sample()
    scores = chapter.ValueNorm().attribute(model, sample).scores
    torch.testing.assert_close(scores, chapter.slow_scores(model, sample), atol=1e-5, rtol=1e-4)
    wrong = chapter.ValueNorm(weighted=False).attribute(model, sample).scores
    assert not torch.allclose(wrong, scores, atol=1e-3)
