"""Text -> Sample: chat templates, where the parts of a response stand, sentences, tokens."""

from .build_sample import build_sample
from .chat_template import render_prompt
from .locate import locate_segments

__all__ = ["build_sample", "locate_segments", "render_prompt"]
