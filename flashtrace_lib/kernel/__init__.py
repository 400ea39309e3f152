"""The attribution of section 4: one captured pass, its attention, the proximity of a span to what stands before it."""
