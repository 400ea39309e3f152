"""Imported first: keeps one warning out of every first cell.

transformers asks for notebook widgets, which nothing here shows, and complains where they are not installed.
"""

import warnings

warnings.filterwarnings("ignore", message="IProgress not found")
