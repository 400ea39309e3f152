"""Targets within generated code: its last line, or all of it (section 5.2, Table 4)."""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flashtrace_lib.attribution import Attribution, Method
from flashtrace_lib.sample import Sample, Segments, Span
from flashtrace_lib.text.offsets import CharSpan, display_spans, tokens_in

TARGETS = ("last_line", "code")
_FENCE = re.compile(r"```[^\n]*\n(.*?)(?:\n?```|$)", re.DOTALL)


def code_span(sample: Sample) -> Span:
    """Token range of the last fenced block of code in O; all of O where there is none.

    Raises
    ------
    ValueError
        If the sample has no display tokens, or the block is empty.
    """
    text, _ = _output_text(sample)
    blocks = list(_FENCE.finditer(text))
    return _tokens(sample, blocks[-1].span(1) if blocks else (0, len(text)))


def last_line_span(sample: Sample) -> Span:
    """Token range of the last line of the code that is not blank; see `code_span`."""
    text, chars = _output_text(sample)
    first = sample.segments.output[0]
    start, stop = code_span(sample)
    begin = chars[start - first][0]
    code = text[begin : chars[stop - first - 1][1]].rstrip()
    return _tokens(sample, (begin + code.rfind("\n") + 1, begin + len(code)))


def with_target(sample: Sample, target: str) -> Sample:
    """The sample with another O: what is generated before it is T, and the same response is scored.

    Parameters
    ----------
    target : {"last_line", "code"}
        ``"last_line"``: O is the last line of the code, T the reasoning and the code before it (the paper's reading
        of generated code as T ∘ O). ``"code"``: O is all of the code.

    Raises
    ------
    ValueError
        If the target is unknown or the response holds no code.
    """
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}, got {target!r}")
    output = last_line_span(sample) if target == "last_line" else code_span(sample)
    if target == "last_line":
        reasoning = (sample.segments.generated[0], output[0])
    else:
        reasoning = sample.segments.reasoning
    return replace(sample, segments=Segments(sample.segments.prompt, reasoning, output))


@dataclass
class OnCode(Method):
    """A method whose target is a part of the generated code.

    Parameters
    ----------
    method : Method
        What attributes.
    target : {"last_line", "code"}
        See `with_target`.
    """

    method: Method
    target: str

    name: ClassVar[str] = "on_code"

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise ValueError(f"target must be one of {', '.join(TARGETS)}, got {self.target!r}")

    def options(self) -> dict[str, Any]:
        """The method, its options and the target."""
        return {"method": self.method.name, "options": self.method.options(), "target": self.target}

    def _attribute(self, model, sample: Sample) -> Attribution:
        return self.method.attribute(model, with_target(sample, self.target))


def _output_text(sample: Sample) -> tuple[str, list[CharSpan]]:
    """Text of O, and the characters of each of its tokens in it."""
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens: build it with text.build_sample")
    tokens = sample.tokens[slice(*sample.segments.output)]
    return "".join(tokens), display_spans(tokens)


def _tokens(sample: Sample, span: CharSpan) -> Span:
    """Tokens of O that share a character with ``span`` of its text."""
    start, stop = tokens_in(_output_text(sample)[1], span)
    if start == stop:
        raise ValueError(f"sample {sample.id}: the code of its response is empty")
    first = sample.segments.output[0]
    return first + start, first + stop
