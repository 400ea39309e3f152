"""A memory budget: what methods that are no sweep over one forward pass share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..attribution import Method
from ..model.state import check_budget


@dataclass
class BudgetedMethod(Method):
    """A method that cuts its work to a memory budget.

    Parameters
    ----------
    max_batch_bytes : int, optional
        The budget, bytes; does not change the result. Default: see `state.model_budget`.
    """

    max_batch_bytes: int | None = None

    excluded_from_key: ClassVar[tuple[str, ...]] = ("max_batch_bytes",)

    def __post_init__(self) -> None:
        check_budget(self.max_batch_bytes)
