"""Methods x samples -> one tidy table, resumed from the store."""

from .loop import evaluate
from .results_table import METRICS, frame_from_records, summarise

__all__ = ["METRICS", "evaluate", "frame_from_records", "summarise"]
