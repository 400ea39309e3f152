"""Activations of a response from the very passes that generated it: no second prefill (algorithm 1, line 1).

A server that generates a response holds the keys and values of every token already. What attribution needs beside
them are the queries and input states of the generated rows, which pass by once, step by step; `recording` keeps them.

    with recording(model) as recorded:
        ids = model.generate(prompt_ids, max_new_tokens=200)
    FlashTrace().from_cache(recorded, build_sample(...))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from .kernel.activations import Activations, LayerActivations
from .kernel.capture import listening
from .model.architecture import LayerParts, decoder_layers
from .sample import Span


@dataclass
class _LayerRecord:
    """Pieces of one layer, in the order of the passes.

    Parameters
    ----------
    k, v : list of torch.Tensor, shape [H_kv, *, head_dim]
        Together the keys and values of all positions. Where the cache holds all of them, its own tensors: no copy.
    rows : dict of str to list of torch.Tensor
        ``q`` [H, *, head_dim], ``x_in`` [*, d] and, with a post-attention norm, ``row_scale`` [*] of the kept rows.
    seen : list of (int, torch.Tensor or None)
        For each piece of rows the position of the first key it was given, and its mask [m, n] if it had one.
    """

    parts: LayerParts
    k: list[torch.Tensor] = field(default_factory=list)
    v: list[torch.Tensor] = field(default_factory=list)
    rows: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    seen: list[tuple[int, torch.Tensor | None]] = field(default_factory=list)
    scaling: float = 1.0
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    def add(self, name: str, x: torch.Tensor) -> None:
        """File a copy of rows, if there are any."""
        if x.numel():
            self.rows.setdefault(name, []).append(x.clone())


class Recording:
    """What `recording` kept of one response.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    first_row : int, optional
        First position that can be a target. Default: the last one of the first pass, whose state predicts the first
        generated token.
    """

    def __init__(self, model: nn.Module, first_row: int | None = None) -> None:
        self.model, self.first_row = model, first_row
        self.ids = torch.empty(0, dtype=torch.long)
        self._cache = None
        self._layers = [_LayerRecord(parts) for parts in decoder_layers(model)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record every pass of the model."""
        listeners = [LayerActivations(record.parts) for record in self._layers]
        by_listener = {id(a): b for a, b in zip(listeners, self._layers, strict=True)}
        before = self.model.register_forward_pre_hook(self._on_pass, with_kwargs=True)
        try:
            with listening(
                self.model,
                listeners,
                [self._recorder(record) for record in self._layers],
                lambda x: x[0, self._kept(x.shape[1])],
                lambda layer, name, x: by_listener[id(layer)].add(name, x),
            ):
                yield
        finally:
            before.remove()

    def activations(self, input_ids: torch.Tensor, rows: Span) -> Activations:
        """Activations of the whole context, as `capture` of the same tokens would give them.

        The last token that was generated has not been read by the model yet: it is read now, which moves the cache
        on by one token.

        Parameters
        ----------
        input_ids : torch.LongTensor, shape [N]
            Prompt and response.
        rows : (int, int)
            Positions that will be targets.

        Returns
        -------
        Activations
            With all recorded rows.

        Raises
        ------
        ValueError
            If other tokens were recorded, or not all of ``rows``.
        """
        ids, n = input_ids.cpu(), len(self.ids)
        if n == 0 or n > len(ids) or not torch.equal(ids[:n], self.ids):
            raise ValueError(
                f"the sample's {len(ids)} tokens are not the {n} that were recorded: build it from the ids that "
                "model.generate returned, prompt included"
            )
        if rows[0] < self.first_row:
            raise ValueError(
                f"states were recorded from position {self.first_row} on, but the targets begin at {rows[0]}: pass "
                f"first_row={rows[0]} to recording"
            )
        if n < len(ids):
            with self.running(), torch.no_grad():
                rest = ids[None, n:].to(self.model.device)
                self.model(input_ids=rest, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        masks: list[torch.Tensor] = []
        return Activations([self._assembled(r, masks) for r in self._layers], (self.first_row, len(ids)), len(ids))

    def _on_pass(self, _, args, kwargs) -> tuple[tuple, dict]:
        """Check that a pass goes on where the last one ended, note its tokens, and have every layer run all rows."""
        ids = args[0] if args else kwargs.get("input_ids")
        if ids is None or len(ids) != 1:
            raise ValueError("one response can be recorded at a time: generate from input_ids of shape [1, N]")
        cache = kwargs.get("past_key_values")
        past = 0 if cache is None else cache.get_seq_length()
        if past != len(self.ids):
            raise ValueError(
                f"{len(self.ids)} tokens were recorded, but the model's cache holds {past}: record one response from "
                "its prompt on, with use_cache=True and without beams, assistants or a cache that is cut back"
            )
        self._cache, self._past = cache, past
        self.ids = torch.cat([self.ids, ids[0].cpu()])
        if self.first_row is None:
            self.first_row = len(self.ids) - 1
        keep = kwargs.get("logits_to_keep")
        if isinstance(keep, int) and keep:  # for a number, some models leave the other rows out of their last layers
            kwargs = {**kwargs, "logits_to_keep": torch.arange(ids.shape[1] - keep, ids.shape[1])}
        return args, kwargs

    def _kept(self, m: int) -> slice:
        """Which of the m positions of this pass are kept as rows."""
        return slice(min(m, max(0, self.first_row - self._past)), m)

    def _recorder(self, record: _LayerRecord):
        """Build the function that files q, k, v and the mask of one layer."""

        def file(query, key, value, attention_mask, **how) -> None:
            record.scaling, record.softcap, record.sinks = how["scaling"], how["softcap"], how["sinks"]
            m, n, now = query.shape[2], key.shape[2], len(self.ids)
            if n == now:  # the cache holds every position: refer to it
                record.k, record.v = [key[0]], [value[0]]
            elif m <= n < now and self._is_sliding(record.parts):
                record.k.append(key[0, :, n - m :].clone())  # [H_kv, m, head_dim]
                record.v.append(value[0, :, n - m :].clone())
            else:
                raise ValueError(f"the cache gave {n} keys after {now} tokens: record with the default dynamic cache")
            kept = self._kept(m)
            if kept.start < m:
                record.add("q", query[0, :, kept])
                mask = None if attention_mask is None else attention_mask[0, 0, kept]  # shared by layers, unless cut
                record.seen.append((now - n, mask.clone() if mask is not None and kept.start else mask))

        return file

    def _is_sliding(self, parts: LayerParts) -> bool:
        """Whether the cache of a layer drops keys; one that shares another's keys has none of its own (Gemma-4)."""
        return any(getattr(x, "is_sliding", False) for x in (self._cache.layers[parts.index], parts.attention))

    def _assembled(self, record: _LayerRecord, masks: list[torch.Tensor]) -> LayerActivations:
        """One layer of `Activations`; layers with equal masks share one of ``masks``."""
        rows = {name: torch.cat(pieces, dim=1 if name == "q" else 0) for name, pieces in record.rows.items()}
        mask = self._mask(record, rows["q"].device)
        if mask is not None:
            shared = [other for other in masks if other.device == mask.device and torch.equal(other, mask)]
            masks += [] if shared else [mask]
            mask = shared[0] if shared else mask
        k, v = (x[0] if len(x) == 1 else torch.cat(x, dim=1) for x in (record.k, record.v))
        return LayerActivations(
            record.parts,
            k=k,
            v=v,
            mask=mask,
            scaling=record.scaling,
            softcap=record.softcap,
            sinks=record.sinks,
            **rows,
        )

    def _mask(self, record: _LayerRecord, device: torch.device) -> torch.Tensor | None:
        """Which keys each kept row attended, [M, N]; None where these are all that stand before it."""
        if all(first == 0 and mask is None for first, mask in record.seen):
            return None
        n = len(self.ids)
        causal = torch.ones(n - self.first_row, n, dtype=torch.bool, device=device).tril_(self.first_row)  # [M, N]
        allowed = causal.clone()
        row = 0
        for (first, mask), piece in zip(record.seen, record.rows["q"], strict=True):
            block = allowed[row : row + piece.shape[1]]
            block[:, :first] = False  # a sliding window had dropped these keys
            if mask is not None:
                block[:, first : first + mask.shape[1]] &= mask
            row += len(block)
        return None if torch.equal(allowed, causal) else allowed


@contextmanager
def recording(model: nn.Module, first_row: int | None = None) -> Iterator[Recording]:
    """Keep what attribution needs of the response that is generated in the with-block.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        One prompt, greedy or sampled, with the default cache.
    first_row : int, optional
        See `Recording`.

    Yields
    ------
    Recording
        For ``FlashTrace.from_cache``, and for ``attribute_many`` with ``recorded=``.
    """
    recorded = Recording(model, first_row)
    with recorded.running():
        yield recorded
