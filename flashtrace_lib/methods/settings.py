"""Named settings of FlashTrace: its better ones, and what is averaged or weighted otherwise (appendix M.1)."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from .flashtrace import BEST, FlashTrace
from .perturbation_base import check_choice


@dataclass
class FlashTraceBest(FlashTrace):
    """FlashTrace with the residual propagated and scores shared among five neighbours: ``FlashTrace.best()``."""

    residual: str = BEST["residual"]
    smoothing: int = BEST["smoothing"]

    name: ClassVar[str] = "flashtrace_best"
    # the others differ from v1: they were in the key of its first record
    added_after_v1: ClassVar[tuple[str, ...]] = ("flow", "hop_weights")
    removed: ClassVar[dict] = {**FlashTrace.removed, "sink": "kept", "value_bias": "included"}


@dataclass
class FlashTraceCausal(FlashTraceBest):
    """`FlashTraceBest` whose hop weights steps of T by their causes: ``FlashTrace.best(hop_weights="causal")``."""

    hop_weights: str = "causal"

    name: ClassVar[str] = "flashtrace_causal"
    added_after_v1: ClassVar[tuple[str, ...]] = ()
    removed: ClassVar[dict] = {}


@dataclass
class LastToken(FlashTrace):
    """FlashTrace whose hop 0 explains the last token of O alone (appendix M.1, table 10)."""

    aggregation: str = field(default="last", init=False)

    name: ClassVar[str] = "last_token"


@dataclass
class MeanPooling(FlashTrace):
    """FlashTrace that averages single-token distributions instead of aggregating the span (appendix M.1)."""

    aggregation: str = field(default="mean", init=False)

    name: ClassVar[str] = "mean_pooling"


@dataclass
class Positional(FlashTrace):
    """FlashTrace whose first hop weights the tokens of its target, O, by their place, linearly (appendix M.1).

    Parameters
    ----------
    weighting : {"rising", "falling"}
        The last token of the target has its length as weight and the first 1, or the other way round.
    """

    weighting: str = "rising"

    name: ClassVar[str] = "positional"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("weighting", self.weighting, ("rising", "falling"))

    def _first_weights(self, n: int) -> torch.Tensor:
        ramp = torch.arange(1.0, n + 1)
        return ramp if self.weighting == "rising" else ramp.flip(0)
