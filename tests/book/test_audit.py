"""The audit: rows of the book agree when they are computed again, and one that was changed does not."""

import numpy as np
import pytest

from flashtrace_book import audit
from flashtrace_book.paths import BOOK, results_file
from flashtrace_book.results import METHOD, Results


@pytest.fixture
def altered(monkeypatch):
    """Every stored score is read as another token's."""
    read = Results.read

    def shifted(path):
        results = read(path)
        rows = results.parts[METHOD]
        rows["scores"] = rows["scores"].map(lambda scores: np.roll(scores, 1), na_action="ignore")
        return results

    monkeypatch.setattr(Results, "read", shifted)


def checked():
    return audit.audit(["pilot"], 1, seed=1)


def test_stored_rows_agree_when_computed_again():
    checks = checked()
    assert len(checks) == 1 and all(check.agrees for check in checks), audit.report(checks)
    assert audit.report(checks).endswith("1 of 1 agree; 0 not checked")


def test_a_changed_row_is_found(altered):
    assert [check.agrees for check in checked()] == [False]


def test_what_cannot_be_audited_is_said(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="1 or more"):
        audit.audit(["pilot"], 0)
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="restore it from version control"):
        audit.audit(["pilot"])
    assert not results_file(BOOK, "pilot").exists()
