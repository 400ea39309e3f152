"""The other chapters run from nothing, without what the first ones compute."""

import pytest

from tests.support.smoke_book import check_part, parts


@pytest.mark.slow
def test_the_other_chapters_run_from_nothing(tmp_path, monkeypatch):
    check_part(parts()[1], tmp_path, monkeypatch)
