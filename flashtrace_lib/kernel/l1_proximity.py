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
from dataclasses import dataclass
from functools import cache

import torch

from ..sample import Span

BLOCK_BYTES = 16 * 2**20  # of contributions at once, or of what a chunk of pairs is made from
DEVICE_BLOCK_BYTES = 256 * 2**20  # on an accelerator, where small pieces would be all start and no work
_GATHERED = 40  # elements of a matrix product that take the time of one element's own dot product

# (span index, source index, element index), int64 [P] each -> elements z_bjd, [P]
Elements = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def proximity(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max(0, ‖y‖₁ − ‖y − z‖₁) over the last axis, as eq. 4 is written."""
    return (y.abs().sum(-1) - (y - z).abs().sum(-1)).clamp_min(0)


def per_head(scale: torch.Tensor, v: torch.Tensor, w_o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Proximity of one head's contributions z_bj = scale_bj · v_j W.

    Parameters
    ----------
    scale : torch.FloatTensor, shape [B, N]
        Pre-aggregated attention of the head.
    v : torch.FloatTensor, shape [N, c]
        Values.
    w_o : torch.FloatTensor, shape [c, d]
        The head's output projection.
    y : torch.FloatTensor, shape [B, d]
        Targets.

    Returns
    -------
    torch.FloatTensor, shape [B, N]
        max(0, ‖Y_b‖₁ − ‖Y_b − z_bj‖₁).
    """
    targets = _Targets(w_o, y)
    total = scale * ((targets.sign @ w_o.T) @ v.T)  # [B, N]
    for start, stop in source_blocks(len(v), y.shape[-1], v.device):
        total[:, start:stop] -= _block_overshoot(targets, scale[:, start:stop], v[start:stop], w_o)
    return total.clamp_min_(0)


def _block_overshoot(targets: _Targets, scale: torch.Tensor, v: torch.Tensor, w_o: torch.Tensor) -> torch.Tensor:
    """Overshoot of one head's contributions from a block of sources, shape [B, n]."""
    fused = fused_kernel(v.device)
    if fused is not None:
        return fused(scale, v @ w_o, targets.sign, targets.magnitude)
    pairs = targets.pairs(scale.abs() * torch.linalg.vector_norm(v, dim=-1))
    formed = v @ w_o if _GATHERED * pairs.total() > len(v) * w_o.shape[1] else None  # [n, d]
    columns = w_o.T  # [d, c]

    def elements(b: torch.Tensor, j: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return scale[b, j] * (torch.linalg.vecdot(v[j], columns[d]) if formed is None else formed[j, d])

    return targets.overshoot(pairs, elements, BLOCK_BYTES // (4 * 3 * w_o.shape[0]))


def source_blocks(n: int, width: int, device: torch.device) -> Iterator[Span]:
    """Cut n source positions into blocks whose contributions of ``width`` floats fit the device's block."""
    step = max(16, (BLOCK_BYTES if device.type == "cpu" else DEVICE_BLOCK_BYTES) // (4 * width))
    for start in range(0, n, step):
        yield start, min(start + step, n)


@dataclass
class _Pairs:
    """Contributions with elements that may exceed Y: ``b``, ``j`` and their number ``counts``, int64 [A] each."""

    b: torch.Tensor
    j: torch.Tensor
    counts: torch.Tensor
    shape: torch.Size  # [B, n], of all contributions

    def total(self) -> int:
        """Number of elements."""
        return int(self.counts.sum())

    def chunks(self, at_once: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Span, source, and rank of the element among those of its contribution, about ``at_once`` elements a time."""
        ends, at_once = self.counts.cumsum(0), max(1, at_once)
        bounds = torch.arange(at_once, self.total() + at_once, at_once, device=ends.device)
        cuts = [0, *torch.searchsorted(ends, bounds).add_(1).clamp_max_(len(ends)).unique().tolist()]
        for start, stop in zip(cuts, cuts[1:], strict=False):
            counts = self.counts[start:stop]
            which = torch.repeat_interleave(counts)  # [P]
            first = ends[start:stop] - counts
            rank = torch.arange(len(which), device=ends.device) - (first - first[:1])[which]
            yield self.b[start:stop][which], self.j[start:stop][which], rank


class _Targets:
    """Targets Y, and the order in which the elements of contributions u W can exceed theirs as ‖u‖ grows.

    Parameters
    ----------
    w : torch.FloatTensor, shape [c, d]
    y : torch.FloatTensor, shape [B, d]
    """

    def __init__(self, w: torch.Tensor, y: torch.Tensor) -> None:
        self.sign = torch.where(y < 0, -1.0, 1.0)  # [B, d]; +1 at zero, where |Y| − |Y − z| = −|z|
        self.magnitude = y.abs()  # [B, d]
        reach = torch.linalg.vector_norm(w, dim=0) * (1 + 1e-4)  # [d]; slack for the rounding of the norms
        self.limits, self.order = (self.magnitude / reach.clamp_min(1e-30)).sort(-1)  # [B, d]: ‖u‖ that reaches |Y_d|

    def pairs(self, lengths: torch.Tensor) -> _Pairs:
        """Find the elements that contributions of norms ‖u_bj‖ ``lengths`` [B, n] may exceed."""
        b, j = (lengths > self.limits[:, :1]).nonzero(as_tuple=True)
        counts = torch.searchsorted(self.limits, lengths.contiguous())[b, j]
        return _Pairs(b, j, counts, lengths.shape)

    def overshoot(self, pairs: _Pairs, elements: Elements, at_once: int) -> torch.Tensor:
        """2 Σ_d max(0, sign(Y_bd) z_bjd − |Y_bd|), shape [B, n], with ``elements`` to form z of a chunk of pairs."""
        out = torch.zeros(pairs.shape, device=self.sign.device)
        for b, j, rank in pairs.chunks(at_once):
            d = self.order[b, rank]
            over = (self.sign[b, d] * elements(b, j, d)).sub_(self.magnitude[b, d]).clamp_min_(0)  # [P]
            out.view(-1).index_add_(0, b * out.shape[1] + j, over, alpha=2)
        return out


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
