"""The experiments, about one file a chapter."""
