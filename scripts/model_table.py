"""Which model families FlashTrace is right on: ``python -m scripts.model_table [--write] [NAME ...]``.

Builds a tiny random model of every family of the installed transformers, attributes with FlashTrace, compares with the
definition computed naively (tests/oracles/naive_families.py), and prints what differs from docs/models.md; ``--write``
puts it there. Names of families (or variants) restrict the run.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["HF_HUB_OFFLINE"] = "1"  # a family that would fetch something is one that cannot be built

import torch  # noqa: E402 - after the paths are set
import transformers  # noqa: E402

from flashtrace_lib import Attribution, FlashTrace, Sample, Segments  # noqa: E402
from tests.oracles.naive_families import Unexplained, family_scores  # noqa: E402
from tests.oracles.tiny_families import NAMES, VOCABULARY, NotBuildable, first_line, tiny_random_model  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
TOLERANCE = 1e-4  # of the largest score
SECONDS = 60  # for one family; the slowest takes about two
N_TOKENS = 40  # longer than every window, chunk and top-k of the tiny configurations

RIGHT, REFUSED, UNBUILT, WRONG, CRASH = "right", "refused", "not buildable", "WRONG", "CRASH"
HEADINGS = {
    WRONG: "Accepted, and wrong",
    CRASH: "Neither attributed nor refused",
    RIGHT: "Right",
    REFUSED: "Refused",
    UNBUILT: "Not checked",
}
INTRODUCTION = f"""\
# Model families

`load_model` and every attribution either explain a model rightly or refuse it. This page says which families of
transformers {transformers.__version__} are which, as found by trying all of them: the {{families}} families that its
automatic classes know as causal language models or as models from images and text to text, and some settings of theirs
that are off by default.

Each row is a tiny random model of the family: three to six layers with every kind of layer that the family mixes,
norms, biases and attention far from trivial, and {N_TOKENS} tokens, more than its sliding window, its chunk of
attention or the number of keys that sparse attention picks. Models that also read images are given text alone.

* **Right**: FlashTrace (K = 1: hop 0 explains the output, hop 1 the reasoning) equals the definition computed naively
  in float64. The naive version takes attention maps and values from the family's own eager attention; of a layer of
  linear attention it carries the state with one source at a time, its value alone not zero. It finds the state after
  attention among the states of the forward pass, checks that contributions and residual add up to it, and loops over
  sources, heads and targets (`tests/oracles/naive_families.py`). What depends on a row itself is frozen: attention
  weights, norms, gates, and of linear attention queries, keys, decay, strength and the gain of the activation behind
  its convolution. The gap is the largest difference to it in
  either hop or in the result, relative to the largest score; at most {TOLERANCE:g} counts as right. Recomputed, fused
  and cached attention, many spans at once, and attribution from the passes that generated a response are all compared.
  No trained weights are involved.
* **Refused**: a `ValueError` says why, in float32 and in bfloat16. Nothing is attributed.
* **Not checked**: no tiny model could be made, or its forward pass needs more than text. The check that every model
  passes through when it is loaded still applies.

`python -m scripts.model_table` repeats all of it (about a minute, no network) and lists what differs from this page;
`--write` renews the page. A test does the same, and fails if a family changes its verdict or its reason, or if one is
attributed wrongly.
"""


@dataclass(frozen=True)
class Verdict:
    """What was found of one family.

    Parameters
    ----------
    name : str
        Family, or family and setting.
    kind : str
        One of the keys of `HEADINGS`.
    reason : str
        Why; empty where it is right.
    gap : float
        Largest relative difference to the naive version; NaN where there is none.
    """

    name: str
    kind: str
    reason: str = ""
    gap: float = float("nan")


def verdict(name: str) -> Verdict:
    """Build the family's tiny model, attribute, and compare with the naive version."""
    try:
        with _time_limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _verdict(name)
    except TimeoutError:
        return Verdict(name, UNBUILT, f"takes more than {SECONDS} seconds")


def _verdict(name: str) -> Verdict:
    sample = tiny_sample()
    try:
        model = tiny_random_model(name)
        _check_forward(model, sample.input_ids)
    except NotBuildable as error:
        return Verdict(name, UNBUILT, str(error))
    try:
        found = _attributions(model, sample)
    except ValueError as error:
        return _refused_in_half(name, model, sample) or Verdict(name, REFUSED, essence(error))
    except Exception as error:  # what must not happen, whatever it is
        return Verdict(name, CRASH, first_line(error))
    try:
        expected = family_scores(model, sample)
    except Unexplained as error:
        return Verdict(name, WRONG, f"accepted, but {error}")
    gap = max(_gap(one, expected) for one in found)
    if not gap <= TOLERANCE:
        return Verdict(name, WRONG, f"differs from the naive version by {gap:.2g} of the largest score", gap)
    return Verdict(name, RIGHT, gap=gap)


def tiny_sample() -> Sample:
    """Random tokens with input, reasoning and output, none of them a special token."""
    ids = torch.randint(3, VOCABULARY - 1, (N_TOKENS,), generator=torch.Generator().manual_seed(0))
    return Sample(ids, Segments((1, 24), (25, 30), (31, 36)))


def _check_forward(model: torch.nn.Module, input_ids: torch.Tensor) -> None:
    """One ordinary pass over text alone; raises NotBuildable where the family cannot do that."""
    try:
        with torch.no_grad():
            logits = model(input_ids[None]).logits
    except Exception as error:  # whatever a family's own code raises
        raise NotBuildable(f"no forward pass over text alone: {first_line(error)}") from error
    if not torch.isfinite(logits).all():
        raise NotBuildable("the tiny model's logits are not finite")


def _attributions(model: torch.nn.Module, sample: Sample) -> list[list[torch.Tensor]]:
    """Scores and both hops' distributions, from every way to the same numbers."""
    results = [FlashTrace(attention=way).attribute(model, sample) for way in ("recompute", "fused", "cached")]
    results += FlashTrace().attribute_many(model, sample, [sample.segments.output])
    return [_numbers(result) for result in results]


def _numbers(result: Attribution) -> list[torch.Tensor]:
    return [result.scores, *(hop.scores for hop in result.hops)]


def _refused_in_half(name: str, model: torch.nn.Module, sample: Sample) -> Verdict | None:
    """None if the model is refused in bfloat16 as well, as it must be."""
    try:
        FlashTrace().attribute(model.to(torch.bfloat16), sample)
    except ValueError:
        return None
    except Exception as error:  # what must not happen, whatever it is
        return Verdict(name, CRASH, f"in bfloat16: {first_line(error)}")
    return Verdict(name, WRONG, "refused in float32, accepted in bfloat16")


def _gap(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Largest difference, relative to the largest expected score of each."""
    assert all(right.max() > 0 for right in expected), "nothing is attributed: the sample tests nothing"
    return max(float((x.double() - y).abs().max() / y.max()) for x, y in zip(found, expected, strict=True))


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def essence(error: Exception) -> str:
    """The first sentence of a refusal, without the family's name and without what was measured: gap and worst layer."""
    text = re.sub(r"^unsupported architecture:? ('[^']*'(: |, ))?", "", " ".join(str(error).split()))
    text = re.sub(r" \([^()]*\bgap\b[^()]*\)", "", re.sub(r"^in layer \d+ ", "", text))
    return re.split(r"(?<=[a-z)'])\. ", re.sub(r"^(layer \d+), ", r"\1 ", text))[0].rstrip(".")


def page(verdicts: Iterable[Verdict]) -> str:
    """The whole of docs/models.md."""
    verdicts = list(verdicts)
    parts = [INTRODUCTION.replace("{families}", str(sum("(" not in v.name for v in verdicts)))]
    for kind, heading in HEADINGS.items():
        rows = [v for v in verdicts if v.kind == kind]
        if rows:
            last = "Gap" if kind == RIGHT else "Reason"
            parts.append(f"\n## {heading}: {len(rows)}\n\n| Family | {last} |\n|---|---|\n")
            parts += [f"| {v.name} | {_cell(v)} |\n" for v in rows]
    return "".join(parts)


def _cell(v: Verdict) -> str:
    return f"{v.gap:.0e}" if v.kind == RIGHT else v.reason.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")


def stored(text: str) -> dict[str, tuple[str, str]]:
    """Kind and reason (for right ones, the gap) of every row of a page."""
    kinds, kind, rows = {heading: kind for kind, heading in HEADINGS.items()}, "", {}
    for line in text.splitlines():
        if line.startswith("## "):
            kind = kinds[line[3:].rsplit(":", 1)[0]]
        elif line.startswith("| ") and not line.startswith("| Family |"):
            name, cell = line[2:-2].split(" | ", 1)
            rows[name] = (kind, cell)
    return rows


def differences(verdicts: Iterable[Verdict], text: str) -> list[str]:
    """What of ``verdicts`` a page does not say; gaps of right ones may vary below the tolerance."""
    rows, lines = stored(text), []
    for v in verdicts:
        kind, cell = rows.get(v.name, ("absent", ""))
        if (kind, cell) != (v.kind, _cell(v)) and not kind == v.kind == RIGHT:
            lines.append(f"{v.name}: the page says {kind} ({cell}), found {v.kind} ({_cell(v)})")
    return lines


def main() -> int:
    """Entry point; 1 where the page differs and is not to be written, or a family is attributed wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="families to check; all by default")
    parser.add_argument("--write", action="store_true", help="renew docs/models.md (all families only)")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(NAMES)):
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(NAMES)}")
    if arguments.names and arguments.write:
        parser.error("--write renews the whole page: leave the names out")
    transformers.logging.set_verbosity_error()
    verdicts = [verdict(name) for name in arguments.names or NAMES]
    for v in verdicts if arguments.names else []:
        print(f"{v.name}: {v.kind}, {_cell(v)}")
    lines = differences(verdicts, PAGE.read_text() if PAGE.exists() else "")
    print("\n".join(lines) or f"{PAGE.name} agrees")
    if arguments.write:
        PAGE.write_text(page(verdicts))
    return int((bool(lines) and not arguments.write) or any(v.kind in (WRONG, CRASH) for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
