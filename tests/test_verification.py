"""Is it so, why this and not that, and which step used what."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from flashtrace_lib import METHODS, Trace, load_model, trace
from flashtrace_lib import verification as v
from flashtrace_lib.contrast import other_answer
from flashtrace_lib.report import report
from flashtrace_lib.text.build_sample import build_sample
from tests.oracles.tiny_reasoner import load_tokenizer

TEXT = (
    "The train to Lyon leaves from platform 4. The train to Nice leaves from platform 7. The cafe sells tea. "
    "The office opens at nine. Dogs may travel for free. The museum is closed on Monday. Bread was cheap that year.\n\n"
    "From which platform does the train to Nice leave?"
)
REPLY = '<think>\nThe text says: "The train to Nice leaves from platform 7."\n</think>\n\nThe answer is platform 7.'


@pytest.fixture(scope="module")
def loaded():
    return load_model("embedded")


@pytest.fixture(scope="module")
def traced(loaded):
    return trace(*loaded, TEXT, REPLY)


def ranked_by(traced, best, question=0.0):
    """Sentences with the score 1 for the one that holds ``best``, falling with their order for all others."""
    rows = traced.to_frame("sentence")
    asked = rows["text"].str.contains("From which")
    scores = np.where(rows["text"].str.contains(best), 1.0, np.where(asked, question, -0.01 * np.arange(len(rows))))
    return [((a, b), float(score)) for a, b, score in zip(rows["start"], rows["stop"], scores, strict=True)]


def test_falls_are_those_of_whole_passes_with_the_tokens_replaced(loaded, traced):
    model, sample = loaded[0], traced.sample
    found = v.verify(model, sample, ranked_by(traced, "Nice leaves"))

    def log_p(removed):
        ids = sample.input_ids.clone()
        for start, stop in removed:
            ids[start:stop] = sample.mask_token_id
        with torch.inference_mode():
            scores = model(ids[None]).logits[0].log_softmax(-1)
        explained = [*range(*sample.segments.reasoning), *range(*sample.segments.output)]
        return sum(float(scores[i - 1, ids[i]]) for i in explained)

    assert found.sentences[0] == next(span for span, score in ranked_by(traced, "Nice leaves") if score == 1)
    assert found.fall == pytest.approx(log_p([]) - log_p(found.sentences), abs=1e-3)
    assert found.verdict == v.CONFIRMED and len(found.random_falls) == 10 and found.forward_passes <= 12
    assert f"{found.fall:.2f} nats" in str(found)


def test_verdicts(loaded, traced):
    model, sample = loaded[0], traced.sample
    wrong = [(span, -score) for span, score in ranked_by(traced, "Nice leaves")]
    assert v.verify(model, sample, wrong).verdict == v.CHANCE
    assert v.verify(model, sample, [*wrong[:-1], (wrong[-1][0], 9.0)]).verdict == v.QUESTION
    short = trace(*loaded, "Two cats sleep. One dog barks. Who barks?", "<think>One dog.</think>One dog.")
    found = short.verify()
    assert found.verdict == v.SHORT and found.fall is None and "too short" in report(short)
    assert v.verify(model, short.sample, []).verdict == v.SHORT
    facts, question = TEXT.split("\n\n")
    leads = trace(*loaded, f"{question}\n\n{facts}", REPLY)
    assert v.verify(model, leads.sample, ranked_by(leads, "Nice leaves")).verdict == v.CONFIRMED


def test_a_verdict_stands_in_report_page_and_file(loaded, traced, tmp_path):
    found = traced.verify()
    assert f"verification: {found}" in report(traced)
    assert str(found).split(":")[0] in traced.to_html(tmp_path / "t.html").read_text(encoding="utf-8")
    again = Trace.from_json(traced.to_json(tmp_path / "t.json"))
    assert f"verification: {found}" in report(again)
    with pytest.raises(ValueError, match="set trace.model"):
        again.verify()
    assert again.verify(loaded[0]) == found


def test_a_frame_has_every_token_and_every_sentence(traced):
    tokens, sentences = traced.to_frame(), traced.to_frame("sentence")
    text = "".join(tokens["text"])
    assert all(text[a:b] == t for a, b, t in zip(tokens["begin"], tokens["end"], tokens["text"], strict=True))
    assert all(text[a:b] == t for a, b, t in zip(sentences["begin"], sentences["end"], sentences["text"], strict=True))
    assert tokens["score"].notna().sum() == (tokens["segment"] == "input").sum() and len(sentences) == 8
    with pytest.raises(ValueError, match="by must be"):
        traced.to_frame("word")


def test_the_matrix_has_the_first_hop_of_every_sentence(loaded, traced):
    table = traced.matrix()
    assert table.shape == (len(traced.targets), 8 + len(traced.targets))
    for row, (span, _) in zip(table.to_numpy(), traced.targets, strict=True):
        own = METHODS["flashtrace_causal"]().attribute(loaded[0], traced.sample.with_output(span)).hops[0].scores
        own, (start, stop) = own * torch.tensor(traced.sample.not_blank), traced.targets[0].span
        stands = [own[a:b].sum() for a, b in traced.to_frame("sentence")[["start", "stop"]].to_numpy()]
        np.testing.assert_allclose(row[:8], stands, atol=1e-6)
        assert np.isnan(row[8]) if span == (start, stop) else row[8] == pytest.approx(float(own[start:stop].sum()))
    with pytest.raises(ValueError, match="method with hops"):
        trace(*loaded, TEXT, REPLY, method="string_match").matrix()


def test_a_contrast_is_the_difference_of_two_answers_after_one_prefix(loaded, tmp_path):
    reply = "Platform 7."
    both = [trace(*loaded, TEXT, text, method="attnlrp").attribution for text in (reply, "Platform 4.")]
    found = trace(*loaded, TEXT, reply, method="attnlrp", contrast="Platform 4.")
    signed = torch.tensor(both[0].metadata["signed"]) - torch.tensor(both[1].metadata["signed"])
    torch.testing.assert_close(found.attribution.scores, signed / signed.abs().sum(), rtol=1e-3, atol=1e-5)
    assert found.attribution.scores[(both[0].scores == 0) & (both[1].scores == 0)].any()  # below 0 in both
    for method in ("flashtrace", "ifr", "attnlrp"):
        of = trace(*loaded, TEXT, REPLY, output="7", contrast=4, method=method).to_frame("sentence")["score"]
        assert of[1] == of.max() > 0 > of[0] == of.min()  # the train to Nice speaks for 7, that to Lyon for 4
    assert Trace.from_json(found.to_json(tmp_path / "c.json")).attribution.metadata["options"]["contrast"]
    found.to_html(tmp_path / "c.html")
    for other, message in (("7", "another answer than"), (" ", "contrast is empty"), (["4"], "or no text")):
        with pytest.raises(ValueError, match=message):
            trace(*loaded, TEXT, REPLY, output="7", contrast=other)


def test_another_answer_is_spelled_as_behind_what_stands_before():
    pieces = {piece: i for i, piece in enumerate(["▁", "a", "(", "4", "7", "▁4", "▁7"])}
    own = Tokenizer(models.BPE(pieces, [("▁", "4"), ("▁", "7")]))
    own.pre_tokenizer, own.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()  # a blank before every text
    for response, expected in (("a(7", "4"), ("a 7", "▁4")):
        sample = build_sample(PreTrainedTokenizerFast(tokenizer_object=own), "a", response, output="7", template=False)
        other = other_answer(PreTrainedTokenizerFast(tokenizer_object=own), sample, "4")
        assert other.input_ids.tolist() == [*sample.input_ids[:-1].tolist(), pieces[expected]]
        assert other.segments.output == sample.segments.output and other.response == sample.response
    tok = load_tokenizer()  # a blank of its own before a number, which would melt into a word
    for response, words in (("Platform 7", "number four"), ("7。", "八十"), ("v7", ".5.1")):
        other = other_answer(tok, build_sample(tok, "a", response, output="7"), words)
        assert tok.decode(other.input_ids[slice(*other.segments.output)]) == words
