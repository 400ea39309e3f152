# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Claims: what holds, and what does not
#
# > **Question.** Which claims of the paper hold for this model, at these lengths and with these samples?
# >
# > **Answer.** The table of counts under "The verdicts" says how many are reproduced, depend on the metric, are partly
# > reproduced, not reproduced, undecided and not testable (profile laptop). The claims that are not reproduced are named at the end, under the last
# > printed table.
# >
# > **n.** One row per claim; each verdict gives the n of its numbers, and fewer than six samples decide nothing.
# >
# > **Figure.** `scorecard`: a strip for each claim, with the paper's value, ours, the verdict and its checks.
#
# The chapters before this one measure. Here the paper's claims, from the abstract to the appendix, stand beside the
# measurements, one row each. A verdict is not an opinion: every claim has a *rule*, such as "the 95 % interval of the
# paired difference lies below 0", and the verdict follows from the stored tables by that rule. Intervals of means are
# Student's t,
#
# $$\bar x \pm t_{0.975,\, n-1}\, \frac{s}{\sqrt n},$$
#
# and those of paired yes/no answers agree with McNemar's exact test. A verdict reads
#
# * **reproduced**: the rule holds of every number of the claim, over the whole of its interval;
# * **depends on the metric**: the same, but a check of it has the opposite sign;
# * **partly reproduced**: of some of them;
# * **not reproduced**: of none, and of one the opposite holds over its whole interval;
# * **undecided**: the interval is compatible with both, or ends at the bound itself;
# * **not testable at this scale**: fewer than six samples, shorter contexts than the claim speaks of, other hardware;
# * **not measured**: the results that it needs have not been generated under this profile.
#
# "Not reproduced" says what was found with this model, these lengths and these samples. It refutes the paper for
# Qwen3-8B only where the numbers are the paper's own ("Where the paper disagrees with itself").

# %% tags=["parameters"]
profile = "laptop"

# %%
import json

from IPython.display import Markdown

from flashtrace_book import paths
from flashtrace_book.claims import evidence, judge
from flashtrace_book.claims.page import with_the_page
from flashtrace_book.claims.readme import HEADLINES
from flashtrace_book.figures import tables
from flashtrace_book.figures.scorecard import scorecard
from flashtrace_book.run import start

run = start(profile)
run.versions()

# %% [markdown]
# ## Against every method
#
# The chapters compare FlashTrace with IFR and with the random baseline. Claims are about every baseline; so FlashTrace
# minus every other method, on the same samples, from the stored records. A cell counts only where its records give the
# printed means.

# %%
paired, left_out = evidence.paired_with_all(run.profile.name)
if len(paired):
    run.table(paired, "claims_paired", "FlashTrace minus every other method, on the same samples")
print(len(paired), "differences; left out:", "; ".join(left_out) or "nothing")

# %% [markdown]
# ## The verdicts
#
# A claim that compares FlashTrace with other methods is *checked*: the same comparison under other metrics (R-precision,
# AUROC, both in the haystack alone, LDS, RISE, MAS, MAS with the mass spread evenly), without each cell in turn, and against IFR
# with the metric's own target. A check is the paired advantage with its interval, of the method that comes closest. Where the
# rule of a claim holds and a check has the opposite sign over its whole interval, the verdict is *depends on the metric*.

# %%
judged = judge.judge_all([run.profile.name])
tables.styled(judge.counts_by_verdict(judged), "counts", prose=True)

# %%
headlines = [claim for claim in judged if claim["key"] in HEADLINES]
fig = scorecard(headlines, run.profile.name, title=f"Claims that readers ask about first, profile {run.profile.name}")
run.figure(fig, "scorecard", "The paper's claims: its value, ours, the verdict, and checks of the verdict")

# %%
fig = scorecard(judged, run.profile.name, title=f"All claims, profile {run.profile.name}")
run.figure(fig, "scorecard_all", "All claims: the paper's value, ours, the verdict, and checks of the verdict")

# %%
Markdown("\n".join(judge.setting(run.profile.name)))

# %%
shown = judge.verdict_table(judged, run.profile.name)
tables.styled(shown, "claims", prose=True)

# %% [markdown]
# ## Where the paper disagrees with itself
#
# Some claims can be tested against the paper's own numbers, or against the code and the traces that its authors
# published; no model is needed. The floor of MAS as appendix F prints it follows in one line: with the cumulative share
# $c_k \ge k / K$ of scores in descending order and $f_k \ge 0$ the response, $f_k + |f_k - c_k| \ge c_k$, so that its
# mean is at least $(K + 1) / 2K = 0.525$ for $K = 20$.

# %%
tables.styled(judge.verdict_table(judged, judge.OWN), "paper", prose=True)

# %% [markdown]
# ## The page of claims
#
# `figures/claims.md` and `figures/claims.json` hold the verdicts of all profiles that have results, with every rule; README
# shows the first of them. This chapter puts its profile's verdicts there; `python -m flashtrace_lib claims` judges all
# profiles and writes all three.

# %%
written = judge.write(with_the_page(judged)) if run.profile.name not in judge.NO_EVIDENCE else ()
print(written or "a profile that only checks: no page")

# %% [markdown]
# ## What does not hold

# %%
for row in shown[shown["verdict"] == "not reproduced"].itertuples():
    print(f"{row.claim} ({row.paper.partition(':')[0]}; {row.notebook})")

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The chapter named in each row has the reasons. Most are differences of scale: 135 million parameters against eight
# billion, two CPU cores against five A800, inputs of a few hundred tokens, and a few samples where the paper has a
# hundred. So "not testable at this scale" is a frequent verdict, and "not reproduced" is one about this setting. The
# claims that the paper's own numbers contradict do not depend on any of this.
#
# ## Audit
#
# The verdicts once more, from the files as they are on disk, and the differences once more from the stored records; and
# the page that has been written says the same.

# %% tags=["audit"]
again = judge.judge_all([run.profile.name])
differences, _ = evidence.paired_with_all(run.profile.name)
page = json.loads((paths.figures_root() / "claims.json").read_text()) if written else judged
on_page = [claim["verdicts"].get(run.profile.name, claim["verdicts"].get(judge.OWN)) for claim in page]
agree = again == judged and differences.equals(paired) and on_page == [next(iter(c["verdicts"].values())) for c in judged]
assert agree
print("all agree:", agree)
