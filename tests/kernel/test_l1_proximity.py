"""The proximity kernel against eq. 4 written out, where pairs are few, many, all and none."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashtrace_lib.bench.memory import peak_memory
from flashtrace_lib.kernel import l1_proximity
from flashtrace_lib.kernel.l1_proximity import fused_kernel, per_head, proximity


def problem(spans=3, n=30, heads=4, groups=2, c=5, d=24, y_scale=1.0, seed=0):
    """Attention sums [B, H, N] of very different sizes, values [H_kv, N, c], projections [H, c, d], targets [B, d]."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.rand(spans, heads, n, generator=generator) ** 8
    v, w_o = torch.randn(groups, n, c, generator=generator), torch.randn(heads, c, d, generator=generator)
    return scale, v, w_o, y_scale * torch.randn(spans, d, generator=generator)


def contributions_of(scale, v, w_o):
    """z_bhj in float64, [B, H, N, d]."""
    values = v.double().repeat_interleave(len(w_o) // len(v), 0)
    return scale.double()[..., None] * torch.einsum("hnc,hcd->hnd", values, w_o.double())


def check(scale, v, w_o, y):
    """Rounding may be relative to the contribution, and only to it (and the formula's own, in float64, to Y)."""
    z = contributions_of(scale, v, w_o)
    for exact, mine in zip(z.unbind(1), per_head(scale, v, w_o, y).unbind(1), strict=True):
        expected = proximity(exact, y.double()[:, None])
        assert ((mine - expected).abs() <= 1e-6 * z.abs().sum((1, 3)) + 1e-15 * float(y.abs().sum())).all()


@given(
    seed=st.integers(0, 10**6),
    spans=st.sampled_from([1, 5, 20]),
    y_scale=st.sampled_from([1e-3, 0.3, 3.0, 300.0]),  # from every element overshot to none
    blocks=st.sampled_from([1, 2000, 10**7]),
)
@settings(max_examples=60)
def test_kernel_equals_the_formula(seed, spans, y_scale, blocks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(l1_proximity, "BLOCK_BYTES", blocks)
        check(*problem(spans=spans, y_scale=y_scale, seed=seed))


@pytest.mark.parametrize("gathered", [0, 10**9])  # never form vW, always form it
def test_both_ways_to_an_element_agree(gathered, monkeypatch):
    monkeypatch.setattr(l1_proximity, "_GATHERED", gathered)
    check(*problem(y_scale=0.1))


def test_zeros_in_target_values_and_projection():
    scale, v, w_o, y = problem()
    y[:, ::3] = 0
    v[:, 4], w_o[:, :, 5], scale[:, 1] = 0, 0, 0
    check(scale, v, w_o, y)
    check(scale, v, w_o, torch.zeros_like(y))


def test_a_large_target_does_not_swallow_small_contributions():
    """Plain float32 norms of 1e4 cannot tell contributions of 1e-4 apart; the kernel must."""
    scale, v, w_o, y = problem(y_scale=1e4)
    check(1e-4 * scale, v, w_o, y)
    z = contributions_of(1e-4 * scale, v, w_o)[:, 0]
    plain, exact = proximity(z.float(), y[:, None]).double(), proximity(z, y.double()[:, None])
    assert (plain - exact).abs().max() > 1e-2 * exact.max()


def test_no_tensor_of_all_contributions_exists():
    n, d = 200_000, 512  # a block is a fifth of what is allowed, so that other noise fits
    v, w_o, y = torch.randn(1, n, 8), torch.randn(1, 8, d), 10 * torch.randn(1, d)
    scale = torch.rand(1, 1, n)
    per_head(scale, v, w_o, y)
    with peak_memory() as peak:
        per_head(scale, v, w_o, y)
    assert peak.over_start < 4 * n * d / 2  # bytes; the contributions would take twice this


def test_the_compiled_loop_computes_the_same(monkeypatch):
    scale, v, w_o, y = problem(y_scale=0.1)
    expected, calls = per_head(scale, v, w_o, y), []
    kernel = lambda *args: calls.append(1) or l1_proximity._overshoot(*args)  # noqa: E731
    monkeypatch.setattr(l1_proximity, "fused_kernel", lambda device: kernel)
    torch.testing.assert_close(per_head(scale, v, w_o, y), expected, atol=1e-5, rtol=1e-5)
    assert len(calls) == len(w_o)


def test_a_compiler_that_fails_is_a_warning_and_pairs_are_picked(monkeypatch):
    def broken(*args, **kwargs):
        raise OSError("no compiler here")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(UserWarning, match="no compiled kernel on cuda .OSError."):
        assert fused_kernel.__wrapped__(torch.device("cuda")) is None
    assert fused_kernel.__wrapped__(torch.device("cpu")) is None
