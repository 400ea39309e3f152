"""Settings of every test."""

import pytest
from hypothesis import settings

from tests import environment  # noqa: F401 - sets what the library reads when it is imported

# Deadlines fail on a busy machine; the same examples each time make a failure one that can be repeated.
settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


def pytest_collection_modifyitems(items):
    """The book from nothing goes first: it takes longest, and the other process does the rest meanwhile."""
    items.sort(key=lambda item: item.path.name != "test_notebooks.py")


@pytest.fixture(scope="session")
def embedded():
    """The embedded model and its tokenizer; tests leave both as they are."""
    from flashtrace_lib import load_model  # after the environment above is set

    return load_model("embedded-base")


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded):
    """The embedded model's tokenizer."""
    return embedded[1]
