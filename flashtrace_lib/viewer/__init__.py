"""Attributions for readers: heatmaps, figures, the page of a trace, its JSON."""
