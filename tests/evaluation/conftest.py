"""Model and samples of the evaluations."""

import pytest

from tests.oracles.embedding import CALLS
from tests.oracles.tiny import tiny_model, tiny_sample


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture
def samples():
    CALLS.clear()
    shape = dict(n=60, prompt=(2, 42), reasoning=(44, 50), output=(52, 58))
    made = [tiny_sample(**shape, seed=seed) for seed in range(3)]
    made[2].gold = None
    made[2].metadata["cell"] = "no_gold"
    return made
