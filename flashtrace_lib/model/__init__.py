"""What a model is: its architecture, batched passes, generation, the embedded weights."""
