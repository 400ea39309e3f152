"""Colours, markers, lines and hatches that every figure takes from here; those of methods stand in `style`."""

from flashtrace_lib.viewer.colours import SEGMENTS

# Okabe and Ito's colours.
PALETTE = BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
MARKERS = "osD^vP"
HATCHES = ("", "///", "...", "xxx")
SEGMENT_HATCHES = dict(zip(SEGMENTS, HATCHES, strict=True))
DARK, GREY, LIGHT = "#222222", "#7F7F7F", "#B0B0B0"  # whiskers and dots, lines of reference, lines behind the data
DASHED = (0, (2, 2))  # a line to a point that was not measured
