"""Verdicts of one profile on the page of claims, beside those that it holds of the others."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from flashtrace_lib.files import in_checkout

from .. import paths
from . import judge

PAGE = "claims.json"


def with_the_page(judged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts of all profiles: those given, and of the others what ``claims.json`` holds.

    Everything is judged again where the page does not hold them, is damaged, or its claims are not these.

    Parameters
    ----------
    judged : list of dict
        From `judge.judge_all`, of some profiles.
    """
    page = _page()
    if [_asked(claim) for claim in page] != [_asked(claim) for claim in judged]:
        return judge.judge_all()
    complete = []
    for old, new in zip(page, judged, strict=True):
        known = old["verdicts"] | new["verdicts"]
        names = [judge.OWN] if judge.OWN in known else judge.profiles_with_tables()
        if not known.keys() >= set(names):
            return judge.judge_all()
        complete.append(new | {"verdicts": {name: known[name] for name in names}})
    return complete


def _page() -> list[dict[str, Any]]:
    """The claims of the page; of the checkout's own where figures are sent elsewhere, as by tests."""
    for folder in (paths.figures_root(), in_checkout("figures")):
        with suppress(FileNotFoundError):
            try:
                return json.loads((folder / PAGE).read_text(encoding="utf-8"))
            except ValueError:  # it is written again
                return []
    return []


def _asked(claim: dict[str, Any]) -> dict[str, Any]:
    """A judged claim without its verdicts."""
    return {name: value for name, value in claim.items() if name != "verdicts"}
