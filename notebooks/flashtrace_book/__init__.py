"""What the chapters share: profiles, experiments, figures, claims. The library does not know this package."""
