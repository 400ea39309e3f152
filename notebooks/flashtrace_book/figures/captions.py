"""Notes on the methods that a table or figure shows: the options that the profile changes."""

from __future__ import annotations

import re
from collections.abc import Collection

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from flashtrace_lib.methods import METHODS

from ..profiles import Profile
from .style import method_style


def settings_of(profile: Profile, shown: Collection[str]) -> str:
    """A sentence for each of the methods ``shown`` (keys of ``METHODS``) whose options are not its defaults."""
    notes = []
    for name in METHODS:
        if name in shown:
            setting = METHODS[name](**profile.method_options.get(name, {})).setting()
            notes += [f"{method_style(name).label}: {setting}."] if setting else []
    return " ".join(notes)


def methods_in(frame: pd.DataFrame) -> set[str]:
    """Methods that a table names in a column of text or at the head of a column."""
    texts = set()
    for column in frame.select_dtypes(exclude="number"):
        texts |= {value for value in frame[column] if isinstance(value, str)}
    return {name for name in METHODS if name in texts or name in frame}


def methods_named(fig: Figure) -> set[str]:
    """Methods whose label stands in a figure."""
    texts = "\n".join(text.get_text() for text in fig.findobj(Text))
    return {name for name in METHODS if re.search(rf"(?<![\w-]){re.escape(method_style(name).label)}(?![\w-])", texts)}


def sentences(*parts: str) -> str:
    """Texts one after the other, empty ones left out, all but the last with a full stop."""
    *others, last = [part for part in parts if part] or [""]
    return " ".join([*(part.removesuffix(".") + "." for part in others), last])
