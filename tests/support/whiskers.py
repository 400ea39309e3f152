"""What a figure draws of intervals."""

import numpy as np
from matplotlib.collections import LineCollection


def drawn(figure):
    """The whiskers of a figure that have both ends, as arrays of two points."""
    lines = [c for axes in figure.axes for c in axes.collections if isinstance(c, LineCollection)]
    ends = [np.asarray(segment) for line in lines for segment in line.get_segments()]
    return [pair for pair in ends if len(pair) and np.isfinite(pair).all()]
