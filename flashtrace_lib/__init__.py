"""FlashTrace, the book: efficient and faithful multi-token attribution for reasoning language models."""

from . import _quiet  # noqa: F401
from ._version import __version__
from .attribution import Attribution, Hop, Method
from .methods import IFR, METHODS, FlashTrace
from .models import load_model
from .sample import Sample, Segments
from .trace import Trace, trace

__all__ = [
    "IFR",
    "METHODS",
    "Attribution",
    "FlashTrace",
    "Hop",
    "Method",
    "Sample",
    "Segments",
    "Trace",
    "__version__",
    "load_model",
    "trace",
]
