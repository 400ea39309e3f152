"""Section of a profile: the second model that the methods are compared on (paper, Table 5)."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_count, check_names, check_type


@dataclass(frozen=True)
class GeneralisationProfile:
    """Settings of the comparison of two models (paper, section 5.2 and Table 5).

    Parameters
    ----------
    model : str
        The second model; what ``load_model`` takes. The first is the profile's.
    cells : tuple of str, optional
        RULER cells, out of the profile's. Default: all of them.
    tasks : tuple of str
        Reasoning tasks, see `tasks.sources`; the paper's "MATH" holds problems of GSM8K.
    methods : tuple of str
        Methods compared on both models.
    ruler_samples, task_samples : int
        Samples of a RULER cell and of a task, at most the profile's own.
    max_tries : int
        Problems that the second model tries to find them.
    max_new_tokens : int
        Longest response of the second model, tokens.
    """

    model: str = "embedded-base"
    cells: tuple[str, ...] | None = None
    tasks: tuple[str, ...] = ("gsm8k",)
    methods: tuple[str, ...] = ("perturbation", "ifr", "attnlrp", "flashtrace", "random")
    ruler_samples: int = 2
    task_samples: int = 5
    max_tries: int = 10
    max_new_tokens: int = 128

    def __post_init__(self) -> None:
        check_type(self.model, "generalisation.model", str)
        if self.cells is not None:
            object.__setattr__(self, "cells", check_names(self.cells, "generalisation.cells"))
        for name in ("tasks", "methods"):
            object.__setattr__(self, name, check_names(getattr(self, name), f"generalisation.{name}"))
        for name in ("ruler_samples", "task_samples", "max_tries", "max_new_tokens"):
            check_count(getattr(self, name), f"generalisation.{name}", least=1)
        if self.max_tries < max(self.ruler_samples, self.task_samples):
            raise ValueError(f"generalisation.max_tries {self.max_tries} is less than the samples wanted: raise it")
