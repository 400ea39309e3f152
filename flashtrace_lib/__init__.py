"""FlashTrace, the book: efficient and faithful multi-token attribution for reasoning language models."""

from .attribution import Attribution, Hop, Method
from .methods import IFR, METHODS, FlashTrace
from .models import load_model
from .sample import Sample, Segments

__version__ = "0.1.0"

__all__ = ["IFR", "METHODS", "Attribution", "FlashTrace", "Hop", "Method", "Sample", "Segments", "load_model"]
