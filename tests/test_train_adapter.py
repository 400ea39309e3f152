"""The one file that trains an adapter: it learns, and a killed run goes on to the same weights."""

import pytest
from safetensors.torch import load_file

from scripts.train_adapter import Settings, ruler_problem, train

SMALL = Settings(
    model="embedded-shallow", cells=("mq_q2",), shortest=150, longest=170, steps=3, batch=1, rank=2, checkpoint_every=1
)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path):
    whole, drawn = load_file(train(tmp_path / "whole", SMALL) / "adapter_model.safetensors"), []

    def killed(rng, tokenizer, settings):
        drawn.append(1)
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return ruler_problem(rng, tokenizer, settings)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "part", SMALL, killed)
    with pytest.raises(ValueError, match="belongs to other settings"):
        train(tmp_path / "part", Settings(model="embedded-shallow", steps=5))
    resumed = load_file(train(tmp_path / "part", SMALL) / "adapter_model.safetensors")
    assert whole.keys() == resumed.keys() and all(whole[name].allclose(resumed[name], atol=1e-6) for name in whole)
    assert any(tensor.abs().max() > 0 for name, tensor in whole.items() if "lora_B" in name)
    card = (tmp_path / "part" / "README.md").read_text()
    assert "SHA-256 of the weights" in card and "| steps | 3 |" in card
