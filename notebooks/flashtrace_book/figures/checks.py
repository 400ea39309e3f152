"""Checks of the frames that figures and tables are made from."""

from collections.abc import Sequence

import pandas as pd


def require(frame: pd.DataFrame, *columns: str) -> None:
    """Raise ValueError where a frame lacks columns or rows."""
    missing = [column for column in columns if column not in frame]
    if missing or frame.empty:
        fault = f"lacks the columns {missing}" if missing else "is empty"
        raise ValueError(f"the frame {fault}: it needs {', '.join(columns)} and at least one row")


def require_metrics(frame: pd.DataFrame, metrics: Sequence[str]) -> None:
    """Raise ValueError where a frame has no rows of one of ``metrics``."""
    missing = [metric for metric in metrics if metric not in set(frame["metric"])]
    if missing:
        names = ", ".join(map(repr, missing))
        raise ValueError(f"no rows of metric {names}: the frame has {sorted(set(frame['metric']))}")


def rows_of(frame: pd.DataFrame, metric: str, by: str = "cell") -> pd.DataFrame:
    """Rows of one metric of a summary (`evaluation.summarise`); ValueError where it lacks columns or the metric."""
    require(frame, "method", by, "metric", "mean", "low", "high", "n")
    require_metrics(frame, [metric])
    return frame[frame["metric"] == metric]
