"""Tables as Markdown and LaTeX."""

import numpy as np
import pandas as pd


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
    style = frame.style.hide(axis="index").format(lambda value: cell_text(value, "–"), escape="latex")
    style = style.format_index(axis=1, escape="latex")
    return style.to_latex(hrules=True, position="tb", caption=caption.replace("&", r"\&"), label=f"tab:{name}")
