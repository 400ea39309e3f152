"""What a reader's clicks and keys do on the page of a trace, in a real browser."""

import re

import numpy as np
import pytest
import torch

from flashtrace_lib import trace


def opened(page, folder, name="t", by="words"):
    page.goto("about:blank")  # the next page may differ by what stands behind # alone
    page.goto((folder / f"{name}.html").as_uri() + f"#by={by}")
    page.set_default_timeout(10_000)
    return page


def view(page, name):
    """The radio button of a view."""
    return page.locator("#views label", has_text=name).locator("input")


def agree(page, traced, scores, span=None):
    """The list has the ten highest of ``scores`` [N] outside template and ``span`` (the answer), in their order."""
    labels = traced.sample.segments.labels(len(traced.sample))
    size = np.array([abs(float(s)) if name != "context" else 0.0 for s, name in zip(scores, labels, strict=True)])
    size[[not token.strip() for token in traced.sample.tokens]] = 0  # white space alone says nothing
    size[slice(*(span or traced.sample.segments.output))] = 0  # what draws on itself
    listed = page.locator("#top button")
    positions = listed.evaluate_all("all => all.map((b) => Number(b.dataset.of))")
    assert len(set(positions)) == 10
    assert size[positions] == pytest.approx(np.sort(size)[::-1][:10], rel=1e-3)
    tokens = listed.locator("b").all_inner_texts()
    for text, token, i in zip(listed.all_inner_texts(), tokens, positions, strict=True):
        number = re.search(r" \+?([−\d.]+) (?:%|points)$", text)[1]
        assert token == (traced.sample.tokens[i].replace("\n", "⏎").strip() or "␣")
        assert float(number.replace("−", "-")) == pytest.approx(100 * float(scores[i]), abs=0.06)


def importance(traced, attribution):
    """Of every token [N], as shares of the whole, as the command line prints them."""
    out = torch.zeros(len(traced.sample))
    out[slice(*traced.sample.segments.prompt)] = attribution.scores / attribution.scores.sum()
    return out


def test_it_opens_on_the_answer_and_a_click_on_any_sentence_shows_what_it_came_from(browser_page, folder, traced):
    page = opened(browser_page, folder)
    assert page.inner_text("#chosen") == "The answer O · All hops"
    assert page.get_attribute("#whole", "aria-pressed") == "true" and page.locator("#input .token.top").count() == 10
    agree(page, traced, importance(traced, traced.attribution))
    assert page.locator(".sentence").count() == len(traced.targets) == 4
    for k, target in enumerate(traced.targets, start=1):
        page.locator(f".sentence[data-k='{k}'] .token").last.click()
        assert page.inner_text("#chosen") == f"Sentence {k} · All hops"
        agree(page, traced, importance(traced, target.attribution))
        assert page.locator(".sentence.chosen").get_attribute("data-k") == str(k)
        words = page.locator(".sentence.chosen").text_content().removeprefix(str(k))  # the button's number
        assert words.replace("⏎\n", "\n") == "".join(traced.sample.tokens[slice(*target.span)])
    assert page.locator(".block.chosen").count() == 0
    page.locator("#whole").click()
    assert page.locator(".block.chosen .caption").inner_text().startswith("Output O")


def test_hops_and_their_difference(browser_page, folder, traced):
    page, hops = opened(browser_page, folder), [hop.scores for hop in traced.attribution.hops]
    for k, scores in enumerate(hops):
        view(page, f"Hop {k}").check()
        agree(page, traced, scores)
    view(page, "Difference").check()
    agree(page, traced, hops[1] - hops[0])
    page.locator("#later").select_option("Hop 2")
    change = hops[2] - hops[0]
    agree(page, traced, change)
    for name, sign in (("gain", 1), ("loss", -1)):  # two colours, and two kinds of underline
        shown = page.locator(f".text .token.{name}").evaluate_all("all => all.map((t) => Number(t.dataset.i))")
        assert shown and all(sign * float(change[i]) > -1e-4 * float(hops[0].max()) for i in shown)
    line = "(t) => [getComputedStyle(t).textDecorationStyle, getComputedStyle(t).backgroundColor]"
    gains, losses = (page.locator(f".text .token.top.{name}").first.evaluate(line) for name in ("gain", "loss"))
    assert gains[0] == "solid" and losses[0] == "dotted" and gains[1] != losses[1]
    assert "solid gains" in page.inner_text("#legend")


def test_a_sentence_without_reasoning_before_it_has_one_hop(browser_page, folder):
    page = opened(browser_page, folder)
    view(page, "Hop 2").check()
    page.locator(".number").first.click()
    assert view(page, "Hop 0").is_enabled() and view(page, "Hop 1").is_disabled()
    assert view(page, "Difference").is_disabled() and view(page, "All hops").is_checked()
    opened(page, folder, "direct")
    assert view(page, "Difference").count() == 0 and page.locator(".block.reasoning").count() == 0
    opened(page, folder, "plain")
    assert page.inner_text("#chosen") == "The answer O · Importance" and page.locator(".number").count() == 0


def test_words_beside_the_explained_passage_are_no_template(browser_page, folder):
    blocks = opened(browser_page, folder, "passage").locator("#response .block")
    kinds = [text.split(" · ")[0] for text in blocks.locator(".caption").all_inner_texts()]
    rest = "rest of response"
    assert kinds == ["template", "Reasoning T", "template", rest, "Output O", rest, "template"]
    assert "The number is" in blocks.nth(3).inner_text() and "Bye." in blocks.nth(5).inner_text()


def test_a_mark_is_listed_with_its_neighbours(browser_page, folder, traced):
    page = opened(browser_page, folder)
    page.locator("#count").fill("500")
    tokens, listed = traced.sample.tokens, page.locator("#top button")
    shown = dict(zip(listed.evaluate_all("all => all.map((b) => b.dataset.of)"), listed.all_inner_texts(), strict=True))
    i = next(i for i in range(*traced.sample.segments.prompt) if tokens[i] == "." and tokens[i - 1].strip())
    assert shown[str(i)].startswith(tokens[i - 1].strip() + ". ")
    j = next(i for i in range(*traced.sample.segments.prompt) if tokens[i].strip().isalnum() and tokens[i - 1].strip())
    assert shown[str(j)].startswith(tokens[j].strip() + " ")


def test_shares_are_those_of_the_library(browser_page, folder, traced):
    page = opened(browser_page, folder)
    view(page, "Hop 1").check()
    rows = [row.split("\t") for row in page.locator("#shares tbody tr").all_inner_texts()]
    expected = traced.shares().set_index("part")["hop 1"]
    names = {"user": "user", "Reasoning T": "reasoning", "Output O": "output", "template": "template"}
    assert {row[0] for row in rows} == set(names)
    for name, _, share, *_ in rows:
        if share != "–":
            assert float(share.removesuffix(" %")) == pytest.approx(100 * expected[names[name]], abs=0.3)


def test_hovering_shows_the_score(browser_page, folder, traced):
    page, i = opened(browser_page, folder), int(traced.top(1)["position"].iloc[0])
    page.locator(f"[data-i='{i}']").hover()
    tip = page.inner_text("#tip")
    assert f"token {i} · score" in tip and "rank 1 · user" in tip
    score, share = re.search(r"score ([\d.e+-]+) \(([\d.]+) %\)", tip).groups()
    assert float(score) == pytest.approx(float(traced.top(1)["score"].iloc[0]), rel=1e-2)
    assert float(share) == pytest.approx(100 * float(importance(traced, traced.attribution)[i]), abs=0.06)
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()


def test_everything_works_from_the_keyboard(browser_page, folder, traced):
    page, reached = opened(browser_page, folder), [""]
    while reached[-1] != "whole" and len(reached) < 40:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
    form = ["view", "unit", "query", "previous", "next", "count", "copy", "save", "picture", "show-code"]
    assert [name for name in reached if name] == [*form, "whole"]
    for key in (
        "Tab",
        "ArrowDown",
        "ArrowRight",
        "ArrowUp",
        "ArrowDown",
        "Space",
        "Shift+Tab",
        "Enter",
        "Tab",
        "Enter",
    ):
        page.keyboard.press(key)
    assert page.inner_text("#chosen") == "Sentence 3 · All hops"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "4"
    page.locator("[name=view]:checked").focus()
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#chosen") == "Sentence 3 · Hop 0"
    page.locator("#input .token[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert f"token {traced.sample.segments.prompt[0] + 1} ·" in page.inner_text("#tip")
    page.keyboard.press("ArrowDown")  # the next underlined word
    assert page.evaluate("document.activeElement.classList.contains('top')")
    assert "rank" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    page.locator(f"[data-i='{traced.targets[-1].span[0]}']").focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#chosen").startswith("Sentence 4")
    unnamed = "all => all.filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).length"
    assert page.locator("button, input, select").evaluate_all(unnamed) == 0


def test_finding_words(browser_page, folder):
    page = opened(browser_page, folder)
    page.get_by_label("Text to find").fill("7261")
    assert page.inner_text("#found") == "3 found"
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.inner_text("#found") == "2 of 3"
    assert "".join(page.locator(".token.here").all_inner_texts()).strip(" .") == "7261"
    page.get_by_label("Previous match").click()
    assert page.inner_text("#found") == "1 of 3"
    page.get_by_label("Text to find").fill("LATE. the Secret")  # over a line break, in other letters
    assert page.inner_text("#found") == "1 found"
    page.get_by_label("Text to find").fill("(.*[")
    assert page.inner_text("#found") == "0 found" and page.locator(".token.found").count() == 0


def test_the_legend_says_what_a_colour_means(browser_page, folder, traced, model, tok, tmp_path):
    prompt = " ".join(f"The key {i} is in room {i * i}." for i in range(60))
    long = trace(model, tok, prompt, "It is 7.", reasoning=None)
    long.to_html(tmp_path / "long.html")
    for where, name, result in ((folder, "t", traced), (tmp_path, "long", long)):
        page, size = opened(browser_page, where, name), np.sort(importance(result, result.attribution).numpy())
        size = size[-len(result.sample.prompt_ids) :]
        limit = size[-1] if len(size) < 100 else size[int(0.99 * (len(size) - 1))]  # 99th percentile
        *others, last = page.locator("#legend .swatch").all_inner_texts()
        assert last.startswith("≥ ") == (size[-1] > limit) == (name == "long")
        shown = [float(text.removesuffix(" %")) for text in (*others, last.removeprefix("≥ "))]
        assert shown == pytest.approx(100 * limit * np.array([0, 0.25, 0.5, 0.75, 1]), rel=0.1)


def test_copying_the_top(browser_page, folder, traced):
    page = opened(browser_page, folder)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#count").fill("3")
    page.get_by_role("button", name="Copy").click()
    page.wait_for_function("document.getElementById('copied').textContent")
    rows = [line.split("\t") for line in page.evaluate("navigator.clipboard.readText()").split("\n")]
    assert rows[0] == ["rank", "token", "position", "score", "part"] and len(rows) == 4
    assert [int(row[2]) for row in rows[1:]] == traced.top(3)["position"].tolist()
    assert [float(row[3]) for row in rows[1:]] == pytest.approx(traced.top(3)["score"].tolist(), rel=1e-2)
    assert page.inner_text("#copied") == "3 copied"


def test_hostile_text_is_text(browser_page, folder):
    page = opened(browser_page, folder, "hostile")
    shown = page.inner_text("#input") + page.inner_text("#response")
    assert shown.count('<script>document.title="owned"</script>') == 3
    assert shown.count('<img src=x onerror="document.title=1">') == 3 and "`${1}`" in shown and "&lt;" in shown
    assert page.title().startswith("flashtrace") and page.locator("img, main script").count() == 0
    assert "⟨U+202E⟩" in shown and page.locator("#input .block.input").count() == 4
    for name in ("1 system", "2 user", "3 assistant", "4 user"):
        assert name in page.inner_text("#shares")
    opened(page, folder, "token")
    assert '</script><!-- <img src=x onerror="document.title=1">' in page.inner_text("#input")
    assert page.title().startswith("flashtrace") and page.locator("img, main script").count() == 0


def test_a_verdict_stands_above_the_text_and_a_contrast_has_two_colours(browser_page, traced, model, tok, tmp_path):
    found = traced.verify()
    traced.to_html(tmp_path / "verified.html")
    page = opened(browser_page, tmp_path, "verified")
    verdict, text = page.locator("#verified"), page.locator("#response")
    assert verdict.inner_text() == str(found) and verdict.bounding_box()["y"] < text.bounding_box()["y"]
    contrast = trace(model, tok, "It is 7261. Is it?", "7261", contrast="1999")
    contrast.to_html(tmp_path / "contrast.html")
    page = opened(browser_page, tmp_path, "contrast")
    assert page.locator("#legend").inner_text().count("−") or "-" in page.inner_text("#legend")
    colours = page.locator("#input .token").evaluate_all("all => all.map((t) => getComputedStyle(t).backgroundColor)")
    assert len(set(colours)) > 2
