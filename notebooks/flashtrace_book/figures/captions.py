"""What every table and figure says about the methods in it: the options that a profile cuts, and who proposed."""

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
    """A sentence on each of the methods ``shown`` (keys of ``METHODS``) whose options have to be told."""
    options = profile.method_options
    said = {name: METHODS[name](**options.get(name, {})).setting() for name in METHODS if name in shown}
    return " ".join(f"{method_style(name).label}: {text}." for name, text in said.items() if text)


def methods_in(frame: pd.DataFrame) -> set[str]:
    """Methods that a table names in a column of text or at the head of a column."""
    columns = frame.select_dtypes(exclude="number")
    texts = {value for column in columns for value in frame[column] if isinstance(value, str)}
    return {name for name in METHODS if name in texts or name in frame}


def methods_named(fig: Figure) -> set[str]:
    """Methods whose label stands in a figure."""
    texts = "\n".join(text.get_text() for text in fig.findobj(Text))
    return {name for name in METHODS if re.search(rf"(?<![\w-]){re.escape(method_style(name).label)}(?![\w-])", texts)}


def sentences(*parts: str) -> str:
    """Texts one after the other, all but the last with a full stop."""
    parts = tuple(part for part in parts if part)
    return " ".join([*(part if part.endswith(".") else f"{part}." for part in parts[:-1]), *parts[-1:]])
