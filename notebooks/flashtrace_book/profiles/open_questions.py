"""Section of a profile: what the open questions are measured with."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_count


@dataclass(frozen=True)
class OpenQuestionsProfile:
    """Settings of the experiments beyond the paper; the samples are those of the RULER cells.

    Parameters
    ----------
    steps : int
        Steps of the deletion curve.
    deletion_samples : int
        Samples of each half, tuning and held-out, whose deletion curves are measured: the shortest.
    exact_samples : int
        Samples of each half for the exact rollout, which takes a row for every generated token: the shortest.
    causal_samples : int
        Samples that are answered again with a sentence masked: the shortest.
    """

    steps: int = 20
    deletion_samples: int = 20
    exact_samples: int = 10
    causal_samples: int = 20

    def __post_init__(self) -> None:
        for name in ("steps", "deletion_samples", "exact_samples", "causal_samples"):
            check_count(getattr(self, name), f"open_questions.{name}", least=1)
