"""Colours, widths and settings that heatmaps and figures share."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

INK = "#1a1a1a"  # text on white and on every heatmap colour
SEGMENTS = ("prompt", "reasoning", "output", "context")
SEGMENT_NAMES = {"prompt": "Input I", "reasoning": "Reasoning T", "output": "Output O", "context": "Context"}
SEGMENT_COLOURS = {"prompt": "#0072B2", "reasoning": "#E69F00", "output": "#009E73", "context": "#8C8C8C"}
WIDTH = 7.0  # inches; text width of a two-column page
# BrBG: brown loses, teal gains, distinguishable with every kind of colour vision
SEQUENTIAL, DIVERGING = "Oranges", "BrBG"
SEQUENTIAL_RANGE, DIVERGING_RANGE = (0.0, 0.6), (0.24, 0.74)  # where dark text keeps its contrast
_LEVELS = 24  # colours are steps, so that the last digit of a score cannot change a stored output


def colour_of(score: float, limit: float, diverging: bool) -> str:
    """Background of a score as ``#rrggbb``: a step of the part of the colour map on which dark text can be read."""
    if np.isnan(score):
        return "#ffffff"
    share = float(np.clip(score / limit, -1, 1)) if limit > 0 else 0.0
    position = (share + 1) / 2 if diverging else share
    position = round(position * _LEVELS) / _LEVELS
    if position == (0.5 if diverging else 0.0):
        return "#ffffff"
    low, high = DIVERGING_RANGE if diverging else SEQUENTIAL_RANGE
    return to_hex(mpl.colormaps[DIVERGING if diverging else SEQUENTIAL](low + position * (high - low)))


def saturation(*scores: np.ndarray) -> float:
    """Largest 99th percentile of the magnitudes of each array (its maximum, for fewer than 100 tokens)."""
    sizes = [np.abs(values[~np.isnan(values)]) for values in scores]
    limits = [float(size.max() if len(size) < 100 else np.quantile(size, 0.99)) for size in sizes if len(size)]
    return max(limits, default=0.0)


def rc_params() -> dict[str, object]:
    """The settings of `book.mplstyle`, for use with ``matplotlib.rc_context``."""
    return dict(mpl.rc_params_from_file(Path(__file__).with_name("book.mplstyle"), use_default_template=False))
