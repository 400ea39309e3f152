"""The first chapters run from nothing; in a file of their own, so that two processes share the book."""

import pytest

from tests.support.smoke_book import check_part, parts


@pytest.mark.slow
def test_the_first_chapters_run_from_nothing(tmp_path, monkeypatch):
    check_part(parts()[0], tmp_path, monkeypatch)
