"""`FlashTrace.released` against the package that it is named after, and nine cases that its users rely on.

The package is installed into a folder of its own: its command has the name of this library's. It imports two packages
for sentences and word frequencies, which no attribution needs; empty modules stand for them.
"""

import json
import subprocess
import sys

import pytest
import torch

from flashtrace_lib import FlashTrace, Sample, Segments, load, trace
from flashtrace_lib.__main__ import main
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.store import Store
from tests.environment import ROOT
from tests.oracles.naive import naive_flashtrace
from tests.oracles.tiny_chat import make_chat_model, make_tokenizer

PACKAGE = "flashtrace==0.1.1"
TEXTS = [  # I, T, what stands between, O
    ("The secret number is 7261. Dr. No knows it, they say.\nWhat is it?", " So it is 7261, I think.", "\n\n",
     " The number is 7261. Bye"),
    ("Cafés of 日本 🦜 open late, some early.", " Late. Early. Late.", " </think> ", "late , or early ."),
    ("a, b, c\n\nd. . e", "b", "", "c"),
    ("Is it so?", "", "", " So it is. It is so, yes"),
    ("\n  1 + 1 = 2.\n  2 + 2 = 4.\nHow many?", "\n  1 + 2 = 3.\n\n  3 + 4 = 7,", "\n", " number 7"),
]  # fmt: skip
PROGRAM = """
import json, sys
from unittest.mock import MagicMock
for name in ("spacy", "spacy.language", "spacy.tokens", "wordfreq"):
    sys.modules[name] = MagicMock()
sys.path[:0] = sys.argv[1:]
from flashtrace import FlashTrace as Package
from flashtrace_lib import FlashTrace
from tests.methods.test_released import TEXTS, TOKENIZER, by_hand
from tests.oracles import tiny

found = []
for family in ("llama", "qwen3", "mistral"):
    tiny.CONFIGS[family].vocab_size = len(TOKENIZER)
    model = tiny.tiny_model(family)
    for at, (prompt, *parts) in enumerate(TEXTS):
        sample = by_hand(at)
        start = sample.segments.prompt[1]
        think, output = ((a - start, b - start - 1) for a, b in (sample.segments.reasoning, sample.segments.output))
        for hops in range(3):
            ours = [how.attribute(model, sample) for how in (FlashTrace.released(TOKENIZER, hops=hops), FlashTrace())]
            model.set_attn_implementation("eager")  # with sdpa it finds no attention maps
            theirs = Package(model, TOKENIZER).trace(
                prompt=prompt, target="".join(parts), hops=hops, output_span=output,
                reasoning_span=think if sample.segments.has_reasoning else None,
            )
            model.set_attn_implementation("sdpa")
            found.append([theirs.scores, *(result.scores.tolist() for result in ours)])
print(json.dumps(found))
"""
TOKENIZER = make_tokenizer()
MODEL, METHOD = make_chat_model(TOKENIZER), FlashTrace.released(TOKENIZER, hops=2)


def by_hand(at):
    """The sample of a text, its segments counted from the tokens of its parts."""
    ids, ends = [], []
    for part in TEXTS[at]:
        ids += TOKENIZER(part, add_special_tokens=False).input_ids if part else []
        ends.append(len(ids))
    prompt, reasoning, marks, output = ends
    segments = Segments((0, prompt), (prompt, reasoning), (marks, output))
    return Sample(torch.tensor(ids), segments, mask_token_id=TOKENIZER.eos_token_id)


@pytest.mark.slow
def test_released_equals_the_package(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), PACKAGE]
    got = subprocess.run(pip, text=True, capture_output=True)
    if got.returncode:
        pytest.skip(f"{PACKAGE} cannot be had: {got.stderr.strip()[-200:]}")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), str(ROOT)], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 45
    for theirs, ours, paper in found:
        assert ours == pytest.approx(theirs, abs=1e-5) and paper != pytest.approx(theirs, abs=1e-3)


def scores(sample):
    return METHOD.attribute(MODEL, sample).scores


def naive(sample):
    """The package's definitions in the triple loop."""
    whole = dict.fromkeys(("recursion", "first_hop", "flow"), "generation")
    skipped = [i for i in set(sample.input_ids.tolist()) if TOKENIZER.decode([i]).strip() in (",", ".", "")]
    return naive_flashtrace(MODEL, sample, hops=2, hop_scale="raw", skip_tokens=skipped, **whole)[0]


def traced(tokenizer=TOKENIZER, method=METHOD):
    spans, (prompt, *parts) = by_hand(0).segments, TEXTS[0]
    named = {"reasoning": spans.reasoning, "output": spans.output, "method": method}
    return trace(MODEL, tokenizer, prompt, "".join(parts), template=False, **named).attribution.scores


def many(sample, span):
    return METHOD.attribute_many(MODEL, sample, [span])[0].scores


def padded(sample):
    return Sample(torch.nn.functional.pad(sample.input_ids, (0, 7), value=TOKENIZER.eos_token_id), sample.segments)


def without_end_token():
    tokenizer = make_tokenizer()
    tokenizer.eos_token = None
    return tokenizer


def evaluated(folder):
    evaluate(MODEL, [METHOD], [by_hand(0)], store=Store(folder / "x"), metrics=(), progress=False)
    return torch.tensor(Store(folder / "x").records()["scores"].iloc[0])


def from_the_shell(folder):
    (folder / "prompt").write_text(TEXTS[0][0])
    (folder / "response").write_text("".join(TEXTS[0][1:]))
    named = [f"--{name}=tokens:{a}:{b}" for name, (a, b) in by_hand(0).segments.named() if name != "prompt"]
    files = [f"--{name}={folder / name}" for name in ("prompt", "response", "json")]
    assert main(["trace", *files, *named, "--no-template"]) == 0
    return torch.tensor(json.loads((folder / "json").read_text())["scores"])


REFUSES = "{{ raise_exception('a template for a plain prompt') }}"
INSIDE = (by_hand(4).segments.reasoning[0] + 3, by_hand(4).segments.reasoning[1] - 2)
CASES = {  # what was found, and what it must equal
    "a span to a span": lambda _: (traced(), naive(by_hand(0))),
    "an empty reasoning: hops go on over O": lambda _: (scores(by_hand(3)), naive(by_hand(3))),
    "a target inside T": lambda _: (many(by_hand(4), INSIDE), naive(by_hand(4).with_output(INSIDE))),
    "blanks, commas and full stops": lambda _: (scores(by_hand(2)) > 0, naive(by_hand(2)) > 0),
    "padding behind": lambda _: (scores(padded(by_hand(1))), scores(by_hand(1))),
    "a tokenizer without an end token": lambda _: (traced(without_end_token()), scores(by_hand(0))),
    "a plain prompt needs no template": lambda _: (traced(make_tokenizer(REFUSES)), scores(by_hand(0))),
    "evaluate": lambda folder: (evaluated(folder), scores(by_hand(0))),
    "the command line": lambda folder: (from_the_shell(folder), traced(method=None)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_scores(case, tmp_path, monkeypatch):
    monkeypatch.setattr(load, "load_model", lambda name, **_: (MODEL, TOKENIZER))
    found, expected = CASES[case](tmp_path)
    torch.testing.assert_close(found.double(), expected.double(), atol=1e-5, rtol=0)
    assert 0 < expected.double().sum() < len(expected)
