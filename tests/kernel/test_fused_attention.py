"""Column sums through a fused kernel: equal to recomputed rows on every family, for every number of spans."""

import pytest
import torch
from torch.nn.attention import SDPBackend

from flashtrace_lib import FlashTrace
from flashtrace_lib.kernel import fused_attention
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.fused_attention import choose, fused_column_sums
from flashtrace_lib.kernel.proximity import column_sums
from tests.oracles.naive import naive_flashtrace
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

CAPPED = "gemma2"


def sums(family, weights, target, rows=(9, 15), n=16):
    """Fused and recomputed sums of every layer."""
    layers = capture(tiny_model(family), tiny_sample(n).input_ids, rows).layers
    return [(fused_column_sums(a, weights, target, rows[0]), column_sums(a, weights, target, rows[0])) for a in layers]


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != CAPPED])
@pytest.mark.parametrize("target", [(9, 15), (11, 12), (10, 14)])
def test_fused_sums_equal_recomputed_ones(family, target):
    weights = torch.rand(3, target[1] - target[0], generator=torch.Generator().manual_seed(0))
    for a, b in sums(family, weights, target):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_more_spans_than_a_head_is_wide():
    weights = torch.rand(19, 6, generator=torch.Generator().manual_seed(0))  # head_dim is 8
    for a, b in sums("llama", weights, (9, 15)):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_rows_in_several_blocks_sum_to_the_same(family, monkeypatch):
    weights = torch.rand(2, 30, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("flashtrace_lib.kernel.attention.BLOCK_BYTES", 4 * 40 * 7)  # masks of seven rows
    for a, b in sums(family, weights, (10, 40), rows=(10, 40), n=40):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_fused_attribution_equals_naive_on_every_family(family):
    model, sample = tiny_model(family), tiny_sample()
    att = FlashTrace(hops=2, attention="fused").attribute(model, sample)
    torch.testing.assert_close(att.scores.double(), naive_flashtrace(model, sample, hops=2)[0], atol=1e-5, rtol=0)
    expected = {"used": "recompute"} if family == CAPPED else {"used": "fused", "recomputed_layers": []}
    assert att.metadata["attention"] == expected


def test_bfloat16_activations_are_summed_in_float32():
    for layer in capture(tiny_model("llama", torch.bfloat16), tiny_sample().input_ids, (9, 15)).layers:
        a = fused_column_sums(layer, torch.ones(1, 6), (9, 15), 9)
        torch.testing.assert_close(a, column_sums(layer, torch.ones(1, 6), (9, 15), 9), atol=1e-6, rtol=1e-5)


def test_soft_capped_layers_are_refused_by_the_kernel():
    layer = capture(tiny_model(CAPPED), tiny_sample().input_ids, (9, 15)).layers[0]
    with pytest.raises(ValueError, match="use attention='recompute'"):
        fused_column_sums(layer, torch.ones(1, 6), (9, 15), 9)


def test_without_a_kernel_rows_are_recomputed_and_the_metadata_say_so(monkeypatch):
    model, sample = tiny_model(), tiny_sample()
    expected = FlashTrace().attribute(model, sample).scores
    monkeypatch.setattr(fused_attention, "KERNELS", [SDPBackend.CUDNN_ATTENTION])  # none on a CPU
    att = FlashTrace(attention="fused").attribute(model, sample)
    assert torch.equal(att.scores, expected) and att.metadata["attention"] == {"used": "recompute"}


def test_a_kernel_with_another_causal_corner_is_not_trusted(monkeypatch):
    model, sample = tiny_model(), tiny_sample()
    expected = FlashTrace().attribute(model, sample).scores
    monkeypatch.setattr(fused_attention, "trusted", fused_attention.trusted.__wrapped__)
    assert fused_attention.trusted(torch.device("cpu"))
    monkeypatch.setattr(fused_attention, "causal_lower_right", lambda m, n: torch.ones(m, n, dtype=torch.bool).tril())
    assert not fused_attention.trusted(torch.device("cpu"))
    att = FlashTrace(attention="fused").attribute(model, sample)
    assert torch.equal(att.scores, expected) and att.metadata["attention"] == {"used": "recompute"}


def test_the_choice_goes_by_device_and_size():
    assert choose(torch.device("cpu"), 32, (0, 10**5)) == "recompute"
    assert choose(torch.device("cuda"), 32, (4096, 8192)) == "fused"
    assert choose(torch.device("cuda"), 32, (500, 510)) == "recompute"
    for asked, used in (("auto", "recompute"), ("cached", "cached")):
        att = FlashTrace(attention=asked).attribute(tiny_model(), tiny_sample())
        assert att.metadata["attention"] == {"used": used}


def test_ways_to_the_same_result_share_one_stored_key():
    plain = {"hops": 1, "heads": "per_head", "target_state": "token", "recursion": "reasoning", "skip_tokens": (),
             "granularity": "token", "aggregation": "sum", "attention": "recompute"}  # fmt: skip
    assert FlashTrace().options() == plain  # as every stored result of the default has it
    assert FlashTrace(attention="fused").options() == FlashTrace(attention="recompute").options() == plain
    assert FlashTrace(attention="cached").options() == {**plain, "attention": "cached"}
