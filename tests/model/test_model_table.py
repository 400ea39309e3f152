"""The table of model families in docs/models.md: every verdict repeated, and what the verdicts depend on."""

import pytest
import torch

from flashtrace_lib import FlashTrace
from scripts import model_table as table
from tests.oracles.naive import naive_flashtrace
from tests.oracles.naive_families import Unexplained, family_scores, family_states
from tests.oracles.tiny import FAMILIES, tiny_model
from tests.oracles.tiny_families import NAMES, NotBuildable, tiny_config, tiny_random_model


@pytest.mark.slow
def test_every_family_is_right_or_refused_as_the_page_says():
    verdicts = [table.verdict(name) for name in NAMES]
    assert [v for v in verdicts if v.kind in (table.WRONG, table.CRASH)] == []
    text = table.PAGE.read_text()
    assert table.differences(verdicts, text) == []
    assert list(table.stored(text)) == list(table.stored(table.page(verdicts)))
    assert sum(v.kind == table.RIGHT for v in verdicts) > 100


@pytest.mark.parametrize("family", FAMILIES)
def test_the_naive_version_for_any_family_equals_the_one_that_knows_it(family):
    model, sample = tiny_model(family), table.tiny_sample()
    scores, first, second = family_scores(model, sample)
    final, hops, _ = naive_flashtrace(model, sample)
    for found, expected in zip((scores, first, second), (final, *hops), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("name", "message"), [
    ("minimax", "layer 1 mixes positions in an unknown way"), ("jamba", "not the sum of what every source gives"),
    ("diffllama", "more than once"), ("zaya", "no state after attention"),
])  # fmt: skip
def test_the_naive_version_explains_only_what_adds_up(name, message):
    with pytest.raises(Unexplained, match=message):
        family_states(tiny_random_model(name), table.tiny_sample().input_ids)


def test_a_family_that_is_attributed_wrongly_is_found(monkeypatch):
    right = FlashTrace.attribute

    def shifted(self, model, sample):
        found = right(self, model, sample)
        found.scores = found.scores.roll(1)  # each score on the token behind it
        return found

    assert table.verdict("llama").kind == table.RIGHT
    monkeypatch.setattr(FlashTrace, "attribute", shifted)
    assert table.verdict("llama").kind == table.WRONG


def test_a_family_that_fails_with_a_foreign_error_is_found(monkeypatch):
    monkeypatch.setattr(FlashTrace, "attribute_many", lambda *_: {}["head_dim"])
    assert table.verdict("llama").kind == table.CRASH


def test_a_family_accepted_in_half_precision_only_is_found(monkeypatch):
    def attribute(self, model, sample):
        if model.dtype == torch.float32:
            raise ValueError("unsupported architecture 'llama': for the test")

    monkeypatch.setattr(FlashTrace, "attribute", attribute)
    assert table.verdict("llama").reason == "refused in float32, accepted in bfloat16"


def test_windows_and_sparse_attention_bite():
    """A context longer than the window, the chunk and the keys that are picked; else the table would say nothing."""
    ids = table.tiny_sample().input_ids
    for name, kept in [("mistral", 6), ("deepseek_v32", 8), ("minimax_m3_vl_text", 12)]:
        given = family_states(tiny_random_model(name), ids)[-1]["mixers"][0][0]  # [J, N, H, head_dim]
        assert (given[:, -1] != 0).any(-1).sum(0).max() <= kept


def test_every_kind_of_layer_of_a_family_is_in_its_tiny_model():
    assert set(tiny_config("gemma3_text").layer_types) == {"sliding_attention", "full_attention"}
    assert set(tiny_config("qwen3_next").layer_types) == {"linear_attention", "full_attention"}
    assert set(tiny_config("deepseek_v32").mlp_layer_types) == {"dense", "sparse"}


def test_what_cannot_be_built_says_why():
    with pytest.raises(NotBuildable, match="gemma4_assistant|hidden_size_per_layer_input"):
        tiny_random_model("gemma4_assistant")


def test_differences_name_what_changed():
    right, refused = table.Verdict("llama", table.RIGHT, gap=2e-7), table.Verdict("rwkv", table.REFUSED, "no | softmax")
    text = table.page([right, refused])
    assert table.differences([right, refused], text) == []
    assert table.differences([table.Verdict("llama", table.RIGHT, gap=9e-6)], text) == []
    for changed in (
        table.Verdict("llama", table.WRONG, "off"),
        table.Verdict("rwkv", table.REFUSED, "another reason"),
        table.Verdict("rwkv", table.RIGHT, gap=1e-7),
        table.Verdict("mamba", table.REFUSED, "no softmax"),
    ):
        (line,) = table.differences([changed], text)
        assert changed.name in line and changed.kind in line
