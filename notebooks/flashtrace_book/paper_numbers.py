"""The numbers printed in the paper, read from ``paper_numbers.csv``: fractions, seconds and GiB.

The paper's "MATH" rows are GSM8K items (its released traces show it), and its "recovery rate (%)" is a fraction.
"""

import csv
import math
from pathlib import Path

NIAH_CELLS = ("mq_q2", "mq_q4", "mq_q8", "mv_v2", "mv_v4", "mv_v8")
VT_CELLS = ("h2_c3", "h4_c1", "h6_c1", "h10_c1")

_COLUMNS = ["table", "method", "cell", "metric", "value", "place"]
_TEXT = "text"  # the "table" of a number of the running text, whose name stands under "metric"

Entry = tuple[str, str, str, str]  # table, method, cell, metric


def read_paper_numbers(path: Path) -> dict[Entry, tuple[float, str]]:
    """Read the transcribed numbers.

    Parameters
    ----------
    path : Path
        A CSV file with the columns ``table, method, cell, metric, value, place``.

    Returns
    -------
    dict
        (table, method, cell, metric) -> value, and its place in the paper.

    Raises
    ------
    ValueError
        If a line is damaged or repeats an entry; the message names file and line.
    """
    numbers: dict[Entry, tuple[float, str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        try:
            if next(lines, None) != _COLUMNS:
                raise ValueError(f"the columns must be {', '.join(_COLUMNS)}")
            for line in lines:
                entry, value = _entry(line)
                if entry in numbers:
                    raise ValueError(f"{', '.join(filter(None, entry))} stands in the file twice")
                numbers[entry] = value
        except ValueError as error:
            raise ValueError(f"{path}, line {max(lines.line_num, 1)}: {error}") from None
    return numbers


def _entry(line: list[str]) -> tuple[Entry, tuple[float, str]]:
    if len(line) != len(_COLUMNS):
        raise ValueError(f"there must be {len(_COLUMNS)} columns, got {len(line)}")
    *entry, value, place = line
    if not entry[0].isdecimal() and entry[0] != _TEXT:
        raise ValueError(f"table {entry[0]!r} must be a number, or {_TEXT!r}")
    if not entry[-1] or not place:
        raise ValueError("metric and place must be given")
    return tuple(entry), (float(value), place)


def _tables(numbers: dict[Entry, tuple[float, str]]) -> dict[int, dict[tuple[str, str, str], float]]:
    """Number of a table -> (method, cell, metric) -> value."""
    tables: dict[int, dict[tuple[str, str, str], float]] = {}
    for (table, method, cell, metric), (value, _) in numbers.items():
        if table != _TEXT:
            tables.setdefault(int(table), {})[method, cell, metric] = value
    return tables


_NUMBERS = read_paper_numbers(Path(__file__).with_suffix(".csv"))
PAPER = _tables(_NUMBERS)
TEXT = {name: number for (table, _, _, name), number in _NUMBERS.items() if table == _TEXT}  # name -> value, place


def paper_value(table: int, method: str, cell: str, metric: str) -> float:
    """The number that the paper prints; NaN where its table has no such entry.

    Parameters
    ----------
    table : int
        1–5, 7–10 (Table 6 holds no measurements).
    method, cell, metric : str
        Keys of the book's tables: ``"flashtrace"``, ``"h4_c1"``, ``"recovery"``.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the paper has no such table of numbers.
    """
    if table not in PAPER:
        raise ValueError(f"the paper has no numbers in table {table!r}: choose one of {sorted(PAPER)}")
    return PAPER[table].get((method, cell, metric), math.nan)


def text_value(name: str) -> float:
    """A number of the paper's running text, by its name in ``TEXT``; ValueError for an unknown one."""
    if name not in TEXT:
        raise ValueError(f"no number {name!r} transcribed from the text: choose one of {sorted(TEXT)}")
    return TEXT[name][0]
