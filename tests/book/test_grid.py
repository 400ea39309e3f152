"""The grid beyond copying: what is kept of the answers, and its metrics."""

from types import SimpleNamespace as Of

import numpy as np
import pandas as pd
import pytest

from flashtrace_book import beyond
from flashtrace_book.experiments import facts, grid, groups
from flashtrace_book.profile import load_profile
from flashtrace_lib.load import load_model
from flashtrace_lib.tasks.responses import true_response


def test_answers_are_kept_that_are_right_as_asked_and_causal(monkeypatch, tmp_path):
    model, tokenizer = load_model("embedded-shallow")

    def answers(model, tokenizer, block, *_):
        """All as they should be, but: one wrong, one that notes too much, and one whose twin does not change."""
        texts = [true_response(example) for example in block]
        for i, example in enumerate(block):
            mode, twin = example.metadata["mode"], example.id.endswith("-twin")
            if twin:
                texts[i] = f"<think>\n{example.metadata['twin']['reasoning']}\n</think>\n\n{example.answers[0]}"
            if example.metadata["index"] == 0 and mode == "quote":
                texts[i] = "<think>\nNo.\n</think>\n\n99"
            elif example.metadata["index"] == 1 and mode == "notation":
                texts[i] = texts[i].replace("<think>\n", f"<think>\n{example.metadata['notes'][0]}\n")
            elif example.metadata["index"] == 2 and twin:
                texts[i] = "<think>\nB=1\n</think>\n\n99"
        return [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]

    monkeypatch.setattr(grid, "respond", answers)
    monkeypatch.setattr(grid, "model_of", lambda *_: (model, tokenizer))
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    asked = grid.Grid("reasoner", (), off_path=(0, 4), chains=(2,), samples=2, tries=5, length=320)
    for (mode, k), cell in grid.answered(load_profile("smoke"), asked).items():
        # quote: 0 is wrong, 2 is not causal; notation: 1 notes what nobody asked for, 2 is not causal
        assert [s.metadata["index"] for s in cell.kept[2]] == ([1, 3] if mode == "quote" else [0, 3]), (mode, k)
        counts = {"tried": 4, "correct": 3 if mode == "quote" else 4, "as asked": 3, "causal": 2, "unfinished": 0}
        assert dict(cell.counts) == counts
        for sample in cell.collection().samples:
            assert not set(sample.metadata["distracting"]) & set(np.flatnonzero(sample.gold))


def test_about_as_many_as_asked():
    (example,) = facts.fact_examples(load_model("embedded-shallow")[1], 1, "notation", 4, chain=2, length=400)
    down, notes, up = (example.metadata[name] for name in ("down", "notes", "up"))
    assert [n for n in range(8) if facts.as_asked(example, "\n".join([*down, *notes[:n], *up]))] == [3, 4, 5]


def test_among_the_facts_by_hand():
    about = pd.Series({"gold": np.array([1, 2]), "others": np.array([4, 5])})
    assert beyond._among_facts({"scores": [9, 3, 1, 9, 2, 0]}, about) == pytest.approx(0.75)  # three of four pairs
    assert beyond._among_facts({"scores": None}, about) == 0.5


def test_a_plan_takes_the_first_samples_of_few_sentences(monkeypatch):
    long = {n: Of(metadata={}, segments=Of(prompt=None), sentences_in=lambda _, n=n: [None] * n) for n in (3, 9, 2, 1)}
    asked = []
    monkeypatch.setattr(groups, "evaluate", lambda model, methods, part, **_: asked.append(part))
    monkeypatch.setattr(groups, "Scorer", lambda *_, **__: None)
    for how, first in (({"sentences": 3}, (3, 2)), ({"short_first": 2}, (2, 1))):
        groups.measure(load_profile("smoke"), groups.Plan(("ifr",), 2, **how), long.values(), None, None, None)
        assert asked.pop() == [long[n] for n in first]


def test_samples_that_were_looked_at_are_the_first_whatever_the_order_of_rows():
    frame = pd.DataFrame({"cell": "h2_c3", "method": beyond.CAUSAL, "sample": list("fedcba")})
    assert list(beyond.fresh(frame, frame[::-1])["sample"]) == ["f", "e"]
