"""FlashTrace: efficient and faithful multi-token attribution for reasoning language models."""

import logging
import warnings

# Two warnings that would stand in every first cell: transformers asks for notebook widgets, which nothing here shows,
# and advises against bfloat16 for GGUF weights that stay packed; the embedded model's become plain tensors.
warnings.filterwarnings("ignore", message="IProgress not found")
logging.getLogger("transformers.quantizers.quantizer_gguf").setLevel(logging.ERROR)

from ._version import __version__  # noqa: E402 - after the warnings are off
from .attribution import Attribution, Hop, Method  # noqa: E402
from .load import load_model  # noqa: E402
from .methods import IFR, METHODS, FlashTrace  # noqa: E402
from .sample import Sample, Segments  # noqa: E402
from .trace import Trace, trace  # noqa: E402

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
