"""The page that lists the traces of a batch: static HTML that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import quote

from .tokens import visible


@dataclass(frozen=True)
class Row:
    """One record of a batch."""

    id: str
    line: int
    page: str | None  # relative path; None where there is no page
    json: str | None
    error: str | None  # why there is no trace
    prompt: str
    response: str
    evidence: str  # the sentence of the input that matters most
    share: float  # of it in the importance of the input


def index_page(rows: Sequence[Row], method: str) -> str:
    """The list as HTML, in the order of the rows; any text is safe."""
    failed = sum(row.error is not None for row in rows)
    about = f"{len(rows) - failed} of {len(rows)} records traced with {method}"
    if failed:
        about += f"; {failed} failed, and {'says' if failed == 1 else 'say'} why below"
    template = Template((files(__package__) / "batch_index.html").read_text(encoding="utf-8"))
    return template.substitute(
        title="What the responses are attributed to", about=escape(about), rows="\n".join(map(_row, rows))
    )


def _row(row: Row) -> str:
    """One record: its name, which links to its page, and the beginnings of its texts, or what went wrong."""
    name = _text(row.id)
    if row.page:
        name = f'<a href="{escape(quote(row.page))}">{name}</a>'
    data = f' · <a href="{escape(quote(row.json))}">JSON</a>' if row.json else ""
    head = f'<h2 dir="auto">{name} <small>record {row.line}{data}</small></h2>'
    if row.error is not None:
        return f'<li>{head}<p class="bad">Not traced: {_text(row.error)}</p></li>'
    pairs = [("Prompt", row.prompt), ("Response", row.response)]
    if row.evidence:
        pairs.append((f"Top {row.share:.0%}", row.evidence))
    listed = "".join(f'<dt>{term}</dt><dd dir="auto">{_text(text)}</dd>' for term, text in pairs)
    return f"<li>{head}<dl>{listed}</dl></li>"


def _text(text: str) -> str:
    return escape(visible(text))
