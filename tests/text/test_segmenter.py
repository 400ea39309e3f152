"""Sentences of prose in any script and layout, and lines of what is no prose."""

import textwrap

import pytest

from flashtrace_lib import trace
from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.segmenter import sentence_spans
from tests.oracles.tiny_chat import make_chat_model, make_tokenizer


def sentences(text):
    return [text[a:b] for a, b in sentence_spans(text)]


def test_windows_do_not_cut_sentences():
    sentence = "The grass is green and the sky over it is blue. "
    assert [b - a for a, b in sentence_spans(sentence * 300)] == [len(sentence)] * 300


@pytest.mark.parametrize(
    "marked",  # "|" stands where one sentence ends and the next begins
    [
        "<!DOCTYPE html>\n|<html>\n|<!-- note! --> <p>It is so!</p>",
        "1.1. Scope of it. |1.2. Terms of it. |(a) Who pays. |II. Duties.",
        "यह एक वाक्य है। |यह दूसरा है। |क्या आप आएंगे? |हाँ।",
        "یہ ایک جملہ ہے۔ |یہ دوسرا ہے۔ |کیا؟ |ہاں۔",
        "هذا خبر. |هل هذا صحيح؟ |نعم! |حسنا.",
        "今天下雨。|我们回家！|好吗？|“走吧。”|他说。",
        "日本は広い。|「行こう。」と言った。|これは「本。」です。|そうか。",
        "Wait... what is it? |He left... |Then she came. |Well… |No. |I think… maybe.",
        "The U.S. economy grew. |He came, e.g. today, i.e. now. |Dr. No knows it. |At 3.14 p.m. he left.",
        'He said "Go home." |Then he left. |"Is it?" she asked. |(It was.) |«Да.» |Он ушёл.',
        "VAR A = 12345\n|VAR B = VAR A\n|The sky is blue. |It is.\n|VAR C = 3",
        "Document 1:\n|Ed Wood\n|Ed Wood is a film of 1994 that Tim Burton made. |It won.\n\n|Document 2:\n|Ed",
        '{\n  |"name": "Alice Brown of the northern hills",\n  |"age": 3\n|}',
        "name of the person\tage of the person\n|Ann Brown of Leeds\t3\n|Bob\t4",
        "INFO starting the server with workers now\n|WARN the disk is slow and nearly full\n|ERROR it could not write",
        "2024-01-01 12:00:01 started the server with workers\n|2024-01-01 12:00:02 the disk is slow",
        "import os\n|from pathlib import Path\n\n|def read_all(paths):\n    |return [p.read() for p in paths]",
        "- buy a bag of flour from the mill\n|- call the plumber about the kitchen\n|- go home",
        "1. First we take the number and multiply it\n   by the other number.\n|2. Then we add.",
        "Buy a bag of flour from the mill\n|Call the plumber about the kitchen\n|Go home and rest",
        "Dear Sir\n|I write to you about the house that\nwe saw in May. |It was large.\n|Yours\n|Bob",
        "In 2019 he had 1. |In 2020 he had 2. |We get 7 + 1 = 8. |Next 8 + 1 = 9. |Done.",
        "See https://a.org/page?id=7\n|if x!=y { vec![1, 2] }\n|**It is.** |_So?_ she said. |So 3!+2! is 8.",
        "Who is it?|[8] A note says who. |Wow!|That is `a?`, then. |Steps: |1. Mix it. |2. Bake it.",
    ],
)
def test_where_sentences_begin(marked):
    assert sentences(marked.replace("|", "")) == marked.split("|")


PROSE = """Attribution asks which words of a prompt an answer depends on. It was first asked of images, where Dr. Smith
and others in the U.S. masked patches, e.g. squares. In long texts, which hold thousands of tokens, a forward pass for
each of them costs too much! So one explains spans (paragraphs, say) instead; "Is that enough?" she asked."""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("margin", [40, 55, 72, 100])
def test_hard_wrapped_prose_has_the_sentences_of_the_same_prose(margin, end):
    plain = " ".join(PROSE.split())
    found = [sentence.split() for sentence in sentences(end.join(textwrap.wrap(plain, margin)))]
    assert found == [sentence.split() for sentence in sentences(plain)] and len(found) == 4


def test_an_input_of_lines_is_named():
    tok = make_tokenizer()
    model, rows = make_chat_model(tok), "name  age\nAnn  3\nBob  4\nWho is 4?"
    said = "3 of the input's 4 sentences are lines"
    assert any(said in note for note in trace(model, tok, rows, "Bob.").cautions())
    assert not any("are lines" in note for note in trace(model, tok, "A b.\nC d.\nE f.\nWho?", "C.").cautions())
    assert len(build_sample(tok, rows, "Bob.").sentences) == 5
