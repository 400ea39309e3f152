"""AttnLRP against the implementation of its authors (package lxt, a test's dependency only).

In a process of its own: that package patches the classes of transformers for good. Its catalogue of models asks for
packages that are not installed here, so it is left out and the four rules of the Llama entry are set by hand.
"""

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.environment import ROOT

PROGRAM = """
import json, sys, types, warnings
sys.path.insert(0, sys.argv[1])
warnings.filterwarnings("ignore")
import torch
from tests.oracles.tiny import tiny_model, tiny_sample
from flashtrace_lib.methods import AttnLRP

model, samples = tiny_model(), [tiny_sample(seed=seed) for seed in range(3)]
ours = [AttnLRP().attribute(model, sample).metadata for sample in samples]

catalogue = types.ModuleType("lxt.efficient.models")
catalogue.get_default_map = None
sys.modules["lxt.efficient.models"] = catalogue
from lxt.efficient import patches
from transformers.models.llama import modeling_llama

done = [
    patches.patch_method(patches.gated_mlp_forward, modeling_llama.LlamaMLP),
    patches.patch_method(patches.rms_norm_forward, modeling_llama.LlamaRMSNorm),
]
model.config._attn_implementation = "eager"
eager = patches.wrap_attention_forward(modeling_llama.eager_attention_forward)
modeling_llama.eager_attention_forward = eager
modeling_llama.ALL_ATTENTION_FUNCTIONS = types.SimpleNamespace(get_interface=lambda *names: eager)

theirs = []
for sample in samples:
    start, stop = sample.segments.output
    embeddings = model.get_input_embeddings()(sample.input_ids[None, : stop - 1]).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits[0, start - 1 : stop - 1]
    logits.gather(1, sample.input_ids[start:stop, None]).sum().backward()
    relevance = (embeddings.grad * embeddings).sum(-1)[0]
    theirs.append(relevance[slice(*sample.segments.prompt)].tolist())
print(json.dumps({"patched": done, "ours": [metadata["signed"] for metadata in ours], "theirs": theirs,
                  "lengths": [stop - start for start, stop in (s.segments.output for s in samples)]}))
"""


@pytest.mark.skipif(importlib.util.find_spec("lxt") is None, reason="lxt is not installed")
def test_attnlrp_equals_the_authors_implementation():
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(ROOT)], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found["patched"])
    for ours, theirs, length in zip(found["ours"], found["theirs"], found["lengths"], strict=True):
        # ours is the mean over the tokens of O (appendix D.1), theirs their sum
        assert [value * length for value in ours] == pytest.approx(theirs, abs=1e-5 * max(map(abs, theirs)))
