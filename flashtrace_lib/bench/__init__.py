"""Time and memory, against a forward pass."""
