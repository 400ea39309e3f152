"""Questions about short texts, which train the reasoner and test it: no chapter explains an answer to them."""

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
