"""L1 proximity of every contribution to its span, without forming the contributions (eqs. 4 and 7).

With z = a·vW one contribution and t = sign(Y)·z, element by element

    |Y| − |Y − z| = t − 2 max(0, t − |Y|).

The first term sums to a · (v · W sign(Y)): a product of width one. The second, the overshoot, vanishes wherever
|z| ≤ |Y|, which |z_d| ≤ ‖av‖₂ ‖W_:d‖₂ settles beforehand for all but about one element in a thousand. Only those pairs
of a contribution and an element are formed, so B spans cost little more than one: vW serves them all.

The result is exact, and precise where the plain difference of two large norms is not: rounding is relative to z, not
to Y. Everything is float32, and no tensor of shape [H, N, d] exists.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch

from ..sample import Span

BLOCK_BYTES = 16 * 2**20  # of contributions at once, or of what a chunk of pairs is made from
DEVICE_BLOCK_BYTES = 256 * 2**20  # on an accelerator, where small pieces would be all start and no work
_MANY = 16  # spans from which forming vW pays in any case
_GATHERED = 40  # elements of a matrix product that take the time of one element's own dot product

# (contributions, which of them [P], element index [P]) -> elements of v_j W^h, as `_Targets.w` has it, [P]
Elements = Callable[["_Pairs", torch.Tensor, torch.Tensor], torch.Tensor]


def proximity(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max(0, ‖y‖₁ − ‖y − z‖₁) over the last axis, as eq. 4 is written."""
    return (y.abs().sum(-1) - (y - z).abs().sum(-1)).clamp_min(0)


def per_head(scale: torch.Tensor, v: torch.Tensor, w_o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Proximity of the contributions z_bhj = scale_bhj · v_hj W^h of all heads.

    Parameters
    ----------
    scale : torch.FloatTensor, shape [B, H, N]
        Pre-aggregated attention.
    v : torch.FloatTensor, shape [H_kv, N, c]
        Values.
    w_o : torch.FloatTensor, shape [H, c, d]
        Output projections of the heads.
    y : torch.FloatTensor, shape [B, d]
        Targets.

    Returns
    -------
    torch.FloatTensor, shape [B, H, N]
        max(0, ‖Y_b‖₁ − ‖Y_b − z_bhj‖₁).
    """
    targets, scale = _Targets(w_o, y), scale.transpose(0, 1)  # [H, B, N]
    lines = (targets.sign @ w_o.mT).view(len(v), -1, v.shape[-1])  # [H_kv, group * B, c]
    total = scale * torch.bmm(lines, v.mT).view(scale.shape)  # [H, B, N]
    width = max(y.shape[-1], 8 * len(w_o) * len(y))  # floats a source: of its contribution, or of its pairs
    for start, stop in source_blocks(v.shape[1], width, v.device):
        total[..., start:stop] -= _block_overshoot(targets, scale[..., start:stop], v[:, start:stop], w_o)
    return total.clamp_min_(0).transpose(0, 1)


def _block_overshoot(targets: _Targets, scale: torch.Tensor, v: torch.Tensor, w_o: torch.Tensor) -> torch.Tensor:
    """Overshoot of the contributions from a block of sources, shape [H, B, n]."""
    group, fused = len(w_o) // len(v), fused_kernel(v.device)
    if fused is not None:
        heads = [fused(one, v[h // group] @ w_o[h], targets.sign, targets.magnitude) for h, one in enumerate(scale)]
        return torch.stack(heads)
    scale, out = scale.contiguous(), torch.zeros(scale.shape, device=v.device)
    values, columns = v.reshape(-1, v.shape[-1]), targets.w.permute(2, 0, 1).reshape(-1, v.shape[-1])  # [d * H, c]

    def gathered(pairs: _Pairs, which: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        h = pairs.place // scale[0].numel()
        source = (h // group * v.shape[1] + pairs.j).index_select(0, which)
        at = h.index_select(0, which).add_(d, alpha=len(w_o))
        return torch.linalg.vecdot(values.index_select(0, source), columns.index_select(0, at))

    if scale.shape[1] < _MANY:
        lengths = torch.linalg.vector_norm(v, dim=-1).repeat_interleave(group, 0)  # [H, n]
        pairs = targets.pairs(scale.abs() * lengths[:, None])
        if _GATHERED * pairs.counts.sum() <= len(w_o) * v.shape[1] * w_o.shape[-1]:
            targets.overshoot(pairs, scale, gathered, out)
            return out
    for head in range(len(w_o)):
        formed = v[head // group] @ targets.w[head]  # [n, d]
        nearest = torch.maximum(formed.amax(-1), -formed.amin(-1))  # [n], at most ‖v_j‖: fewer pairs

        def taken(pairs: _Pairs, which: torch.Tensor, d: torch.Tensor, formed: torch.Tensor = formed) -> torch.Tensor:
            return formed.view(-1).index_select(0, (pairs.j * formed.shape[1]).index_select(0, which).add_(d))

        targets.overshoot(targets.pairs(scale[head, None].abs() * nearest, head), scale, taken, out)
    return out


def source_blocks(n: int, width: int, device: torch.device) -> Iterator[Span]:
    """Cut n source positions into blocks whose contributions of ``width`` floats fit the device's block."""
    step = max(16, (BLOCK_BYTES if device.type == "cpu" else DEVICE_BLOCK_BYTES) // (4 * width))
    for start in range(0, n, step):
        yield start, min(start + step, n)


class _Pairs(NamedTuple):
    """Contributions with elements that may exceed Y, int64 [A] each: where in [H, B, n], b, j, how many elements."""

    place: torch.Tensor
    b: torch.Tensor
    j: torch.Tensor
    counts: torch.Tensor

    def chunks(self, at_once: int) -> Iterator[tuple[_Pairs, torch.Tensor, torch.Tensor]]:
        """About ``at_once`` elements a time: their contributions, and of each element which of these and its rank."""
        ends = self.counts.cumsum(0)
        bounds = torch.arange(at_once, self.counts.sum() + at_once, at_once, device=ends.device)
        cuts = [0, *torch.searchsorted(ends, bounds).add_(1).clamp_max_(len(ends)).unique().tolist()]
        for part in map(slice, cuts, cuts[1:]):
            some = _Pairs(*(x[part] for x in self))
            which, first = torch.repeat_interleave(some.counts), some.counts.cumsum(0) - some.counts
            yield some, which, torch.arange(len(which), device=ends.device) - first.index_select(0, which)


def _as_key(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Numbers not below 0 as integers of the same order, those of a span behind all of the spans before it."""
    return x.view(torch.int32) + (b << 32)


class _Targets:
    """Targets Y, and the order in which the elements of contributions u W^h can exceed theirs as ‖u‖ grows.

    The order is one for all heads: an element counts in units of the head that reaches furthest there.

    Parameters
    ----------
    w : torch.FloatTensor, shape [H, c, d]
    y : torch.FloatTensor, shape [B, d]
    """

    def __init__(self, w: torch.Tensor, y: torch.Tensor) -> None:
        self.sign = torch.where(y < 0, -1.0, 1.0)  # [B, d]; +1 at zero, where |Y| − |Y − z| = −|z|
        self.magnitude = y.abs()  # [B, d]
        reach = torch.linalg.vector_norm(w, dim=1).amax(0).clamp_min(1e-30)  # [d]
        self.w = w / reach  # [H, c, d], columns of norm 1 at most
        limits, order = (self.magnitude / (reach * (1 + 1e-4))).sort(-1)  # [B, d]: ‖u‖ that reaches |Y_d|, with slack
        self._least, self._order = limits[:, :1], order.view(-1)
        self._units = (self.sign * reach).gather(-1, order).view(-1)  # as the limits are sorted, [B * d]
        self._levels = self.magnitude.gather(-1, order).view(-1)
        self._keys = _as_key(limits, torch.arange(len(y), device=y.device)[:, None]).view(-1)

    def pairs(self, lengths: torch.Tensor, first: int = 0) -> _Pairs:
        """Find the elements that contributions of norms ‖u_bhj‖ ``lengths`` [H', B, n] exceed, from a head on."""
        at = (lengths > self._least).view(-1).nonzero()[:, 0]  # [A]
        b, j = at // lengths.shape[-1] % lengths.shape[1], at % lengths.shape[-1]
        ends = torch.searchsorted(self._keys, _as_key(lengths.view(-1).index_select(0, at), b))
        return _Pairs(at + first * lengths[0].numel(), b, j, ends - b * self.w.shape[-1])

    def overshoot(self, pairs: _Pairs, scale: torch.Tensor, elements: Elements, out: torch.Tensor) -> None:
        """Add 2 Σ_d max(0, sign(Y_bd) z_bhjd − |Y_bd|) to ``out``; ``scale`` and ``out`` are [H, B, n]."""
        for some, which, rank in pairs.chunks(max(1, BLOCK_BYTES // (12 * self.w.shape[1]))):
            at = rank.add_((some.b * self.w.shape[-1]).index_select(0, which))  # [P] as the limits are sorted
            z = elements(some, which, self._order.index_select(0, at))
            z *= scale.view(-1).index_select(0, some.place).index_select(0, which)
            over = z.mul_(self._units.index_select(0, at)).sub_(self._levels.index_select(0, at)).clamp_min_(0)
            out.view(-1).index_add_(0, some.place.index_select(0, which), over, alpha=2)


def _overshoot(scale: torch.Tensor, formed: torch.Tensor, sign: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """2 Σ_d max(0, sign(Y_bd) z_bjd − |Y_bd|) of all elements, shape [B, n]; to be compiled into one loop.

    Parameters
    ----------
    scale : torch.FloatTensor, shape [B, n]
    formed : torch.FloatTensor, shape [n, d]
        v_j W.
    sign, magnitude : torch.FloatTensor, shape [B, d]
    """
    z = scale[:, :, None] * formed * sign[:, None]  # [B, n, d]: exists only uncompiled
    return 2 * (z - magnitude[:, None]).clamp_min(0).sum(-1)


@cache
def fused_kernel(device: torch.device) -> Callable[..., torch.Tensor] | None:
    """`_overshoot` in one compiled loop, for devices on which reading everything once beats picking pairs.

    Returns
    -------
    callable or None
        None on a CPU, and, after a warning, where the compiler does not work: pairs are picked instead.
    """
    if device.type != "cuda":
        return None
    try:
        compiled = torch.compile(_overshoot, dynamic=True)
        for b in (1, 2):  # compile now, or fail now: one span is a case of its own to the compiler
            a, f, y = (torch.ones(shape, device=device) for shape in ((b, 3), (3, 5), (b, 5)))
            compiled(a, f, y, y)
    except Exception as error:  # whatever a compiler raises: the other way gives the same numbers
        warnings.warn(f"no compiled kernel on {device} ({type(error).__name__}); attribution is slower", stacklevel=2)
        return None
    return compiled
