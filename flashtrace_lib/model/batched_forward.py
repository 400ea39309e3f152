"""Score many variants of one context with a causal language model, in batches that fit a memory budget.

What is scored is always the same: the last ``n_targets`` positions of a row predict the target tokens. What is kept
of each prediction is a *measure*: the target's log-probability, or the distance to a reference distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from .architecture import family
from .checks import check_equal, check_ids, check_once, plain_logits, run_checked
from .context import steady_length
from .state import eager_maps, evaluating, input_device, mlp_width, model_budget
from .wrapped import has_virtual_tokens, in_use


class SharedPrefix:
    """Keys and values of one row, for rows that begin like it. Exact up to rounding: the model is causal.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model in evaluation mode.
    ids : torch.LongTensor, shape [L]
        The row that others resemble.

    Attributes
    ----------
    usable : bool
        Whether the model keeps every position's keys and values, and these do not depend on what follows. Not so with a
        sliding window, a recurrent state, or beyond `steady_length`; then `common` is 0 and rows are computed whole.
    """

    def __init__(self, model: nn.Module, ids: torch.Tensor) -> None:
        self.ids = ids.cpu()
        layers = []
        # a recurrent state cannot be cut at a position, and peft puts its virtual tokens before every pass
        stateful = getattr(model, "_is_stateful", False) or has_virtual_tokens(model)
        if not stateful and len(ids) <= steady_length(model):
            found = model(input_ids=ids[None].to(input_device(model)), use_cache=True, logits_to_keep=1)
            layers = getattr(getattr(found, "past_key_values", None), "layers", [])
        # a layer that attends to a picture has no keys of a text
        self.usable = bool(layers) and all(type(one) is DynamicLayer and one.keys is not None for one in layers)
        self._layers = [(layer.keys, layer.values) for layer in layers] if self.usable else []  # [1, heads, L, d_head]

    @classmethod
    def captured(cls, model: nn.Module, ids: torch.Tensor, layers: Sequence[Any]) -> SharedPrefix:
        """As ``SharedPrefix(model, ids)``, of the keys k and values v [H_kv, L, d_head] that each layer attended to.

        Another pass is made only where the model's cache of the first tokens does not hold what was seen of them.
        """
        begin = cls(model, ids[:8])
        if not begin.usable:
            return begin
        seen = [(layer.k[None], layer.v[None]) for layer in layers]
        same = len(seen) == len(begin._layers) and all(map(_begin_like, seen, begin._layers))
        if not same or len(ids) > steady_length(model):
            return cls(model, ids)
        begin.ids, begin._layers = ids.cpu(), seen
        return begin

    @property
    def nbytes(self) -> int:
        """Memory of the keys and values, bytes."""
        return sum(state.nbytes for states in self._layers for state in states)

    def common(self, row: torch.Tensor, at_most: int) -> int:
        """Number of leading tokens, ``at_most`` or fewer, that a row [L'] has in common with this one."""
        n = min(len(row), len(self.ids), at_most) if self.usable else 0
        different = (row[:n].cpu() != self.ids[:n]).nonzero()
        return int(different[0]) if len(different) else max(0, n)

    def cache(self, length: int, batch: int) -> DynamicCache | None:
        """A cache of its own with the first ``length`` positions for ``batch`` rows; None for no position."""
        if not length:
            return None
        cache = DynamicCache()
        for index, states in enumerate(self._layers):
            keys, values = (state[:, :, :length].expand(batch, -1, -1, -1) for state in states)
            cache.update(keys[:, :, :0], values[:, :, :0], index)
            cache.layers[index].keys, cache.layers[index].values = keys, values  # no copy but the one of its growth
        return cache


def _begin_like(states: tuple[torch.Tensor, ...], first: tuple[torch.Tensor, ...]) -> bool:
    """Whether keys and values [1, H, L, d] begin with those [1, H, n, d] of a shorter pass, up to rounding."""
    for whole, begin in zip(states, first, strict=True):
        part = whole[:, :, : begin.shape[2]]
        allowed = max(1e-3, 8 * torch.finfo(begin.dtype).eps) * begin.abs().max()
        if part.shape != begin.shape or (part - begin).abs().max() > allowed:
            return False
    return True


CHUNK_BYTES = 64 * 2**20  # float32 log-probabilities formed at a time: [positions, V] of one row
_WASTE = 8  # rows share a batch if their lengths, and their common beginnings, differ by at most 1/8 of a row
# (log-probabilities [r, V] of some target positions, which of the R targets these are) -> what to keep, [r, ...]
Measure = Callable[[torch.Tensor, slice], torch.Tensor]


def log_prob_of(targets: torch.Tensor) -> Measure:
    """Measure: log p(target), nats, of target ids [R]."""
    return lambda log_probs, part: log_probs.gather(1, targets[part].to(log_probs.device)[:, None])[:, 0]


def log_odds_of(targets: torch.Tensor) -> Measure:
    """Measure: the logit log p/(1 − p) = z_t − logsumexp over v ≠ t of z_v, nats, of target ids [R].

    The sum over the others leaves the target out, so that nothing is lost where p rounds to 1.
    """

    def measure(log_probs: torch.Tensor, part: slice) -> torch.Tensor:
        index = targets[part].to(log_probs.device)[:, None]  # [r, 1]
        others = log_probs.scatter(1, index, -torch.inf).logsumexp(-1)  # [r]
        return log_probs.gather(1, index)[:, 0] - others

    return measure


def whole_distribution(log_probs: torch.Tensor, part: slice) -> torch.Tensor:
    """Measure: all V log-probabilities, the reference of the distances below."""
    return log_probs


def kl_from(reference: torch.Tensor) -> Measure:
    """Measure: D_KL(reference ‖ prediction), nats; reference log-probabilities [R, V]."""

    def measure(log_probs: torch.Tensor, part: slice) -> torch.Tensor:
        return _kl(reference[part].to(log_probs.device), log_probs)

    return measure


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """D_KL(p ‖ q), nats, [r], of log-probabilities [r, V]."""
    gap = torch.where(p.isneginf(), 0.0, p - q)  # x log x = 0 at x = 0, where the two infinities would make NaN
    return (p.exp() * gap).sum(-1)


def check_batched(model: nn.Module) -> None:
    """Assert that changed contexts in a batch predict what an ordinary pass over each predicts; see `check_once`."""
    check_once(model, "batched", partial(run_checked, model, "in batches", partial(_check_batched, model)))


@torch.inference_mode()
def _check_batched(model: nn.Module) -> None:
    """The check, of two rows of unequal length, with and without a shared beginning."""
    ids, n = check_ids(model)[:-1], 4
    plain = plain_logits(model, ids).log_softmax(-1).cpu()  # [N, V]
    expected = torch.cat([plain[len(ids) - n :], plain[len(ids) - n - 2 : -2]])  # of a causal model
    for resembling in (None, ids):
        found = _score_rows(model, [ids, ids[:-2]], n, whole_distribution, resembling=resembling)  # [2, n, V]
        # quantised layers may round otherwise in a batch; one that predicts something else is off by more
        check_equal(model, found.flatten(0, 1), expected, "in a batch of changed contexts", least=0.01)


@torch.inference_mode()
def score_rows(
    model: nn.Module, rows: Iterable[torch.Tensor], n_targets: int, measure: Measure, *,
    resembling: torch.Tensor | SharedPrefix | None = None, visible: Iterable[torch.Tensor] | None = None,
    late: bool = False, progress: str | None = None, total: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Measure the predictions of the last ``n_targets`` positions of every row.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model; evaluated without dropout whatever its mode, which is restored.
    rows : iterable of torch.LongTensor, shape [L]
        Token ids up to the one before the last target, at least ``n_targets`` of them. May be a generator. Rows of
        unequal length share a batch where they come longest first: a causal model does not see the padding behind.
    n_targets : int
        R.
    measure : callable
        One of the measures of this module; sees float32 log-probabilities.
    resembling : torch.LongTensor, shape [L], or SharedPrefix, optional
        A row that the others begin like; what they have in common with it is computed once, or once for several calls
        that are given one `SharedPrefix`. Does not change the result beyond rounding; worth it where many rows differ
        from it late.
    visible : iterable of torch.BoolTensor, shape [L], optional
        One for each row: False at the tokens that no position behind them attends to, in any layer and head, as if
        their keys and values were deleted; ids and positions stay. What such a token itself predicts means nothing.
    late : bool
        Tokens are hidden from the positions alone that predict targets; those before are the ones of ``resembling``.
    progress : str, optional
        Label of a progress bar over the rows; none without it.
    total : int, optional
        Number of rows, for the bar of a generator.

    Returns
    -------
    torch.FloatTensor, shape [number of rows, R, ...], on the CPU

    Raises
    ------
    ValueError
        If the model does not predict in batches what it predicts in ordinary passes (`check_batched`); with ``late`` if
        what stands before the targets cannot be kept (`SharedPrefix.usable`).
    """
    shown = {} if progress else {"disable": True}
    with in_use(model) as model, tqdm(total=total, desc=progress, leave=False, unit="context", **shown) as bar:
        check_batched(model)
        return _score_rows(model, rows, n_targets, measure, resembling, visible, late, bar.update)


def _score_rows(
    model, rows, n_targets, measure, resembling=None, visible=None, late=False, done=lambda n: None
) -> torch.Tensor:
    """`score_rows` of a model that may be read in batches; ``done`` is told of every row."""
    device = input_device(model)
    budget = model_budget(model)  # of one batched forward; a single row may exceed it
    kept: list[torch.Tensor] = []
    with evaluating(model):
        prefix = SharedPrefix(model, resembling) if isinstance(resembling, torch.Tensor) else resembling
        if late and not (prefix and prefix.usable):
            raise ValueError(
                f"{family(model)} does not keep the keys and values of all that stands before the response, so that "
                "nothing can be hidden from the response alone"
            )
        for batch, masks, n_common in _batches(model, rows, visible, n_targets, budget, prefix, late):
            cache = prefix.cache(n_common, len(batch)) if prefix else None
            past = {"past_key_values": cache, "use_cache": True} if cache is not None else {"use_cache": False}
            past |= _masked(masks, n_common, device)
            kept += _score_batch(model, [row[n_common:] for row in batch], n_targets, measure, device, past)
            done(len(batch))
    return torch.stack(kept)


def _batches(
    model, rows: Iterable[torch.Tensor], visible: Iterable[torch.Tensor] | None, n_targets: int, budget: int,
    prefix: SharedPrefix | None, late: bool = False,
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor], int]]:  # fmt: skip
    """Group consecutive rows, none longer than the first of its batch, within the budget.

    With each batch come its masks, if there are any, and the number of leading tokens that its rows share with
    ``prefix``.
    """
    batch: list[torch.Tensor] = []
    masks: list[torch.Tensor] = []
    starts: list[int] = []
    for row, mask in zip(rows, repeat(None) if visible is None else visible, strict=visible is not None):
        same = len(row) - n_targets  # a position that predicts a target is always computed
        start = prefix.common(row, same if late else min(same, _unchanged(row, mask))) if prefix else 0
        if batch:
            spread = len(batch[0]) - len(row)  # positions whose logits are computed for the other rows' sake
            cost = (len(batch) + 1) * _row_bytes(model, len(batch[0]), n_targets + max(0, spread), mask is not None)
            wasted = max(spread, max(*starts, start) - min(*starts, start))
            unlike = spread and len(batch[0]) > steady_length(model)
            if spread < 0 or unlike or cost > budget or wasted > len(batch[0]) // _WASTE:
                yield batch, masks, min(starts)
                batch, masks, starts = [], [], []
        batch.append(row)
        masks += [] if mask is None else [mask.cpu()]
        starts.append(start)
    if batch:
        yield batch, masks, min(starts)


def _unchanged(row: torch.Tensor, mask: torch.Tensor | None) -> int:
    """Number of leading positions of a row [L] whose states a mask [L] cannot change."""
    hidden = [] if mask is None else mask.logical_not().nonzero()
    return int(hidden[0]) if len(hidden) else len(row)


def _masked(masks: list[torch.Tensor], n_common: int, device: torch.device) -> dict[str, Any]:
    """Arguments of a forward pass that hide tokens; none for rows without masks."""
    if not masks:
        return {}
    seen = nn.utils.rnn.pad_sequence(masks, batch_first=True).to(device)  # [B, n_common + L]
    positions = torch.arange(n_common, seen.shape[1], device=device)  # given: some models count what is visible
    return {"attention_mask": seen.long(), "position_ids": positions.repeat(len(seen), 1)}


def _score_batch(
    model, batch: list[torch.Tensor], n_targets: int, measure: Measure, device: torch.device, past: dict[str, Any]
) -> list[torch.Tensor]:
    """Measures [R, ...] of each row of one batch, on the CPU; ``past`` says what stands before, and what is hidden."""
    longest, shortest = len(batch[0]), min(len(row) for row in batch)
    padded = nn.utils.rnn.pad_sequence([row.cpu() for row in batch], batch_first=True)  # [B, L]
    if shortest < n_targets:
        raise ValueError(f"a context of {shortest} tokens cannot predict {n_targets} targets: each follows something")
    # Positions that predict any row's targets; on the CPU, from where they index states on whatever device these end.
    keep = torch.arange(shortest - n_targets, longest)
    past |= {} if has_virtual_tokens(model) else {"logits_to_keep": keep}  # it would count virtual tokens as positions
    logits = model(input_ids=padded.to(device), **past).logits  # [B, K, V]
    # A model may return all positions, virtual ones before the text's.
    first = shortest - n_targets if logits.shape[1] == len(keep) else longest - logits.shape[1]
    ends = [len(row) - first for row in batch]
    return [_measure(row[end - n_targets : end], measure) for row, end in zip(logits, ends, strict=True)]


def _measure(logits: torch.Tensor, measure: Measure) -> torch.Tensor:
    """Apply a measure to logits [R, V] of one row, some positions at a time."""
    size = max(1, CHUNK_BYTES // (4 * logits.shape[-1]))
    parts = [slice(at, at + size) for at in range(0, len(logits), size)]
    return torch.cat([measure(logits[part].float().log_softmax(-1), part).cpu() for part in parts])


def _row_bytes(model, length: int, n_logits: int, masked: bool = False) -> int:
    """Rough working memory of one row of a forward pass, bytes; ``masked``: with a mask [L, L] of its own."""
    config = model.config.get_text_config()
    width = 6 * config.hidden_size + 3 * mlp_width(config)
    item = next(model.parameters()).element_size()
    total = length * width * item + n_logits * config.vocab_size * item
    total += eager_maps(config) * length**2 * (item + 4)  # each with its float32 softmax
    total += masked * length**2 * item
    return max(1, int(total))
