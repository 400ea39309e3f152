"""Figures, tables and pages: everything that a notebook shows."""
