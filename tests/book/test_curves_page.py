"""The page of deletion curves: what it shows is what is stored, whatever the input holds."""

# ruff: noqa: F811
from dataclasses import replace

import numpy as np
import pytest

from flashtrace_book.figures.curves_page import curves_page
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.recorder import Recorder
from flashtrace_lib.methods import IFR, FlashTrace, Position
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.store import Store
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.support.browser import browser, browser_page  # noqa: F401 - fixtures

STEPS = 4
HOSTILE = '</script><img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A sample whose first token is hostile, and the stored evaluation of two methods on it."""
    model, sample = tiny_model(), tiny_sample(n=60, prompt=(2, 42), reasoning=(44, 50), output=(52, 58))
    sample = replace(sample, tokens=[f" t{i}" for i in range(60)])
    sample.tokens[2] = HOSTILE
    store, scorer = Store(tmp_path_factory.mktemp("store") / "curves"), Scorer(model)
    frame = evaluate([FlashTrace(), IFR()], [sample], model, store=store, steps=STEPS, scorer=scorer, metrics=["rise"])
    recorder = Recorder(model, scorer, STEPS)
    records = {method.name: store.get(recorder.key(method, sample)) for method in (FlashTrace(), IFR())}
    return model, sample, store, scorer, frame, records


def page_of(measured, sample=None):
    model, own, store, scorer, *_ = measured
    return curves_page([FlashTrace(), IFR(), Position()], sample or own, model, store, steps=STEPS, scorer=scorer)


@pytest.fixture
def shown(measured, browser_page, tmp_path):
    (tmp_path / "page.html").write_text(page_of(measured).html, encoding="utf-8")
    browser_page.goto((tmp_path / "page.html").as_uri())
    browser_page.set_default_timeout(10_000)
    return browser_page


def test_a_reader_flips_methods_and_masks(shown, measured):
    *_, frame, records = measured
    assert shown.get_by_role("radio").count() == 2, "a method without a curve is left out"
    for label, name in (("IFR", "ifr"), ("FlashTrace", "flashtrace")):
        shown.get_by_label(label, exact=True).check()
        said = shown.locator("#said").inner_text()
        rise = frame.set_index("method")["value"][name]
        assert said.startswith(f"{label}: ") and f"curve: {rise:.3f}" in said and "100 % of the fall" in said
        for step in range(STEPS + 1):
            shown.get_by_label("Step of the curve").fill(str(step))
            said = shown.locator("#said").inner_text()
            assert f"= {records[name]['log_probs'][step]:.1f} nats" in said
            assert shown.locator(".token.masked").count() == records[name]["n_masked"][step]
        assert "2 of 2 tokens of the evidence are masked" in said and shown.locator(".gold").count() == 2
        shown.get_by_label("Step of the curve").fill("0")
    assert shown.locator("#chart .other").count() == shown.locator("#chart .chosen").count() == 1
    assert shown.problems == []


def test_the_highest_token_goes_first_and_is_the_darkest(shown, measured):
    highest = int(np.argmax(measured[-1]["ifr"]["scores"]))
    shown.get_by_label("IFR", exact=True).check()
    depth = shown.locator("#input .token").evaluate_all("all => all.map(t => +t.style.getPropertyValue('--s'))")
    assert depth[highest] == max(depth) == 1
    shown.get_by_label("Step of the curve").fill("1")
    assert "masked" in shown.locator("#input .token").nth(highest).get_attribute("class")


def test_hostile_text_is_shown_and_not_run(shown):
    assert HOSTILE in shown.locator("#input").inner_text()
    assert shown.locator("img").count() == 0 and "masked" in shown.title() and shown.problems == []
    shown.set_viewport_size({"width": 400, "height": 900})
    assert shown.evaluate("document.documentElement.scrollWidth") <= 400


def test_without_a_curve_it_says_what_to_do(measured):
    with pytest.raises(ValueError, match="no deletion curve of tiny-5 .* evaluate its methods by RISE first"):
        page_of(measured, replace(tiny_sample(seed=5), tokens=["x"] * 16))
    with pytest.raises(ValueError, match="has no display tokens"):
        page_of(measured, replace(measured[1], tokens=None))
