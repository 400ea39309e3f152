"""Imported first: keeps two warnings out of every first cell.

transformers asks for notebook widgets, which nothing here shows, and complains where they are not installed. It also
advises against bfloat16 for GGUF weights that stay packed; the embedded model's become plain tensors.
"""

import logging
import warnings

warnings.filterwarnings("ignore", message="IProgress not found")
logging.getLogger("transformers.quantizers.quantizer_gguf").setLevel(logging.ERROR)
