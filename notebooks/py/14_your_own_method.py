# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write your own method
#
# > **Question.** What does it take to add a method of your own, and to know that it is right?
# >
# > **Answer.** One class with one function, a slow loop that it must equal, and an identity that it must keep. Here that is
# > attention weighted by the length of the value.
# >
# > **n.** Two samples, to show the steps; too few to compare methods.
# >
# > **Figure.** The two heatmaps of one prompt.
#
# From an equation to a row in a table, in about a minute: define a method, check it against a slow loop, run it beside
# FlashTrace, look at it, hand it in. [CONTRIBUTING](../CONTRIBUTING.md) has the same steps as a recipe.
#
# No other chapter defines a method, since what is measured must lie in the library, where it is tested; here the method
# *is* the subject, so it stands in the chapter.

# %% tags=["parameters"]
profile = "book"

# %%
import copy
from dataclasses import dataclass
from typing import ClassVar

import torch

from flashtrace_book.results import rebuilt_sample
from flashtrace_book.run import start
from flashtrace_lib import Attribution, FlashTrace, Method, Sample, Segments, Trace
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.decomposition import check_decomposition
from flashtrace_lib.methods import METHODS, Random

run = start(profile)

# %% [markdown]
# ## The equation
#
# Attention says how much is read from a token, not how much there is to read. Kobayashi et al. (2020) weigh each
# attention weight by the length of the vector that it scales. With $\alpha^{(l,h)}_{ri}$ the attention of row $r$ to
# token $i$ in head $h$ of layer $l$, $v^{(l,h)}_i$ the value of the token and $W^{(l,h)}_O$ the head's part of the
# output projection,
#
# $$s_i = \sum_{l} \sum_{h} \Big( \frac{1}{|R|} \sum_{r \in R} \alpha^{(l,h)}_{ri} \Big)\, \big\lVert W^{(l,h)}_O v^{(l,h)}_i \big\rVert_2 ,
# \qquad i \in \mathbf I,$$
#
# where $R$ are the rows that predict the output $\mathbf O$, each one position before its token. The scores are divided
# by their sum.

# %% [markdown]
# ## The method
#
# A dataclass with a `name` and one function. Its fields are its options, and part of the key of every stored result.
# `capture` runs the model once and keeps attention and values of each layer; `check_decomposition` refuses a model whose
# layers do not add up, so that nobody gets a wrong number silently.


# %%
@dataclass
class ValueNorm(Method):
    """Attention to each token of I, weighted by the length of what it carries (Kobayashi et al. 2020).

    Parameters
    ----------
    weighted : bool
        False leaves the lengths out: the mean attention of all heads.
    """

    weighted: bool = True

    name: ClassVar[str] = "value_norm"

    @torch.no_grad()  # weights of the model take part, and nothing is learned
    def _attribute(self, model: torch.nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        first, last = sample.segments.output
        rows = (first - 1, last - 1)  # a row predicts the token behind it
        layers = capture(model, sample.input_ids, rows, attention="cached").layers
        total = sum(self._of_layer(layer, rows) for layer in layers)  # [N]
        on_input = total[slice(*sample.segments.prompt)]  # [|I|]
        metadata = {"forward_passes": 1, "backward_passes": 0}
        return Attribution(on_input / on_input.sum(), self.name, metadata=metadata)

    def _of_layer(self, layer, rows):
        attention = layer.maps[:, slice(*rows)].mean(1)  # [H, N]
        if not self.weighted:
            return attention.sum(0)
        heads, size = len(attention), layer.v.shape[-1]
        value = layer.v.float().repeat_interleave(heads // len(layer.v), 0)  # [H, N, head_dim]
        w_o = layer.parts.projection().view(heads, size, -1)  # [H, head_dim, d]
        lengths = (value @ w_o).norm(dim=-1)  # [H, N]
        return (attention * lengths).sum(0)


# %% [markdown]
# ## The check
#
# A wrong number looks like any other, so each method is compared with something that is right for another reason: a slow
# loop, a closed form, the authors' code. Here a loop over tokens, layers and heads reads what transformers itself
# returns, and shares no line with the method:


# %%
def slow_scores(model, sample):
    """The equation, term by term."""
    model = copy.deepcopy(model)  # eager attention and hooks are no business of the original
    model.set_attn_implementation("eager")
    layers, values = model.model.layers, []
    for layer in layers:
        layer.self_attn.v_proj.register_forward_hook(lambda _, __, out: values.append(out[0]))
    with torch.no_grad():
        maps = model(sample.input_ids[None], output_attentions=True).attentions
    (first, last), size = sample.segments.output, layers[0].self_attn.head_dim
    scores = []
    for i in range(*sample.segments.prompt):
        score = 0.0
        for layer, alpha, value in zip(layers, maps, values, strict=True):
            carried = value[i].view(-1, size)  # [H_kv, head_dim]
            for h, w_o in enumerate(layer.self_attn.o_proj.weight.detach().split(size, dim=1)):
                length = (w_o @ carried[h * len(carried) // alpha.shape[1]]).norm()
                score += float(alpha[0, h, first - 1 : last - 1, i].mean() * length)
        scores.append(score)
    return torch.tensor(scores) / sum(scores)


# %% [markdown]
# A tiny random model is enough, and takes no time; its heads share keys and values two by two, as those of most models
# do:

# %%
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, initializer_range=0.2,
)  # fmt: skip
tiny = LlamaForCausalLM(config).eval()
toy = Sample(torch.randint(3, 97, (16,)), Segments(prompt=(1, 8), reasoning=(9, 12), output=(12, 15)))
scores = ValueNorm().attribute(tiny, toy).scores
print("equals the loop:", torch.allclose(scores, slow_scores(tiny, toy), atol=1e-5))

# %% [markdown]
# A check that cannot fail is worth nothing. The same comparison must fail for a method that is wrong, here for one that
# forgets the lengths:

# %%
wrong = ValueNorm(weighted=False).attribute(tiny, toy).scores
print("the wrong one does:", torch.allclose(wrong, slow_scores(tiny, toy), atol=1e-5))

# %% [markdown]
# An identity is a second check, without a loop. Before lengths are taken the vectors add up to what the layer's
# attention writes, $\sum_i \sum_h \alpha_{ri} W_O v_i = x^{mid}_r - x^{in}_r$, so nothing of a layer is left out:

# %%
layer = capture(tiny, toy.input_ids, (0, 16), attention="cached", keep_mid=True).layers[1]
mixed = layer.maps @ layer.v.repeat_interleave(2, 0)  # [H, N, head_dim]
written = mixed.transpose(0, 1).flatten(1) @ layer.parts.projection()  # [N, d]
print("adds up:", torch.allclose(written, layer.x_mid - layer.x_in, atol=1e-5))

# %% [markdown]
# ## Register it
#
# One line makes it known by its name to `evaluate`, `trace` and the profiles. Set here it holds for this process alone;
# the line in `flashtrace_lib/methods/__init__.py` makes it lasting.

# %%
METHODS["value_norm"] = ValueNorm
print("value_norm" in METHODS, METHODS["value_norm"]().options())

# %% [markdown]
# ## Beside FlashTrace
#
# Two samples of RULER, chains of four assignments, as the book has stored them: prompt, the model's own answer, evidence.

# %%
model, tokenizer = run.load_model()
stored = run.results("ruler").samples(cell="h4_c1").head(2)
samples = [rebuilt_sample(row) for row in stored.to_dict("records")]
print(len(samples), "samples of", *dict.fromkeys(sample.metadata["cell"] for sample in samples))

# %%
methods = {
    "value_norm": METHODS["value_norm"](),
    "attention alone": ValueNorm(weighted=False),
    "flashtrace": FlashTrace(),
    "random": Random(),
}
frame = evaluate(model, methods, samples, metrics=("recovery", "r_precision", "auroc_haystack"))
frame.pivot_table(index="method", columns="metric", values="value", sort=False).round(1)

# %% [markdown]
# Means of so few samples decide nothing, and stand here without an interval for that reason: they say that the method
# runs, and whether it is worth more samples. With `store=Store(...)` the same call keeps each result, and goes on
# where it was stopped.

# %% [markdown]
# ## Look at it
#
# The end of the first prompt and its question. First the new method, then FlashTrace:

# %%
shown = samples[0]
attributions = {name: methods[name].attribute(model, shown) for name in ("value_norm", "flashtrace")}
Trace(shown, attributions["value_norm"])

# %%
Trace(shown, attributions["flashtrace"])

# %% [markdown]
# Where do both put the mass that they give to the evidence?

# %%
for name, attribution in attributions.items():
    print(f"{name:<12} share on the evidence {float(attribution.scores[shown.gold_in_prompt].sum()):.1f}")

# %% [markdown]
# ## Hand it in
#
# 1. Move the class to `flashtrace_lib/methods/value_norm.py`, and give it its line in `flashtrace_lib/methods/__init__.py`.
# 2. Run `tests/methods/test_methods.py`: on a model built by hand, which copies its answer from one known token, that token must
#    come first; the model must be left bit-identical; the result must have the common form.
# 3. Move the loop into a test of its own, and break the method once to see it fail.
# 4. Add its name to the plans of a profile (`notebooks/flashtrace_book/profiles`): `flashtrace book --profile smoke` is the
#    quick check.
# 5. Add a line to `docs/api.rst`, to the table of `docs/methods.md` and to `CHANGELOG.md`.
