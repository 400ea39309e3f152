"""Attributions to look at: heatmaps, figures, the page of a trace, its JSON."""
