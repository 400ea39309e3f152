"""The chapter on RISE: its curves against plain loops of whole forward passes, its tables against counts by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book.experiments import anatomy_curves as curves_of
from flashtrace_book.experiments import anatomy_tables as tables
from flashtrace_book.experiments import rise_anatomy as anatomy
from flashtrace_book.figures import anatomy_plots
from flashtrace_book.profiles import load_profile
from flashtrace_lib.metrics import deletion_curve, rise
from tests.oracles.tiny import tiny_model, tiny_sample

STEPS = 4


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture
def sample():
    sample = tiny_sample(n=40, prompt=(2, 22), reasoning=(24, 31), output=(32, 38))
    sample.sentences = [(2, 9), (9, 15), (15, 22)]
    sample.metadata["question_start"] = 15
    return sample


class Tokens:
    """As much of a tokenizer as the masks need: " the" is token 7, and token 5 ends a text."""

    all_special_ids, pad_token_id, is_fast = [0, 9, 5], 0, True

    def __call__(self, text, **_):
        return SimpleNamespace(input_ids=[7], offset_mapping=[(0, len(text))], encodings=None)


def by_hand(model, sample, order, mask, steps):
    """One forward pass a step, its context built token by token; log p of T, O and the response."""
    first, spans = sample.segments.prompt[0], {"T": sample.segments.reasoning, "O": sample.segments.output}
    found = {name: [] for name in anatomy.SCORED}
    for k in range(steps + 1):
        hit = {first + int(i) for i in order[: k * len(order) // steps]}
        ids = sample.input_ids.tolist()
        options = {}
        if mask == "deleted":
            kept = [i for i in range(len(ids)) if i not in hit]
        else:
            kept = list(range(len(ids)))
        if mask == "hidden":
            seen = torch.tensor([[i not in hit for i in kept]]).long()
            options = {"attention_mask": seen, "position_ids": torch.arange(len(ids))[None]}
        stands_in = {"pad": 0, "word": 7, "end": 5}.get(mask)
        row = [stands_in if i in hit and stands_in is not None else ids[i] for i in kept]
        with torch.no_grad():
            log_probs = model(input_ids=torch.tensor([row]), **options).logits[0].double().log_softmax(-1)
        at = {old: new for new, old in enumerate(kept)}
        for name, (start, stop) in {**spans, "T ∪ O": sample.response}.items():
            found[name].append(sum(log_probs[at[t] - 1, ids[t]].item() for t in range(start, stop)))
    return found


@pytest.mark.parametrize("mask", curves_of.MASKS)
@pytest.mark.parametrize("keeps_question", [False, True])
def test_curves_equal_a_plain_loop(model, sample, mask, keeps_question, monkeypatch):
    monkeypatch.setattr(curves_of, "tokenise", lambda tokenizer, text: ([7], [(0, len(text))]))
    scores = torch.rand(20, generator=torch.Generator().manual_seed(3))
    order = curves_of.masked_order(sample, scores, keeps_question)
    assert len(order) == (13 if keeps_question else 20)
    found = curves_of.curve_sums(model, sample, order, mask, STEPS, Tokens())
    naive = by_hand(model, sample, order, mask, STEPS)
    for name in anatomy.SCORED:
        assert np.allclose(found[name], naive[name], atol=1e-3), name


def test_no_context_is_scored_twice(model, sample, monkeypatch):
    rows, score_rows = [], curves_of.score_rows

    def counted(network, contexts, *rest, **options):
        rows.extend(contexts)
        return score_rows(network, contexts, *rest, **options)

    monkeypatch.setattr(curves_of, "score_rows", counted)
    known, order = {}, torch.arange(20)
    for mask in ("pad", "hidden", "deleted"):
        plain = [curves_of.curve_sums(model, sample, one, mask, STEPS) for one in (order, order.flip(0))]
        del rows[:]
        shared = [curves_of.curve_sums(model, sample, one, mask, STEPS, known=known) for one in (order, order.flip(0))]
        assert len(rows) == 2 * (STEPS + 1) - 2 - (mask == "deleted")  # both ends; intact is what pad began with
        for one, other in zip(plain, shared, strict=True):
            assert all(np.allclose(one[name], other[name], atol=1e-3) for name in anatomy.SCORED)


def test_the_padding_curve_is_the_library_s(model, sample):
    scores = torch.rand(20, generator=torch.Generator().manual_seed(4))
    found = curves_of.curve_sums(model, sample, curves_of.masked_order(sample, scores), "pad", STEPS)["T ∪ O"]
    assert np.allclose(found, deletion_curve(model, sample, scores, STEPS).log_probs, atol=1e-3)


def test_rankings_hold_each_target_shape_and_control(model, sample):
    found = anatomy.rankings(model, sample, 2)
    wanted = (
        "flashtrace", "flashtrace on T", "flashtrace on T ∪ O", "ifr on T", "flashtrace_best", "random 1",
        "random_sentences 0", "random 0, 7 tokens", "flashtrace, sentences", anatomy.EVIDENCE,
    )  # fmt: skip
    assert set(wanted) <= found.keys()
    assert all(scores.shape == (20,) for scores in found.values())
    blocks = found["flashtrace, sentences"]
    assert len({round(float(x), 9) for x in blocks[:7]}) == 1 and blocks.sum() == pytest.approx(
        found["flashtrace"].sum()
    )
    gold = sample.gold_in_prompt
    assert found[anatomy.EVIDENCE][gold].min() > found[anatomy.EVIDENCE][~gold].max()
    curves = anatomy.plan(list(found))
    assert len(curves) == len(set(curves)) == len(found) + 4 * (len(curves_of.MASKS) - 1) + 4


def test_half_a_curve_stops_at_half():
    response = torch.tensor([1.0, 0.5, 0.25, 0.25, 0.0])
    assert anatomy.area_to(response, 1.0) == rise(response)
    assert anatomy.area_to(response, 0.5) == pytest.approx((0.75 + 0.375) / 2)


def made(n=8):
    rng, rows = np.random.default_rng(0), []
    for i in range(n):
        for name, base in {"flashtrace": 0.4, "flashtrace, 3 tokens": 0.5, "random 0": 0.7, "random 1": 0.6}.items():
            for mask in ("pad", "word"):
                curve = {"ranking": name, "mask": mask, "keeps_question": False, "scored": "T ∪ O", "cut": 1.0}
                row = {"sample": f"s{i}", "cell": "c", "group": "RULER", **curve}
                rows.append(row | {"rise": base + 0.01 * rng.normal()})
    return pd.DataFrame(rows)


def test_draws_are_averaged_and_blocks_compared_on_the_same_samples():
    frame = tables.without_draws(made())
    assert set(frame["ranking"]) == {"flashtrace", "flashtrace, 3 tokens", "random"}
    shapes = tables.shape_table(frame).set_index(["ranking", "shape"])
    assert shapes.loc[("flashtrace", "3 tokens"), "change"] == pytest.approx(0.1, abs=0.02)
    assert shapes.loc[("flashtrace", "3 tokens"), "change_low"] > 0.05 and shapes["n"].eq(8).all()
    assert shapes.loc[("random", "tokens"), "mean"] == pytest.approx(0.65, abs=0.02)
    masks = tables.mask_table(frame)
    assert set(masks["ranking"]) == {"flashtrace", "random"} and set(masks["mask"]) == {"pad", "word"}
    assert anatomy_plots.rise_by(masks, "mask", curves_of.MASKS, title="Masks").axes


def test_pairs_are_distinguished_where_their_interval_leaves_out_zero():
    rng, rows = np.random.default_rng(1), []
    for i in range(10):
        for method, base in {"a": 0.1, "b": 0.1, "c": 0.9}.items():
            for metric, noise in {"auroc": 0.01, "rise": 5.0}.items():
                rows.append({"sample": f"s{i}", "cell": f"c{i}", "method": method, "metric": metric,
                             "value": base + noise * rng.normal(), "template": None})  # fmt: skip
    found = tables.distinguished(pd.DataFrame(rows), ("auroc", "rise", "mas")).set_index("metric")
    assert found.loc["auroc", ["apart", "pairs", "n"]].tolist()[1:] == [3, 10]
    assert 2 <= found.loc["auroc", "apart"] <= 3 and found.loc["rise", "apart"] == 0
    assert found.loc["mas", "pairs"] == 0 and np.isnan(found.loc["mas", "share"])
    assert anatomy_plots.distinguished(found.reset_index(), title="Apart").axes


def test_a_model_of_another_vocabulary_is_refused(model, monkeypatch):
    other = SimpleNamespace(config=SimpleNamespace(vocab_size=7))
    monkeypatch.setattr(anatomy, "load_model", lambda name, **options: (other, None))
    run = SimpleNamespace(profile=load_profile("smoke"))
    with pytest.raises(ValueError, match="padded_model 'embedded-shallow' has a vocabulary of 7 tokens"):
        anatomy.load_padded(run, model)
    other.config.vocab_size = model.config.vocab_size
    assert anatomy.load_padded(run, model) is other


def test_a_brief_plan_has_the_main_rankings_masked_and_kept(model, sample):
    found = anatomy.plan(list(anatomy.rankings(model, sample, 2)), brief=True)
    assert {curve.mask for curve in found} == {"pad"} and len(found) == len(set(found)) == 8
    assert {curve.ranking for curve in found if curve.keeps_question} == {curve.ranking for curve in found}


def test_both_models_are_compared_on_the_same_curves():
    own = tables.without_draws(made())
    table = tables.padded_table(own, own.assign(rise=own["rise"] - 0.1)).set_index(["model", "ranking"])
    for name in ("flashtrace", "random"):
        change = table.loc[("used to masks", name), "mean"] - table.loc[("as it is", name), "mean"]
        assert change == pytest.approx(-0.1) and table.loc[("as it is", name), "question"] == "masked"
