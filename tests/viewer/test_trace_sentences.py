"""Sentences in place of words on the page of a trace; the view in the address; scores as a file."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from flashtrace_lib import Trace, trace
from flashtrace_lib.methods import Perturbation
from tests.viewer.test_trace_reader import opened, view


def unit(page, name):
    """The radio button of a unit."""
    return page.locator("#units label", has_text=name).locator("input")


def chips(page):
    """Text and share of each of the highest, as the page lists them."""
    texts = page.locator("#top button").all_inner_texts()
    found = [re.fullmatch(r"(?s)(.*) ([+−]?[\d.]+) (?:%|points)", text) for text in texts]
    return [(match[1], float(match[2].replace("−", "-"))) for match in found]


def on_one_line(text):
    return " ".join(text.split())


def test_it_opens_on_sentences_ranked_as_in_python(browser_page, folder, traced):
    page = opened(browser_page, folder, by="")
    assert unit(page, "Sentences").is_checked()
    expected, shown = traced.top(99, by="sentence"), chips(page)
    assert [on_one_line(text) for text, _ in shown] == [on_one_line(text) for text in expected["sentence"]]
    assert [share for _, share in shown] == pytest.approx(list(100 * expected["share"]), abs=0.06)
    for row in expected.itertuples():  # one colour a sentence, and it ends where the sentence does
        shades = page.locator("#input .token").evaluate_all(
            "(all, [a, b]) => all.filter((t) => a <= t.dataset.i && t.dataset.i < b).map((t) => t.style.cssText)",
            [row.start, row.stop],
        )
        assert len(set(shades)) == 1 and len(shades) == row.stop - row.start
    top = page.locator("#input .token.top").evaluate_all("all => all.map((t) => Number(t.dataset.i))")
    most = min(3, max(1, len(expected) // 3))
    assert top == sorted(i for row in expected[:most].itertuples() for i in range(row.start, row.stop))
    assert page.locator("#lines path").count() == most  # a line to each


@pytest.mark.parametrize("name", ["t", "direct", "hostile", "plain", "passage", "token"])
def test_every_page_has_both_units_or_the_only_one(browser_page, folder, name):
    page = opened(browser_page, folder, name, by="sentences")
    if unit(page, "Sentences").count():
        before = page.locator("#top button").count()
        unit(page, "Words").check()
        assert page.locator("#top button").count() >= before > 0
    else:
        assert page.locator("#units").is_hidden() and unit(page, "Words").is_checked()


def test_sentences_of_hops_and_differences_leave_out_the_passage_itself(browser_page, folder, traced):
    page = opened(browser_page, folder, by="sentences")
    page.locator(".number").nth(2).click()
    target = traced.targets[2]
    words = torch.tensor([not token.isspace() for token in traced.sample.tokens])  # white space counts nowhere
    hop = target.attribution.hops[0].scores * words
    view(page, "Hop 0").check()
    others = [s for s in traced.sample.sentences if s[1] <= target.span[0] or s[0] >= target.span[1]]
    sums = sorted((float(hop[a:b].sum()) for a, b in others), reverse=True)
    shown = [share for _, share in chips(page)]
    assert len(shown) > 2
    assert shown == pytest.approx([100 * value for value in sums if value > 0][: len(shown)], abs=0.06)
    assert not any(on_one_line("".join(traced.sample.tokens[slice(*target.span)])) in text for text, _ in chips(page))
    page.locator("#whole").click()
    view(page, "Difference").check()
    change = traced.attribution.hops[1].scores - traced.attribution.hops[0].scores
    own = traced.sample.segments.output
    others = [s for s in traced.sample.sentences if s[1] <= own[0] or s[0] >= own[1]]
    largest = max((float((change * words)[a:b].sum()) for a, b in others), key=abs)
    assert chips(page)[0][1] == pytest.approx(100 * largest, abs=0.06)


def test_the_lines_of_a_sentence_are_its_row_of_the_matrix(browser_page, folder, traced):
    page, within = opened(browser_page, folder, by="sentences"), 0
    view(page, "Hop 0").check()
    for k, row in enumerate(np.nan_to_num(traced.matrix().to_numpy())):
        page.locator(".number").nth(k).press("Enter")
        shown = [share for _, share in chips(page)]
        assert shown == pytest.approx(sorted(100 * row, reverse=True)[: len(shown)], abs=0.06)
        drawn = page.locator("#lines path").count()
        assert drawn == min(3, max(1, (row > 0).sum() // 3))
        earlier = np.argsort(-row)[:drawn] >= len(row) - len(traced.targets)  # sentences of the response
        assert page.locator("#lines .within").count() == earlier.sum()
        within += earlier.sum()
    assert within


def test_methods_stand_side_by_side_and_each_colours_the_text(browser_page, folder):
    result, page = Trace.from_json(folder / "compared.json"), opened(browser_page, folder, "compared", by="sentences")
    heads = page.locator("#methods thead button")
    assert heads.all_inner_texts() == ["flashtrace_causal", "ifr", "flashtrace"]
    for k, name, of in ((0, "ifr", result.attribution), (1, "flashtrace", result.targets[0].attribution)):
        if k:
            page.locator(".number").first.click()
            assert view(page, "ifr").is_disabled()  # which explains the answer alone
        heads.get_by_text(name, exact=True).press("Enter")
        assert page.inner_text("#chosen").endswith(f"{['The answer O', 'Sentence 1'][k]} · {name}")
        scores = torch.tensor(of.metadata["compared"][name]["scores"])
        expected = list(100 * Trace(result.sample, replace(of, scores=scores)).top(99, by="sentence")["share"])
        assert [share for _, share in chips(page)] == pytest.approx(expected, abs=0.06)
        column = page.locator(f"#methods tbody td:nth-child({2 + heads.all_inner_texts().index(name)})")
        assert sorted(list(map(float, column.all_inner_texts())), reverse=True) == pytest.approx(expected, abs=0.06)
    assert opened(page, folder).locator("#methods").is_hidden()


def test_copies_of_a_sentence_s_score_are_not_added_up(browser_page, model, tok, tmp_path):
    result = trace(model, tok, "The key is red. The door is blue. " * 3, "Red.", reasoning=None, method=Perturbation())
    copies = replace(result.attribution, metadata={"units": "sentence", "options": {"spread": "copy"}})
    both = Trace(result.sample, copies)
    both.to_html(tmp_path / "t.html")
    shown = {round(abs(share), 1) for _, share in chips(opened(browser_page, tmp_path, by="sentences"))}
    assert shown == {round(100 * abs(share), 1) for share in both.top(99, by="sentence")["share"]}


def test_a_token_says_what_its_sentence_has(browser_page, folder, traced):
    page, best = opened(browser_page, folder, by="sentences"), traced.top(1, by="sentence").iloc[0]
    page.locator(f"[data-i='{best['start'] + 2}']").hover()
    tip = page.inner_text("#tip")
    assert "its sentence's score" in tip and f"({100 * best['share']:.1f} %)" in tip and "rank 1" in tip
    page.locator("#top button").nth(1).click()
    assert page.evaluate("Number(document.activeElement.dataset.i)") == traced.top(2, by="sentence").iloc[1]["start"]


def test_the_address_notes_what_is_chosen_and_brings_it_back(browser_page, folder):
    page = opened(browser_page, folder, by="sentences")
    page.locator(".number").nth(2).click()
    unit(page, "Words").check()
    view(page, "Difference").check()
    page.locator("#later").select_option("Hop 1")
    address, shown = page.url, page.locator("#top").inner_text()
    assert address.endswith("#passage=3&show=difference&by=words&later=1&earlier=0")
    opened(page, folder)
    assert page.inner_text("#chosen") == "The answer O · All hops"
    page.goto("about:blank")
    page.goto(address)
    assert page.inner_text("#chosen") == "Sentence 3 · Difference" and page.locator("#top").inner_text() == shown
    page.evaluate("location.hash = 'passage=1&show=0&by=sentences'")  # a link within the page
    page.wait_for_function("document.getElementById('chosen').textContent === 'Sentence 1 · Hop 0'")
    assert unit(page, "Sentences").is_checked()


NOTHING = "#passage=99&show=77&by=letters&later=x #passage=-1 #passage=1.5 #% #passage=1&show=2 #show=versus-7 #<b>"


@pytest.mark.parametrize("address", NOTHING.split())
def test_an_address_of_nothing_is_ignored(browser_page, folder, address):
    page = browser_page
    page.goto((folder / "t.html").as_uri() + address)
    assert page.locator("#top button").count() > 0 and page.locator("[name=view]:checked").is_enabled()
    assert page.inner_text("#chosen").split(" · ")[0] in ("The answer O", "Sentence 1")


def saved(page):
    with page.expect_download() as download:
        page.get_by_role("button", name="Save all as CSV").click()
    text = open(download.value.path(), encoding="utf-8-sig", newline="").read()
    return download.value.suggested_filename, list(csv.DictReader(io.StringIO(text)))


def test_all_scores_as_a_file(browser_page, folder, traced):
    page = opened(browser_page, folder)
    name, rows = saved(page)
    start, stop = traced.sample.segments.prompt
    assert name == "trace_answer_words.csv" and [int(row["position"]) for row in rows] == list(range(start, stop))
    scores = traced.attribution.scores.tolist()
    assert [float(row["score"]) for row in rows] == pytest.approx(scores, rel=1e-3, abs=1e-6)
    ranked = sorted((row for row in rows if row["rank"]), key=lambda row: int(row["rank"]))
    assert [int(row["position"]) for row in ranked[:5]] == traced.top(5)["position"].tolist()
    unit(page, "Sentences").check()
    page.locator(".number").first.click()
    name, rows = saved(page)
    first = Trace(traced.sample, traced.targets[0].attribution)
    expected = {row.start: row for row in first.top(99, by="sentence").itertuples()}
    assert name == "trace_sentence_1_sentences.csv" and len(rows) == len(expected)
    for row in rows:
        assert on_one_line(row["sentence"]) == on_one_line(expected[int(row["position"])].sentence)
        assert float(row["score"]) == pytest.approx(expected[int(row["position"])].score, rel=1e-3, abs=1e-6)
    _, rows = saved(opened(browser_page, folder, "hostile", by="sentences"))
    assert all(set(row) == {"rank", "sentence", "position", "score", "part"} for row in rows)
    assert any('src=x onerror="document.title=1">' in row["sentence"] for row in rows)
