"""A trace as plain text for a terminal: the answer, its top tokens, whose words they are, and reasons for doubt."""

import numpy as np

from .methods import described
from .traced import Trace
from .viewer.message_shares import importance, parts
from .viewer.tokens import visible


def report(result: Trace, top: int = 15) -> str:
    """The answer, the top tokens, the scores by message, and the notes on them, as plain text."""
    answer, n = " ".join(visible(result.answer).replace("⏎\n", " ").split()), len(result.targets)
    passes = f"{n} sentence{'s' * (n > 1)} explained as well" if n else "the whole answer only"
    lines = [
        f"{described(result.attribution)} · {result.model_name} · {len(result.sample)} tokens · {passes}",
        f"answer: {answer if len(answer) <= 200 else answer[:199] + '…'}",
        f"reasoning and answer told apart by: {result.format}", "", *_top_lines(result, top), "",
        *_share_lines(result),
    ]  # fmt: skip
    if result.attribution.flow and result.sample.segments.has_reasoning:
        flow = ", ".join(f"{rho:.2f}" for rho in result.attribution.flow)
        lines.append(f"share of each hop's mass on the reasoning: {flow}")
    if result.verification is not None:
        lines.append(f"verification: {result.verification}")
    lines += [f"note: {note}" for note in result.cautions()]
    return "\n".join(lines)


def _top_lines(result: Trace, top: int) -> list[str]:
    """One line per token; the words around it come last, so that no letter can shift a column."""
    frame, total = result.top(top), float(np.nansum(np.abs(importance(result.sample, result.attribution)))) or 1.0
    largest, spans = float(frame["score"].abs().max()) or 1.0, [part.span for part in parts(result.sample)]
    lines = ["rank   score      share  token at             text"]
    for rank, row in enumerate(frame.itertuples(), start=1):
        bar = "█" * round(10 * max(0.0, row.score) / largest)
        # Words of the same message alone: the template's would push them aside.
        start, stop = next(span for span in spans if span[0] <= row.position < span[1])
        text = _in_context(result.sample.tokens[start:stop], row.position - start)
        lines.append(f"{rank:4}  {row.score:9.3g}  {row.score / total:6.1%}  {row.position:8}  {bar:10}  {text}")
    return lines


def _in_context(tokens: list[str], i: int, width: int = 24) -> str:
    """A token in brackets between the letters around it: a full stop alone would say nothing."""
    before, after = "".join(tokens[max(0, i - width) : i]), "".join(tokens[i + 1 : i + 1 + width])
    token = tokens[i].strip(" ") or tokens[i]
    space = " " if token != tokens[i] and tokens[i].startswith(" ") else ""
    shown = (before[-width:] + space, token, after[:width])
    left, middle, right = (visible(text).replace("⏎\n", "⏎") if text else "" for text in shown)
    return f"{left}[{middle or '·'}]{right}"


def _share_lines(result: Trace) -> list[str]:
    """`Trace.shares` as a table in per cent; for a conversation by message and by role."""
    frames = [result.shares()]
    if len(result.sample.metadata.get("messages", [])) > 1:
        frames.append(result.shares("role"))
    lines = []
    for frame in frames:
        first, *others = frame.columns
        lines.append(f"{first:20}" + "".join(f"{name:>10}" for name in others))
        for part, n_tokens, *shares in frame.itertuples(index=False):
            shown = (f"{'–':>10}" if np.isnan(share) else f"{share:10.1%}" for share in shares)
            lines.append(f"{visible(str(part)):20}{n_tokens:10}" + "".join(shown))
    return lines
