"""Every name that the documentation gives exists, and a name that is made up is found."""

from pathlib import Path

import pytest

from tests.support.doc_names import ROOT, problems

CARDS = [ROOT / "data" / name / "README.md" for name in ("adapter", "at2")]
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.[mr]*")), *CARDS]

INVENTED = [
    "`make bok`",
    "`make book COLOUR=red`",
    "`make book PROFILE=huge`",
    "`python -m flashtrace_lib paint`",
    "`python -m flashtrace_lib trace --colour red`",
    "`python -m flashtrace_lib.nothing`",
    "`python -m flashtrace_book.reasoner.accuracy --colour`",
    "`.venv/bin/python -m pytest tests/test_nothing.py`",
    '`pip install -e ".[nothing]"`',
    "`--colourful`",
    "`flashtrace_lib/methods/nothing.py`",
    "`nothing.py`",
    "`notebooks/py/nothing.py`",
    "`build/nothing_of_ours/<profile>/`",
    "`17_dreams`",
    "`fig9_dreams`",
    "`table1_dreams`",
    "`dreams_against_random`",
    "`FLASHTRACE_COLOUR`",
    "`METHOD_LIST`",
    "`Dream`",
    "`ramp_up`",
    "`<dream>…</dream>`",
    "``Dream``",
    "`generation.dream`",
    "`flashtrace_book.reasoner.adapter.dream(model, folder)`",
    "`Method.dream`",
    "`FlashTrace(dreams=2)`",
    "`evaluate(methods, samples, model, dream=store)`",
    '`base="dreams"`',
    "`a b c`",
    "```sh\nmake book    # all\nmake dreams  # none\n```",
    "```sh\ncd x && make dreams\n```",
    "```python\nfrom flashtrace_lib import dream\n```",
    "```python\nfrom flashtrace_lib import trace\n\ntrace(model, tokenizer, prompt, dreams=2)\n```",
    "```python\nfrom flashtrace_lib import FlashTrace\n\natt = FlashTrace()\natt.dreams\n```",
]

REAL = """
`make env TORCH_INDEX=https://x.org/cpu`, `FLASHTRACE_DATA_DIR=… make book PROFILE=real`, `make audit K=3`, `--targets`,
`python -m flashtrace_lib bench --sizes 256+94`, `METHODS`, `Method`, `responses.collect`, `05_ruler`, `ifr.py`,
`methods/__init__.py`, `figures/<profile>/`, `figures/real`, `build/html`, `table1_ruler`, `pilot_modes`, `laptop`,
`evaluate(methods, samples, model, store=store, executor=4)`, `targets="token"`, `FlashTrace(hops=2)`,
`Segments.labels`, `_attribute(model, sample) -> Attribution`,
`pip install -e ".[cluster]"`, `<think>…</think>`.

```python
from flashtrace_lib import FlashTrace, trace

t = trace(model, tokenizer, "What?", hops=2)
t.top(3)
model.generate(ids, anything=1)
FlashTrace().attribute_many(model, sample, [(1, 2)])
att = FlashTrace().attribute(model, sample)
att.scores
```
"""


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_in_the_documentation_exists(path: Path):
    assert not problems(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", INVENTED)
def test_an_invented_name_is_found(text):
    assert len(problems(f"A text with {text}, and more." if "```" not in text else f"\n{text}\n")) == 1


def test_real_names_pass():
    assert not problems(REAL)
