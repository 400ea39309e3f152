"""Time and memory by length: chapter 04, and the times that other chapters take."""
