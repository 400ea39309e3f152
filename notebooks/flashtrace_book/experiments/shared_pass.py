"""Many settings of FlashTrace on one sample, from one forward pass.

A setting decides what is made of the captured activations; the pass is the same for all. Where dozens of settings are
compared it is nearly all of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch

from flashtrace_lib import FlashTrace
from flashtrace_lib.attribution import Method
from flashtrace_lib.kernel.activations import Activations
from flashtrace_lib.recording import Recording
from flashtrace_lib.sample import Span


class LastPass:
    """The activations of the context that was read last."""

    def __init__(self) -> None:
        self._model: torch.nn.Module | None = None
        self._ids = torch.empty(0, dtype=torch.long)
        self._held: Activations | None = None

    def holds(self, model: torch.nn.Module, ids: torch.Tensor, rows: Span) -> bool:
        """Whether they are of these tokens, with all of these rows."""
        if self._held is None or self._model is not model or not torch.equal(self._ids, ids.cpu()):
            return False
        return self._held.rows[0] <= rows[0] and rows[1] <= self._held.rows[1]

    def keep(self, model: torch.nn.Module, ids: torch.Tensor, activations: Activations) -> Activations:
        """Hold these instead."""
        self._model, self._ids, self._held = model, ids.cpu(), activations
        return activations

    def get(self) -> Activations:
        """What is held."""
        return self._held


@dataclass
class SharedPass(FlashTrace):
    """FlashTrace that takes its activations from the pass of another setting, where that has them; equal results.

    ``seconds`` of its attributions are those of a share of the work, no measure of the method.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last = LastPass()

    def _capture(
        self, model: torch.nn.Module, input_ids: torch.Tensor, rows: Span, recorded: Recording | None = None
    ) -> Activations:
        if recorded is not None or not self.last.holds(model, input_ids, rows):
            return self.last.keep(model, input_ids, super()._capture(model, input_ids, rows, recorded))
        return self.last.get()


# Stored under the same key: a result of the one is a result of the other.
SharedPass.__qualname__ = FlashTrace.__qualname__


def sharing(methods: Mapping[str, Method]) -> dict[str, Method]:
    """The methods, with one pass for all settings of FlashTrace among them; name and options stay theirs.

    Best with a setting first whose rows hold those of the others: one with a hop over T.
    """
    last, shared = LastPass(), dict(methods)
    for label, method in methods.items():
        if type(method) is FlashTrace:
            shared[label] = SharedPass(**{f.name: getattr(method, f.name) for f in fields(method)})
            shared[label].last = last
    return shared
