# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What RISE measures
#
# > **Question.** The paper's main metric masks tokens and watches a likelihood fall. What, besides the explanation,
# > moves it?
# >
# > **Answer.** The shape of the ranking, the question and the target, each as much as the method (profile laptop). Shared
# > within sentences, a random ranking's RISE rises by +0.184 on RULER; FlashTrace (0.389) and random tokens (0.507) are less
# > far apart. The ranking that knows the evidence (0.479) is behind FlashTrace while the question may be masked, and in front
# > (0.253 to 0.269) once it is kept. On word problems IFR's RISE falls from 0.611 to 0.317 when it explains the span that RISE
# > scores. What stands in a masked token's place moves the level more than the order; with a model that is used to masks
# > FlashTrace (0.277) and random tokens (0.458) are further apart. Where a masked token becomes one of another valid
# > statement, FlashTrace's lead over random tokens is +0.020 [-0.128, +0.167].
# >
# > **n.** 12 samples, half of RULER and half word problems: n = 6 in each comparison, and no intervals for the word
# > problems, which are of three templates. The last figure has samples of the RULER chapter, and says how many.
# >
# > **Figure.** `rise_shapes`: the same rankings, scattered and in blocks.
#
# `05_ruler` ranks methods by RISE and MAS. Before their numbers are believed, one thing at a time is changed here, at the
# same rankings: what stands in a masked token's place, whether the question may be masked, whether the ranking is
# scattered or in blocks, and whose likelihood is scored.
#
# ## Where the metric comes from
#
# | work | what is scored | denominator | unit | stands in its place |
# |---|---|---|---|---|
# | RISE (Petsiuk et al., BMVC 2018) | probability of a class, area under its curve | none | pixels | grey or blur |
# | MAS (Walker et al., IJCAI 2024) | probability of a class | $s_0 - s_K$, with its sign | pixels | black or blur |
# | CAGE (Walker & Ewetz, 2025) | $\log p$ of the generation | its absolute value | sentences, one a step | end tokens |
# | FlashTrace (2026) | the same | the same | 20 groups of tokens | the padding token |
#
# (From the public code of each; with the absolute value, a sample whose likelihood *rises* under masks is scored as
# perfect. `11_metric_audit` shows what the sign changes.) On the way from images to texts three things changed: tokens
# scattered through a text took the place of patches and of sentences, a special token took the place of blur, and the
# likelihood of hundreds of tokens that of one class. Each is tried below.

# %% tags=["parameters"]
profile = "laptop"

# %%
from flashtrace_book.evaluations import DROP, LDS, evaluate_all
from flashtrace_book.samples import all_samples, ruler_collections

from flashtrace_book.experiments import anatomy_curves, anatomy_tables, rise_anatomy, swap_mask
from flashtrace_book.figures import anatomy_plots, style
from flashtrace_book.run import start
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.metrics.intervals import interval_text
from flashtrace_lib.store import Store

run = start(profile)
run.versions()

# %%
model, tokenizer = run.load_model()
style.use_style()
samples = rise_anatomy.plan_samples(run, model, tokenizer)
print(len(samples), "samples:", ", ".join(sample.id for sample in samples))

# %% [markdown]
# The curves. With $\pi$ the order of a ranking, $M_k$ its first $k$ of $K$ groups, and $X$ the tokens whose likelihood
# is followed,
#
# $$s_k = \log p(X \mid \mathbf I \text{ without } M_k), \qquad
# r_k = \mathrm{clip}\Big(\frac{\min_{j \le k} s_j - s_K}{s_0 - s_K},\, 0,\, 1\Big), \qquad
# \text{RISE} = \frac{1}{K} \sum_{k=1}^{K} \frac{r_{k-1} + r_k}{2} .$$
#
# The paper takes $X = \mathbf T \cup \mathbf O$ and the padding token. Lower is better.

# %%
frame = anatomy_tables.without_draws(rise_anatomy.measure(run, model, tokenizer, samples))
run.table(frame, "rise_curves", "RISE of every ranking, mask, cut and scored span, sample by sample")
print(frame["ranking"].nunique(), "rankings,", frame["mask"].nunique(), "masks,", frame["sample"].nunique(), "samples")

# %% [markdown]
# ## Scattered or in blocks?
#
# The same ranking, smoothed over three and seven neighbouring tokens, and with every token given the mean of its
# sentence. Smoothing adds no knowledge: it takes some away. If RISE measured what the ranking knows, it would get worse.
# A *random* ranking knows nothing in any shape, so whatever it gains or loses is the shape's.

# %%
shapes = anatomy_tables.shape_table(frame)
run.table(shapes, "rise_shapes", "RISE of FlashTrace and of a random ranking, scattered and in blocks")
fig = anatomy_plots.rise_by(shapes, "shape", {name: name for name in anatomy_tables.SHAPES}, title="RISE by shape of the ranking")
run.figure(fig, "rise_shapes", "RISE of rankings that are scattered, or in blocks", n=len(samples))

# %%
for row in shapes[shapes["shape"] != "tokens"].itertuples():
    print(f"{row.group}, {row.ranking} in {row.shape}: RISE {row.mean:.3f}, {row.change:+.3f} "
          f"{interval_text(row.change_low, row.change_high)}, n = {row.n}")

# %% [markdown]
# On RULER FlashTrace loses by blocks, and so does the ranking that knows nothing, by twice as much. What the blocks cost is
# not knowledge: a scattered mask leaves no sentence whole, a block leaves all others as they were.
#
# ## What stands in a masked token's place?
#
# The model never saw its padding token within a text. Alternatives: a frequent word, another special token, tokens that
# no later position attends to (*hidden*), and tokens taken out (*deleted*). *Evidence first* is the order that the
# generator of the problems knows to be right: first the tokens of the evidence, then the others at random.

# %%
masks = anatomy_tables.mask_table(frame)
run.table(masks, "rise_masks", "RISE of the main rankings by what stands in a masked token's place")
fig = anatomy_plots.rise_by(masks, "mask", anatomy_curves.MASKS, title="RISE by what stands in a masked token's place")
run.figure(fig, "rise_masks", "RISE by what stands in a masked token's place", n=len(samples))

# %%
agreement = anatomy_tables.mask_agreement(masks)
run.table(agreement, "rise_mask_agreement", "Order of the rankings under each mask: rank correlation with the padding token's")
agreement.round(2)

# %% [markdown]
# The padding token gives the highest values on RULER, up to twice those of deletion, so values under different masks
# must not be compared. The order of these four rankings hardly changes there. The six word problems are of three
# templates and so have no intervals; in their means the random tokens are lowest under every mask.
#
# ## The generator's swap as a mask
#
# All of these masks leave a text that nobody writes. The generator of the RULER problems can do better: it knows another
# valid statement for each needle and assignment, and another sentence for each of the haystack. Where the other has as
# many tokens, a masked token becomes the one at its place in the other. The end of the curve is then a whole problem with
# another answer, and the padding token is held against it over the same tokens; the rest, the question above all, stays.
# Word problems have no generator that could swap every sentence.

# %%
swaps = swap_mask.measure(run, model, tokenizer, samples)
swapped = anatomy_tables.swap_table(swaps)
run.table(swapped, "rise_swaps", "RISE with padding and with another valid statement in a masked token's place, RULER")
fig = anatomy_plots.rise_by(swapped, "mask", swap_mask.MASKS, title="RISE over what can be swapped")
run.figure(fig, "rise_swaps", "RISE with padding, and with another valid statement, in a masked token's place", n=swaps["sample"].nunique())

# %%
shares, falls = swaps.groupby("sample")["share"].first(), swaps.groupby("mask")["fall"].median()
print(f"of the haystack {shares.min():.2f} to {shares.max():.2f} can be swapped; median fall of log p(T ∪ O): "
      f"{falls['pad']:.0f} nats with padding, {falls['swap']:.0f} with swaps")
for row in swapped[swapped["ranking"] != "random"].itertuples():
    print(f"{swap_mask.MASKS[row.mask]}, {row.ranking}: RISE {row.mean:.3f}, random tokens minus it {row.behind:+.3f} "
          f"{interval_text(row.behind_low, row.behind_high)}, n = {row.n}")

# %% [markdown]
# Over these tokens FlashTrace is not distinguished from random tokens under either mask; with padding the ranking that knows
# the evidence is. Random *sentences* are far behind under both. So the cost of blocks is not the padding token's doing: a
# scattered swap breaks each statement that it touches, too, and a whole swapped sentence only says something else. A swap
# does not save RISE on scattered tokens; swapping whole facts does (`11_metric_audit` takes that as its truth).
#
# ## The question, and the second half of the curve
#
# A prompt without its question destroys any answer, so a ranking that puts the question first wins a large part of the
# curve before it has found anything. With the question *kept*, only the haystack is masked. And where half of the input
# is gone the text is no text: *half* stops there.

# %%
questions = anatomy_tables.question_table(frame)
run.table(questions, "rise_question", "RISE with the question masked or kept, to the end or to half")
wide = questions.pivot_table(index="ranking", columns=["group", "question", "cut"], values="mean", sort=False)
wide.round(3)

# %% [markdown]
# With the question masked, a ranking that knows the evidence is behind FlashTrace on RULER: it leaves the question for
# later, and FlashTrace ranks the question high. With the question kept, it is in front. The lead of FlashTrace over
# random tokens is half as large then. So a part of what RISE rewards on RULER is *masking the question early*.
#
# ## Whose likelihood?
#
# A method explains $\mathbf O$; RISE scores $\mathbf T \cup \mathbf O$. Rows: the span that is explained. Columns: the
# span that is scored. If the target did not matter, the rows would be alike.

# %%
targets = anatomy_tables.target_table(frame)
run.table(targets, "rise_targets", "RISE by the span that is explained and the span that is scored")
of = dict(iter(targets.groupby("group")))
fig = anatomy_plots.rise_by_target(of["RULER"], rise_anatomy.SCORED, title="RISE by target, RULER")
run.figure(fig, "rise_targets", "RISE on RULER by the span that is explained and the span that is scored", n=int(of["RULER"]["n"].max()))

# %%
problems = of["word problems"]
fig = anatomy_plots.rise_by_target(problems, rise_anatomy.SCORED, title="RISE by target, word problems")
run.figure(fig, "rise_targets_problems", "RISE on word problems by the span that is explained and the span that is scored", n=int(problems["n"].max()))

# %%
for row in targets[(targets["scored"] == "T ∪ O") & (targets["explained"] != "T")].itertuples():
    print(f"{row.group}, {row.method} explaining {row.explained}: RISE {row.mean:.3f} {interval_text(row.low, row.high)}, n = {row.n}")

# %% [markdown]
# ## A model that is used to masks
#
# The masks are outside of what the model was trained on. The same adapter, trained for 60 more steps on problems in
# which a random share of the user's tokens is the padding token (`training/padded.yaml`, ten minutes), explains the same
# responses with its own states, and its likelihood is followed:

# %%
padded_model = rise_anatomy.load_padded(run, model)
padded = anatomy_tables.without_draws(rise_anatomy.measure(run, padded_model, tokenizer, samples, brief=True))
used_to_masks = anatomy_tables.padded_table(frame, padded)
run.table(used_to_masks, "rise_used_to_masks", "RISE by the model as it is, and after training on masked prompts")
used_to_masks.pivot_table(index="ranking", columns=["group", "question", "model"], values="mean", sort=False).round(3).T

# %% [markdown]
# In the means the distance between FlashTrace and random tokens grows by half on RULER, and the ranking that knows the
# evidence moves from near the random one towards FlashTrace. On word problems the lead of the random tokens shrinks from 0.09
# to 0.03. So RISE seems to depend on how a model takes a token that it never saw there. The change itself has no interval
# here, and 60 further steps on whole prompts, which would tell masks from more training, were not taken.
#
# ## Which metrics distinguish methods?
#
# The stored evaluation of `05_ruler`: of all pairs of methods, how many does each metric distinguish, by a paired 95 %
# interval that leaves out zero? Few samples distinguish few pairs, so n stands beside each metric, and metrics of unequal
# n are not to be compared. To distinguish is not to be right: `11_metric_audit` holds every metric against facts that the
# generator swaps.

# %%
METRICS = ("recovery", "r_precision", "auroc", "auroc_haystack", "mrr_haystack", "sentence_hit_haystack", "rise", "mas", *LDS, *DROP)
cells = ruler_collections(run, model, tokenizer)
store = Store(run.store("ruler"))
values = evaluate_all(run, all_samples(cells), model, store, tokenizer=tokenizer, scorer=Scorer(model, precision="auto"))
values = values[~values["method"].str.startswith(("random", "position"))]
apart = anatomy_tables.distinguished(values, METRICS)
run.table(apart, "rise_distinguished", "Pairs of methods that each metric distinguishes, on the samples of the RULER chapter")
fig = anatomy_plots.distinguished(apart, title="Which metrics distinguish methods?")
run.figure(fig, "rise_distinguished", "Pairs of methods that each metric distinguishes", n=int(apart["n"].max()))

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper reports RISE and MAS to three digits and tries no other mask, shape or target. Here, with one model of 135
# million parameters, prompts of 256 to 384 tokens and six groups of tokens per curve, RISE tells methods apart as often
# as recovery does, but it also tells apart rankings that know nothing: scattered random tokens from random sentences.
#
# *Why a random ranking wins on word problems.* The question is not the reason: where it is kept, random tokens are
# still ahead of FlashTrace. The shape is one: scattered masks hurt every sentence at once, and in the shape of
# sentences the random ranking is behind FlashTrace in the mean. The target is the other: RISE follows $\mathbf T \cup \mathbf O$, whose
# tokens are mostly reasoning, and once FlashTrace and IFR explain that span, both are below the random tokens. And
# to the model that is used to masks, the random ranking is hardly ahead in the mean.
#
# The paper's prompts are four times as long, and its curves have 20 steps; how far this carries over to them is not
# measured here.
#
# > **What a reader can do.** Compare methods only at the same shape: tokens with tokens, sentences with sentences, and a
# > random baseline of the same shape beside them. Keep the question, or say how much of the gain is the question's. Explain
# > the span that the metric scores, or score the span that is explained. Read a metric that knows the evidence (R-precision,
# > AUROC within the haystack) beside it; where the two disagree, RISE has rewarded one of the things above.

# %% [markdown]
# ## Audit
#
# A stored curve, the first of the sample that the profile's seed names, is computed again from the model.

# %% tags=["audit"]
chosen = samples[run.profile.seed % len(samples)]
stored = rise_anatomy.stored_record(run.profile, model, Store(run.store("rise_anatomy")), chosen)
what, old, new, agrees = rise_anatomy.compare(run.profile, model, tokenizer, chosen, stored)
assert agrees, (what, old, new)
print(chosen.id, what, "agree:", agrees)
