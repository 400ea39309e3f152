"""The training of AT2: ablations and effects one by one, a planted head is found, gradients, resumption, the card."""

import json

import numpy as np
import pytest
import torch

from flashtrace_book.reasoner import at2, at2_features
from flashtrace_book.reasoner.at2 import card, correlations, design, fit, folds, judged, lds
from flashtrace_book.reasoner.at2_features import measured, training_samples
from flashtrace_lib.load import load_model
from flashtrace_lib.methods import AT2
from flashtrace_lib.methods.at2 import committed, is_of, read_weights
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.synthetic.splits import in_split
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_reasoner import load_tokenizer, tiny


def sample_with_sentences():
    sample = tiny_sample(24, prompt=(1, 13), reasoning=(14, 17), output=(19, 22))  # template tokens between T and O
    sample.sentences = [(1, 3), (3, 4), (4, 7), (7, 9), (9, 11), (11, 13), (14, 17), (19, 22)]
    return sample


def synthetic(n_examples=12, n_ablations=32, sources=9, heads=20, noise=0.0, only=7):
    """Records in which one head's attention alone decides the effect of an ablation."""
    generator = torch.Generator().manual_seed(0)
    records = []
    for _ in range(n_examples):
        features = torch.rand(sources, heads, generator=generator, dtype=torch.float64)
        masks = torch.rand(n_ablations, sources, generator=generator) < 0.5
        effects = 30 * masks.double() @ features[:, only] - 200
        effects += noise * torch.randn(n_ablations, generator=generator, dtype=torch.float64)
        records.append({"features": features.tolist(), "masks": masks.tolist(), "effects": effects.tolist()})
    return records


def test_an_effect_is_the_logit_scaled_probability_of_the_masked_context(tmp_path):
    model, sample = tiny_model(), sample_with_sentences()
    (record,) = measured(model, model, [sample], 5, 3, Store(tmp_path / "examples"))
    (other,) = measured(model, model, [sample], 5, 4, Store(tmp_path / "examples"))
    assert np.shape(record["masks"]) == (5, 6) and record["masks"] != other["masks"]
    for row, effect in zip(record["masks"], record["effects"], strict=True):
        ids = sample.input_ids.clone()
        for (start, stop), keep in zip(sample.sentences, row, strict=False):
            for i in range(start, stop):
                ids[i] = ids[i] if keep else sample.mask_token_id
        with torch.no_grad():
            logits = model(ids[None]).logits[0].double()
        total = 0.0
        for i in [14, 15, 16, 19, 20, 21]:
            z, target = logits[i - 1], sample.input_ids[i]
            total += z[target] - torch.cat([z[:target], z[target + 1 :]]).logsumexp(0)
        assert effect == pytest.approx(total.item(), rel=1e-4)


def test_the_features_of_a_source_are_its_attention_by_head(tmp_path):
    model, sample = tiny_model(), sample_with_sentences()
    (record,) = measured(model, model, [sample], 4, 0, Store(tmp_path / "examples"))
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        maps = torch.cat(model(sample.input_ids[None], output_attentions=True).attentions)  # [L, H, N, N]
    rows = [i - 1 for i in (14, 15, 16, 19, 20, 21)]
    expected = [[head[rows, a:b].sum(1).mean() for head in maps.flatten(0, 1)] for a, b in sample.sources]
    torch.testing.assert_close(torch.tensor(record["features"]), torch.tensor(expected), atol=1e-6, rtol=1e-5)
    assert len(record["masks"]) == len(record["effects"]) == 4 and record["cell"] == "tiny"


def test_a_killed_run_continues_from_what_is_stored(tmp_path, monkeypatch):
    model, sample = tiny_model(), sample_with_sentences()
    (first,) = measured(model, model, [sample], 4, 0, Store(tmp_path / "examples"))
    monkeypatch.setattr(at2_features, "_measure", lambda *_: pytest.fail("measured again"))
    assert list(measured(model, model, [sample], 4, 0, Store(tmp_path / "examples"))) == [first]
    with pytest.raises(pytest.fail.Exception):  # other masks are another record
        list(measured(model, model, [sample], 4, 1, Store(tmp_path / "examples")))


def test_the_design_is_a_sum_over_the_sources_that_are_kept():
    records = synthetic(3)
    kept, effects = design(records)
    for e, record in enumerate(records):
        for a, mask in enumerate(record["masks"]):
            rows = [row for row, keep in zip(record["features"], mask, strict=True) if keep]
            expected = torch.tensor(rows, dtype=torch.float64).view(-1, 20).sum(0)
            torch.testing.assert_close(kept[e, a], expected)
    assert effects.tolist() == [record["effects"] for record in records]


def test_correlations_are_pearsons_and_their_gradient_is_that_of_finite_differences():
    kept, effects = design(synthetic(3, noise=5.0))
    weights = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found = correlations(weights, kept, effects)
    for predicted, effect, value in zip(kept @ weights, effects, found, strict=True):
        assert value.item() == pytest.approx(torch.corrcoef(torch.stack([predicted, effect]))[0, 1].item())
    found.mean().backward()
    step = 1e-6
    for i in range(20):
        up, down = weights.detach().clone(), weights.detach().clone()
        up[i] += step
        down[i] -= step
        slope = correlations(up, kept, effects).mean() - correlations(down, kept, effects).mean()
        assert weights.grad[i].item() == pytest.approx(slope.item() / (2 * step), abs=1e-7)


def test_a_head_that_alone_decides_is_found():
    kept, effects = design(synthetic(noise=1.0))
    weights = fit(kept, effects)
    assert weights.abs().argmax() == 7 and weights[7] == 1
    assert weights.abs().sum() - 1 < 2.0  # nineteen others together, though none of them says anything
    held_out = design(synthetic(16, noise=1.0)[12:])
    learned, uniform = (judged([(chosen, *held_out)]) for chosen in (weights, torch.ones_like(weights)))
    assert learned["loss"] < -0.95 < uniform["loss"] and learned["lds"] > 0.95 > uniform["lds"]
    assert learned["n"] == 4
    assert torch.equal(weights, fit(kept, effects))


def test_a_head_of_little_attention_is_found_as_well():
    records = synthetic(noise=1.0)
    for record in records:
        for row in record["features"]:
            row[7] *= 1e-3
    kept, effects = design(records)
    assert -correlations(fit(kept, effects), kept, effects).mean() < -0.95


def test_no_example_is_judged_by_weights_that_saw_it(monkeypatch):
    kept, effects = design(synthetic(12))
    monkeypatch.setattr(at2, "fit", lambda kept, effects: effects)  # what a fit saw, in place of its weights
    parts = list(folds(kept, effects))
    assert sorted(row for *_, held_out in parts for row in held_out.tolist()) == sorted(effects.tolist())
    for seen, _, held_out in parts:
        assert len(seen) + len(held_out) == 12
        assert not {tuple(row) for row in seen.tolist()} & {tuple(row) for row in held_out.tolist()}


def test_lds_is_the_rank_correlation_of_each_example():
    kept, effects = design(synthetic(2))
    weights = torch.zeros(20, dtype=torch.float64)
    weights[7] = 1
    assert lds(weights, kept, effects) == pytest.approx([1, 1])
    assert lds(weights, kept, -(effects.exp())) == pytest.approx([-1, -1])


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    return tokenizer


def test_examples_are_of_the_training_split_and_take_turns(tokenizer):
    samples = training_samples(tiny(), tokenizer, 20, 0, "reference")
    assert len(samples) == 20
    cells = [sample.metadata["cell"] for sample in samples]
    assert cells[:10] == list(at2_features.TASK_LENGTHS) == cells[10:]
    assert all(len(sample.sources) >= 6 and sample.segments.has_reasoning for sample in samples)
    for sample in samples[:10:9]:  # needles and chains: what is asked for by name is of the training split
        text = tokenizer.decode(sample.prompt_ids)
        if sample.metadata["cell"] == "mq_q2":
            asked = text.split("numbers for ")[-1].split(" mentioned")[0].replace(", and ", " and ").split(" and ")
            assert len(asked) == 2 and all(in_split(name, "train") for name in asked)
    with pytest.raises(ValueError, match="own, reference"):
        training_samples(tiny(), tokenizer, 1, 0, "borrowed")


def test_the_command_writes_weights_that_the_method_takes_and_a_card(tmp_path, monkeypatch, capsys, tokenizer):
    model = tiny()
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setattr(at2, "load_model", lambda name, **_: (model, tokenizer))
    out = tmp_path / "at2" / "tiny.json"
    arguments = ["--model", "tiny", "--masks", "4", "--responses", "reference", "--out", str(out)]
    assert at2.main([*arguments, "--examples", "10"]) == 0
    found = read_weights(out)
    assert [len(row) for row in found["weights"]] == [4, 4]
    assert max(abs(x) for row in found["weights"] for x in row) == 1
    sample = training_samples(model, tokenizer, 1, 5, "reference")[0]
    assert AT2(out).attribute(model, sample).scores.sum().item() == pytest.approx(1)
    text = out.with_name("README.md").read_text()
    assert text == card([json.loads(out.read_text())])
    for part in ("`data/at2/tiny.json`", "| learned, on held-out examples | 10 |", "--responses reference"):
        assert part in text
    before = out.read_bytes()
    assert at2.main([*arguments, "--examples", "10"]) == 0 and out.read_bytes() == before  # from the store
    assert at2.main([*arguments, "--examples", "2"]) == 2 and "ask for more" in capsys.readouterr().err
    assert at2.main([*arguments, "--examples", "0"]) == 2


def test_the_committed_card_is_that_of_the_committed_weights():
    files = committed()
    assert [path.name for path in files] == ["adapter_short.json", "embedded.json"]
    assert files[0].with_name("README.md").read_text() == card(map(read_weights, files))


@pytest.mark.slow
def test_the_committed_weights_are_the_reasoners_and_not_its_base_models():
    base = load_model("embedded-base")[0]
    for weights in map(read_weights, committed()):
        assert [len(row) for row in weights["weights"]] == [9] * 30
        model = load_model(weights["model"], dtype="bfloat16")[0]
        assert [is_of(other, model) for other in map(read_weights, committed())].count(True) == 1
        assert is_of(weights, model) and not is_of(weights, base)
