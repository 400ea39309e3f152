"""What a trace found: the answer, the words it is attributed to, and every way to look at them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .attribution import Attribution, Method, holds_copies
from .files import write_text
from .methods import chosen_method, described
from .model.wrapped import unwrap
from .sample import Sample, Span
from .viewer import cautions, message_shares, trace_json

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from .verification import Verification
    from .viewer.page import EmbeddedPage


class Target(NamedTuple):
    """A passage of the response, by its token range, and the attribution of ``sample.with_output(span)``."""

    span: Span
    attribution: Attribution


@dataclass
class Trace:
    """Attribution of one answer, with the text that it explains.

    Parameters
    ----------
    sample : Sample
        The context, its segments and display tokens; ``metadata["messages"]`` has the tokens of each message.
    attribution : Attribution
        Importance of the tokens of I for the output.
    model_name : str
        Hub id of the model, or the name of its folder.
    targets : list of Target
        The sentences of the response, where they were explained as well.
    model : transformers.PreTrainedModel, optional
        The model that was explained, for `verify`; not written to files.
    """

    sample: Sample
    attribution: Attribution
    model_name: str = ""
    targets: list[Target] = field(default_factory=list)
    model: Any = field(default=None, repr=False, compare=False)

    @property
    def response(self) -> str:
        """The whole response, without the token that ends the turn."""
        (start, stop), answered = self.sample.response, self.sample.segments.output[1]
        return message_shares.without_end(self.sample.tokens[start:stop], answered - start)

    @property
    def format(self) -> str:
        """How reasoning and answer were told apart: the marks of a format (`text.formats`), a label, or neither."""
        return self.sample.metadata.get("format") or "token ranges"

    @property
    def answer(self) -> str:
        """The output O that is explained."""
        return "".join(self.sample.tokens[slice(*self.sample.segments.output)]).strip()

    def top(self, k: int = 10, by: str = "token") -> pd.DataFrame:
        """The ``k`` most important tokens or sentences of the input; the template's own are never among them.

        Nor is a token of white space alone, which no sentence's score counts either.

        Parameters
        ----------
        by : {"token", "sentence"}

        Returns
        -------
        pandas.DataFrame
            ``token, position, score``, highest first; ``position`` counts from the start of the whole context. By
            sentence: ``sentence, start, stop, score, share``, where a share is a part of the magnitudes of all.

        Raises
        ------
        ValueError
            If ``k`` is below 1, or ``by`` is neither.
        """
        if k < 1:
            raise ValueError(f"top needs a count of at least 1, got {k}")
        # stable: the earlier of two equal ones first
        frame = self.to_frame(by).dropna(subset="score").sort_values("score", ascending=False, kind="stable")
        frame = frame[frame["text"].str.strip() != ""].reset_index(drop=True)
        if by == "token":
            return frame.rename(columns={"text": "token", "start": "position"})[["token", "position", "score"]].head(k)
        frame["sentence"], frame["share"] = frame["text"].str.strip(), _shares(frame["score"])
        return frame[["sentence", "start", "stop", "score", "share"]].head(k)

    def compare(self, *methods: Method | str, by: str = "sentence") -> pd.DataFrame:
        """Shares of the input's sentences or tokens by this trace's method and by others, side by side.

        Parameters
        ----------
        *methods : Method or str
            Which else; each attributes the same answer once, and its sentences where one pass gives them all. The page
            and the file have their scores from then on.
        by : {"sentence", "token"}

        Returns
        -------
        pandas.DataFrame
            ``text`` and a column a method, in the order of the text; a contrast's own are differences. In a notebook
            its cells are coloured by ``.style.background_gradient(axis=0)``.
        """
        frame = self.to_frame(by).dropna(subset="score")
        table = frame[["text"]].assign(**{described(self.attribution): _shares(frame["score"])})
        for method in map(chosen_method, methods):
            found = explained(method, self._own_model(), self.sample, [span for span, _ in self.targets])
            name, other = described(found[0]), replace(self, attribution=found[0])
            table[name] = _shares(other.to_frame(by).dropna(subset="score")["score"])
            for own, theirs in zip([self.attribution, *(own for _, own in self.targets)], found, strict=False):
                compared = {"scores": theirs.scores.tolist(), "copies": holds_copies(theirs.metadata)}
                own.metadata.setdefault("compared", {})[name] = compared
        return table.reset_index(drop=True)

    def shares(self, by: str = "message") -> pd.DataFrame:
        """Scores by message or role: see `message_shares.shares`."""
        return message_shares.shares(self.sample, self.attribution, by)

    def cautions(self) -> list[str]:
        """Reasons to doubt these scores: see `viewer.cautions`."""
        return cautions.cautions(self.sample, self.attribution)

    def to_frame(self, by: str = "token") -> pd.DataFrame:
        """Every token of the context, or every sentence of the input that holds words, in the order of the text.

        Parameters
        ----------
        by : {"token", "sentence"}

        Returns
        -------
        pandas.DataFrame
            ``text, start, stop`` (tokens of the context), ``begin, end`` (characters of all tokens' text together),
            ``score`` (NaN outside the input), ``segment``.
        """
        return message_shares.frame(self.sample, self.attribution, by)

    def matrix(self) -> pd.DataFrame:
        """Which step used what: a row a sentence of the response, a column a sentence of the input or the response.

        Returns
        -------
        pandas.DataFrame
            Shares of the first hop's mass; NaN where a column does not stand before the row. What is missing to a sum
            of 1 lies on the template, on white space and on the row itself.

        Raises
        ------
        ValueError
            If the sentences of the response were not explained, or by a method without hops.
        """
        return message_shares.matrix(self.sample, self.targets)

    def verify(self, model: torch.nn.Module | None = None) -> Verification:
        """Remove the sentences that matter most, and random ones, and see what the response loses.

        The verdict stands in the report and on the page from then on. See `verification.verify`.

        Parameters
        ----------
        model : transformers.PreTrainedModel, optional
            Needed where the trace was read from a file.
        """
        from .verification import verify  # slow to import

        ranked = message_shares.sentence_importance(self.sample, self.attribution)
        found = verify(self._own_model(model), self.sample, ranked)
        self.attribution.metadata["verification"] = found.to_dict()
        return found

    def _own_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        if (model := self.model if model is None else model) is None:
            raise ValueError("a trace that was read from a file has no model: set trace.model to the one it explains")
        return unwrap(model)

    @property
    def verification(self) -> Verification | None:
        """What `verify` found; None where it was not asked."""
        from .verification import Verification

        found = self.attribution.metadata.get("verification")
        return None if found is None else Verification(**found)

    def to_dict(self) -> dict[str, Any]:
        """Everything, JSON-ready: ids, tokens, segments, messages, scores, every hop, every sentence."""
        return trace_json.as_dict(self.sample, self.attribution, self.model_name, self.targets)

    def to_json(self, path: str | Path) -> Path:
        """Write `to_dict` to ``path``, atomically, and return it; ``schemas/`` holds the format's JSON schema."""
        return write_text(path, json.dumps(self.to_dict(), ensure_ascii=False) + "\n")

    @classmethod
    def from_json(cls, path: str | Path) -> Trace:
        """Read a file of `to_json`; ValueError where it is no trace, or a damaged one."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON, or brackets without end
            raise ValueError(f"{path} is no JSON file: {error}") from error
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Any) -> Trace:
        """The inverse of `to_dict`; ValueError where the data are no trace, or a damaged one."""
        sample, attribution, model_name, targets = trace_json.from_dict(data)
        return cls(sample, attribution, model_name, [Target(*target) for target in targets])

    def to_html(self, path: str | Path) -> Path:
        """Write a self-contained page for a browser, atomically, and return its path.

        A reader chooses a sentence of the response and sees the scores behind it, by hop or in all.
        """
        return write_text(path, self._page_html())

    def page(self, height: int = 720) -> EmbeddedPage:
        """The page of `to_html` inside a notebook: a cell that ends with it shows the page, ``height`` pixels high."""
        from .viewer.page import EmbeddedPage

        return EmbeddedPage(self._page_html(), f"What the answer is attributed to: {self.answer[:60]}", height)

    def _page_html(self) -> str:
        from .viewer.page import trace_page  # here: a trace that nobody looks at needs no matplotlib

        whole = Target(self.sample.segments.output, self.attribution)
        title, found = f"{described(self.attribution)} · {self.model_name}", self.verification
        return trace_page(self.sample, [whole, *self.targets], title, "" if found is None else str(found))

    def _repr_html_(self) -> str:
        from .viewer.html import token_heatmap

        return token_heatmap(
            self.sample.tokens,
            message_shares.importance(self.sample, self.attribution),
            labels=message_shares.labels(self.sample),
            title=f"{described(self.attribution)}: what the answer is attributed to",
            diverging=bool((self.attribution.scores < 0).any()),
        )

    def __repr__(self) -> str:
        top = ", ".join(repr(token) for token in self.top(5)["token"])
        return f"Trace({described(self.attribution)}: {self.answer[:60]!r} is attributed to {top})"


def explained(method: Method, model: torch.nn.Module, sample: Sample, sentences: list[Span]) -> list[Attribution]:
    """The attribution of the output, and those of the response's sentences where one pass gives them all."""
    if not hasattr(method, "attribute_many"):
        return [method.attribute(model, sample)]
    return method.attribute_many(model, sample, [sample.segments.output, *sentences])


def _shares(scores: pd.Series) -> pd.Series:
    return scores / (scores.abs().sum() or 1.0)
