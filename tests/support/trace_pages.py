"""Pages of a tiny model to test on: ``from trace_pages import folder, model, tok, traced``."""

from dataclasses import replace

import pytest

from flashtrace_lib import Trace, trace
from flashtrace_lib.methods import Position
from tests.oracles.tiny_chat import PROMPT, RESPONSE, make_chat_model, make_tokenizer

__all__ = ["HOSTILE", "TALK", "folder", "model", "tok", "traced"]

HOSTILE = (
    '<script>document.title="owned"</script> </script><!-- <img src=x onerror="document.title=1"> '
    "\" ' & &lt; `${1}` \u202e\u2028 $title"
)
TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": f"Is it 7261? {HOSTILE}"},
    {"role": "assistant", "content": HOSTILE},
    {"role": "user", "content": "Say it again."},
]


@pytest.fixture(scope="module")
def tok():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tok):
    return make_chat_model(tok, max_position_embeddings=2048)


@pytest.fixture(scope="module")
def traced(model, tok):
    return trace(model, tok, PROMPT, RESPONSE, hops=2)


@pytest.fixture(scope="module")
def folder(traced, model, tok, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    traced.to_html(folder / "t.html")
    trace(model, tok, PROMPT, "It is 7261.", reasoning=None).to_html(folder / "direct.html")
    trace(model, tok, TALK, f"Yes. {HOSTILE}").to_html(folder / "hostile.html")
    trace(model, tok, PROMPT, RESPONSE, method=Position()).to_html(folder / "plain.html")
    trace(model, tok, PROMPT, RESPONSE, output="7261").to_html(folder / "passage.html")
    tokens = list(traced.sample.tokens)
    tokens[traced.sample.segments.prompt[0]] = HOSTILE  # a single token: some vocabularies hold whole tags
    Trace(replace(traced.sample, tokens=tokens), traced.attribution).to_html(folder / "token.html")
    return folder
