# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: what does an answer depend on?
#
# > **Question.** To which words of a prompt is the model's answer attributed, directly and through its reasoning?
# >
# > **Answer.** A heatmap and a table say so for any text. In the example (profile laptop) the highest score, 0.036, is
# > on a word of the question, and 37% of the input's score lies on punctuation and white space. Summed by sentence, and
# > under `FlashTrace.best()`, the sentence that holds the answer comes right behind the question. Read the cautions, too.
# >
# > **n.** One prompt. The lines about the task chapters, under "When not to trust it", print their own n.
# >
# > **Figure.** The heatmap under its formula, a few cells down.
#
# Five code cells lead from a model to a heatmap of your own text; the others read it, and say how far to trust it. The embedded model
# needs no network and no GPU. Any other model that transformers can load takes its place:
# `load_model("Qwen/Qwen3-8B", device_map="auto")`.

# %% tags=["parameters"]
profile = "laptop"

# %%
from flashtrace_book.claims import reliability
from flashtrace_book.run import start
from flashtrace_lib import FlashTrace, Trace, files, load_model, trace

run = start(profile)

# %%
model, tokenizer = load_model("embedded", dtype=run.profile.dtype, device_map=run.profile.device_map)
run.record_model(model, "embedded")
run.versions()

# %% [markdown]
# Write your own text here. The model answers. Its text between `<think>` and `</think>` is the reasoning $\mathbf T$; the
# text that follows is the output $\mathbf O$ to be explained. With `<|im_end|>` it ends its turn.

# %%
text = """The train to Lyon leaves from platform 4 at 9:30. The train to Nice leaves from platform 7 at 10:15.
The bus leaves at noon.

From which platform does the train to Nice leave?"""
t = trace(model, tokenizer, text, hops=1)
print(t.response)

# %% [markdown]
# The heatmap. Colour says how much each word of the input $\mathbf I$ matters for the answer, directly and through the
# reasoning:
#
# $$\mathbf s = \mathbf w^{(0)}_{\mathbf I} + \rho_0\, \mathbf w^{(1)}_{\mathbf I}, \qquad
# \rho_0 = \sum_{t \in \mathbf T} w^{(0)}_t .$$
#
# $\mathbf w^{(0)}$ is the distribution of the first hop, which explains $\mathbf O$, over the whole context.
# $\mathbf w^{(1)}$ is that of the second hop, which explains $\mathbf T$. $\rho_0$ is the share of the first hop that
# lies on the reasoning. `02_span_aggregation` derives a hop, `03_recursion` the sum.

# %%
t

# %% [markdown]
# A heatmap of words is for looking closely. For reading, sentences are better: their scores are the sums of their tokens'.
# The question is usually first, since every answer draws on it; what matters is the sentence behind it.

# %%
t.top(3, by="sentence").round(3)

# %% [markdown]
# `FlashTrace.best()` is a setting that found more of the evidence in `12b_better_flashtrace`; the default is the paper's:

# %%
better = trace(model, tokenizer, text, response=t.response, method=FlashTrace.best())
better.top(3, by="sentence").round(3)

# %% [markdown]
# The same as a page to click through: choose a sentence of the response, switch between words and sentences, save the
# scores. It runs in this frame and needs no network.

# %%
better.page()

# %% [markdown]
# The first heatmap in numbers: the highest scores, then each speaker's share. The columns `hop 1` and `hop 2` hold the whole mass
# of $\mathbf w^{(0)}$ and $\mathbf w^{(1)}$, template included; `share` is the input's alone. A token that looks empty
# is a space or a line break.

# %%
t.top(5).round(3)

# %%
t.shares().round(2).astype(object).fillna("–")

# %% [markdown]
# Reasons for caution with this heatmap:

# %%
print(*t.cautions() or ["nothing stands out"], sep="\n")

# %% [markdown]
# ## One that goes wrong
#
# A heatmap of a wrong answer is as clear as one of a right answer. It says where the answer came from, and that is how
# the mistake is found:

# %%
hours = """The library opens at nine. The museum opens at ten. The pool opens at noon.

When does the museum open?"""
wrong = trace(model, tokenizer, hours, method=FlashTrace.best())
print(wrong.response)
wrong.top(3, by="sentence").round(3)

# %% [markdown]
# ## Take it with you
#
# One page to click through: choose a sentence of the response and see, hop by hop, where it came from. The page needs no
# network and holds every number. So does the JSON, which reads back as the same trace.

# %%
folder = files.build_root() / "quickstart"
page, stored = t.to_html(folder / "trace.html"), t.to_json(folder / "trace.json")
print(page.name, stored.name, "| sentences to choose from:", len(t.targets))

# %% [markdown]
# A conversation is a list of messages, `[{"role": "user", "content": "…"}, …]`, tools and earlier answers included. If
# it ends with the assistant's message, that message is the answer to explain. `response="…"` explains an answer that you
# have, and `output="7"` one span of it. From the shell:
#
# ```sh
# python -m flashtrace_lib trace --prompt question.txt --html trace.html
# ```
#
# ## How to read a heatmap
#
# | you see | it means |
# |---|---|
# | a strong word | the states that make up the answer were built from this word's states more than from others' |
# | a strong sentence, one weak word in it | the model often gathers a phrase at its last word, or at the following full stop: read the sentence |
# | a strong question | every answer draws on the words that asked for it: look at what else is strong |
# | strong reasoning in hop 1, pale input | the answer was copied from the reasoning; hop 2 says where that came from |
# | everything pale and even | no word stands out: do not read a story into the largest of many small scores |
#
# ## When not to trust it
#
# * **Mass on punctuation.** A full stop or a line break collects what was said before it. Read the sentence
#   around a strong mark, or trace with `method=FlashTrace(granularity="sentence")`.
# * **The first token.** Models park attention on the first token when they need nothing from it. A first word that is
#   strong for every question is such a sink.
# * **The template.** Special tokens and role names take mass as well. They are never ranked, but their mass is missing
#   from the input; `shares()` shows how much.
# * **A right heatmap of a wrong answer.** Scores say which tokens the answer was made of, not that it is true.
# * **A cause.** Scores do not say that the answer would change without the word. Delete it and ask again.
#
# `t.cautions()` checks the first three for the text at hand. The task chapters measure how often heatmaps of this model
# pass harder tests. The next cell reads their stored tables (it prints nothing until the book has run once):

# %%
print(*reliability.measured(run.profile.name), sep="\n")

# %% [markdown]
# So where a ranking is no better than a random one, its heatmap shows where the model's states come from and no more:
# deleting the strong words would not change the answer more than deleting others.
#
# ## What the paper found, what we found, why they differ
#
# The paper's Figure 3 shows a first hop that lands mostly on the reasoning and a second one that shifts mass to earlier
# reasoning and to the input. Here (profile laptop), too, the first hop puts more mass on the reasoning than on the
# user's text, and the second puts more on the user's text than the first; the rows *reasoning* and *user* of the shares
# above say how much. But the highest scores are not on the words that hold the answer. The paper explains a model of 8
# billion parameters, the book one of 135 million, and one prompt proves nothing: `03_recursion` repeats the comparison
# on many samples.

# %% [markdown]
# ## Audit
#
# The answer is explained again by another route, with all attention maps kept (algorithm 1 as printed) and with this
# target alone, and must agree; so must what was written to the file.

# %% tags=["audit"]
again = FlashTrace(hops=1, attention="cached").attribute(model, t.sample)
agree = again.scores.allclose(t.attribution.scores, atol=1e-5) and Trace.from_json(stored).to_dict() == t.to_dict()
assert agree
print("recomputed and read back, all agree:", agree)
