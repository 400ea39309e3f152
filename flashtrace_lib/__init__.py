"""FlashTrace: efficient and faithful multi-token attribution for reasoning language models."""

import logging
import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

from ._version import __version__

# Two warnings that would stand in every first cell: transformers asks for notebook widgets, which nothing here shows,
# and advises against bfloat16 for GGUF weights that stay packed; the embedded model's become plain tensors.
warnings.filterwarnings("ignore", message="IProgress not found")
logging.getLogger("transformers.quantizers.quantizer_gguf").setLevel(logging.ERROR)

_PLACES = {  # name -> module that has it, imported when the name is first asked for
    "IFR": "methods", "METHODS": "methods", "Attribution": "attribution", "FlashTrace": "methods", "Hop": "attribution",
    "Method": "attribution", "Sample": "sample", "Segments": "sample", "Trace": "traced", "load_model": "load",
    "trace": "trace",
}  # fmt: skip
__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)


class _Package(ModuleType):
    """Keeps ``trace`` the function: Python makes a submodule that it imports an attribute of its package."""

    trace = property(lambda self: __getattr__("trace"), lambda self, module: None)


sys.modules[__name__].__class__ = _Package
