"""Tables as Markdown and LaTeX."""

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"·": r"$\cdot$", "–": "--", "±": r"$\pm$", "×": r"$\times$"}
    | {"†": r"\dag{}", "‡": r"\ddag{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$", "ρ": r"$\rho$"}
)


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Copy whose index has become columns, bare row numbers dropped, and whose columns are plain strings."""
    numbers = frame.index.nlevels == 1 and frame.index.name is None and pd.api.types.is_integer_dtype(frame.index)
    flat = frame.reset_index(drop=numbers)
    flat.columns = [
        " ".join(str(part) for part in (column if isinstance(column, tuple) else (column,)) if part != "")
        for column in flat.columns
    ]
    return flat


def cell_text(value: object, missing: str) -> str:
    """Three decimals of a float, ``missing`` for none."""
    if pd.isna(value):
        return missing
    return f"{value:.3f}" if isinstance(value, float | np.floating) else str(value)


def markdown(frame: pd.DataFrame, caption: str = "") -> str:
    """Caption and table as Markdown."""
    rows = [list(frame.columns), ["---"] * len(frame.columns)]
    rows += [[cell_text(value, "–").replace("|", "\\|") for value in row] for row in frame.itertuples(index=False)]
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n\n".join(part for part in (caption, body) if part) + "\n"


def latex(frame: pd.DataFrame, name: str, caption: str) -> str:
    """The table as a floating one of LaTeX (booktabs)."""
    lines = [
        r"\begin{table}[tb]",
        r"\centering",
        rf"\caption{{{_escape(caption)}}}",
        rf"\label{{tab:{name}}}",
        rf"\begin{{tabular}}{{{'l' * len(frame.columns)}}}",
        r"\toprule",
        _latex_row(frame.columns),
        r"\midrule",
        *(_latex_row(cell_text(value, "–") for value in row) for row in frame.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(_escape(cell) for cell in cells) + r" \\"


def _escape(text: str) -> str:
    """LaTeX of plain text with Markdown's bold."""
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text.translate(_LATEX))
