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


@pytest.fixture(scope="module", autouse=True)
def give_memory_back():
    """What the models of a module took: the C library keeps it, 5 GiB after one in float64."""
    yield
    from flashtrace_lib.bench.memory import _trim

    _trim()


@pytest.fixture(scope="session")
def embedded():
    """The embedded model and its tokenizer; tests leave both as they are."""
    from flashtrace_lib import load_model  # after the environment above is set

    return load_model("embedded-base")


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded):
    """The embedded model's tokenizer."""
    return embedded[1]


@pytest.fixture(scope="module")
def tok():
    """A tiny tokenizer of chats that spells any text."""
    from tests.oracles.tiny_chat import make_tokenizer

    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tok):
    """A tiny random model on the vocabulary of ``tok``."""
    from tests.oracles.tiny_chat import make_chat_model

    return make_chat_model(tok, max_position_embeddings=2048)


@pytest.fixture(scope="module")
def loaded(model, tok):
    """Both, as they are loaded."""
    return model, tok


@pytest.fixture
def folder(tmp_path, monkeypatch, loaded):
    """An empty working folder in which every model is the tiny one."""
    monkeypatch.setattr("flashtrace_lib.load.load_model", lambda name, **_: loaded)
    monkeypatch.chdir(tmp_path)
    return tmp_path
