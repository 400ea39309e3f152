"""The embedded reasoner: its problems, its training, its accuracy (chapter 14)."""
