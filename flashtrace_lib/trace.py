"""Explain one answer of a model: from a prompt in words to a heatmap, in one call."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from .attribution import Attribution, Method, holds_copies
from .contrast import contrasted
from .estimate import estimate, warn_if_short
from .files import write_text
from .methods import chosen_method, described
from .model.answer import NotExplained, check_fits, generate_answer
from .model.context import vocabulary_size
from .model.generate import is_finished
from .model.wrapped import unwrap
from .names import check_order, did_you_mean
from .sample import Sample, Span
from .text.build_sample import build_sample
from .text.chat_template import Messages, conversation_and_response, render_prompt
from .text.locate import Locator
from .text.offsets import checked_ids, decode, is_own_spelling
from .text.sentences import response_sentences
from .viewer import cautions, message_shares, trace_json

if TYPE_CHECKING:
    import pandas as pd

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
        return message_shares.without_end(self.sample.tokens[slice(*self.sample.response)])

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

        Nor is a token of white space alone.

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
            found = _explained(method, self._own_model(), self.sample, [span for span, _ in self.targets])
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
            of 1 lies on the template and on the row itself.

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
            raise ValueError("a trace that was read from a file has no model: give it, as in verify(model)")
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
        write_text(path, json.dumps(self.to_dict(), ensure_ascii=False) + "\n")
        return Path(path)

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
        write_text(path, self._page_html())
        return Path(path)

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


def trace(
    model: torch.nn.Module,
    tokenizer: Any,
    prompt: str | Messages,
    response: str | Sequence[int] | torch.Tensor | None = None,
    output: Locator = "auto",
    reasoning: Locator = "auto",
    hops: int | None = None,
    max_new_tokens: int = 512,
    *,
    input: Locator = "auto",
    method: Method | str | None = None,
    contrast: str | None = None,
    estimated: bool = False,
    **rendering: Any,
) -> Trace:
    r"""Attribute a model's answer to the words of its prompt.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model; it may be compiled, parallel or have a value head.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its fast tokenizer; its chat template is applied where it has one.
    prompt : str or list of messages
        The user's words, or a conversation: ``{"role": …, "content": …}`` each, tool calls as the template takes
        them. All of its messages are the input I, those of the assistant included; the template's tokens between them
        are never ranked. Where a transcript ends with the assistant's message, that is the response.
    response : str or token ids, optional
        The answer to explain. Default: the model generates it greedily. Ids are explained as they are, whether or not
        the tokenizer would choose them for their text; `Trace.cautions` says where they are others.
    output, reasoning : str, compiled pattern, (int, int) or None
        The passages O and T of the response: a substring (its last occurrence), a pattern (its last match, or the
        first group of it), either with the number of a place (``("7", 2)``: the second 7), a token range of the whole
        context, or ``"auto"``: what the response's own marks say (`text.locate_segments`); `Trace.format` names them,
        and `Trace.cautions` what they leave open. ``reasoning=None``: none.
    hops : int, optional
        K, the number of recursive hops through T. Default: the method's own, 1 for FlashTrace.
    max_new_tokens : int
        Longest response to generate, tokens.
    input : str, compiled pattern or (int, int)
        The passage of the prompt whose tokens are ranked, in the same way; what stands beside it is context. Default:
        all messages.
    method : Method or str, optional
        A name of `methods.METHODS` is the method with its default options. Default: `methods.DEFAULT`, the setting that
        was right most often; ``"flashtrace"`` is the paper's, and the default where ``hops`` or ``contrast`` is given,
        since contrasts of the other do not point at the right sentence. Methods that can
        explain many passages in one pass explain every sentence of the response as well, for a reader of
        `Trace.to_html` to choose from.
    contrast : str, optional
        Another answer in the output's place, ``contrast="platform 4"``: the scores are those of the output minus those
        of this one after the same prompt and reasoning, so that they have signs. Sentences are not explained.
    estimated : bool
        Print first, on the standard error, what seconds and memory the attribution will take (`estimate.estimate`).
        Whether that memory is free is checked in any case; a `RuntimeWarning` says where it is not.
    **rendering
        ``system, template, request, answer_prefix, template_kwargs`` of `text.render_prompt`. What they add is neither
        input nor T nor O; its share of the mass is reported with the template's. ``**STEP_BY_STEP`` of
        `text.chat_template` makes a model reason that would answer at once.

    Returns
    -------
    Trace

    Raises
    ------
    NotExplained
        If the model wrote something that cannot be explained, such as reasoning without an end: a ValueError that has
        its ``text``, its ``response_ids`` and the ``path`` of a file that keeps the text.
    ValueError
        If the prompt or the answer is empty, the two together are longer than the model's context, a passage is not
        found, ids given as ``response`` are not in the vocabulary, a text holds half a surrogate pair, or there is no
        such method.
    """
    method = "flashtrace" if method is None and contrast is not None else method
    check_order("trace(model, tokenizer, prompt)", model=model, tokenizer=tokenizer)
    if unknown := rendering.keys() - (known := {*signature(render_prompt).parameters, *signature(trace).parameters}):
        raise TypeError(f"trace() has no argument {min(unknown)!r}.{did_you_mean(min(unknown), known)}")
    method, model = chosen_method(method, hops), unwrap(model)
    if not isinstance(prompt, (str, Sequence)):
        raise ValueError(f"prompt must be a text or a list of messages, got {type(prompt).__name__}")
    if response is not None and not isinstance(response, (str, Sequence, torch.Tensor, np.ndarray)):
        raise ValueError(f"response must be a text or token ids, got {type(response).__name__}")
    prompt, response = conversation_and_response(prompt, response, tokenizer, **rendering)
    limit = max_new_tokens if response is None else None
    if limit is not None:
        text = render_prompt(tokenizer, prompt, whole=True, **rendering).text
        response = generate_answer(model, tokenizer, text, limit)
    elif not isinstance(response, str):
        response = checked_ids(response, vocabulary_size(model))
    where = {"input": input, "reasoning": reasoning, "output": output}
    try:
        sample = build_sample(tokenizer, prompt, response, whole=True, **where, **rendering)
    except ValueError as error:
        if limit is None:
            raise
        raise NotExplained(str(error), decode(tokenizer, response), response, limit) from error
    check_fits(model, len(sample))
    if told := [*_cautions(model, tokenizer, sample, response, limit), *sample.metadata.get("cautions", [])]:
        sample.metadata["cautions"] = told
    warn_if_short(model, sample)
    if estimated:
        print(estimate(model, sample, method), file=sys.stderr)
    if contrast is not None:
        return Trace(sample, contrasted(method, model, tokenizer, sample, contrast), _name_of(model), model=model)
    sentences = response_sentences(sample, tokenizer.all_special_tokens)
    attribution, *others = _explained(method, model, sample, sentences)
    return Trace(sample, attribution, _name_of(model), list(map(Target, sentences, others)), model)


def _cautions(model: Any, tokenizer: Any, sample: Sample, response: str | list[int], limit: int | None) -> list[str]:
    """Cautions on special tokens in the input, on the response's ids and on its end."""
    told = cautions.special_in_input(sample, tokenizer.all_special_ids)
    if isinstance(response, str):
        return told
    if not is_own_spelling(tokenizer, "".join(sample.tokens[: sample.response[0]]), response):
        told.append("The response's ids are not those of its text (not canonical): explained as given.")
    if not is_finished(model, tokenizer, sample.input_ids.tolist()):
        cut = f"was cut at {len(response)} tokens by max_new_tokens (--max-new-tokens)"
        told.append(f"The response {cut if limit else 'does not end with an end token'}: it may not be complete.")
    return told


def _explained(method: Method, model: torch.nn.Module, sample: Sample, sentences: list[Span]) -> list[Attribution]:
    """The attribution of the output, and those of the response's sentences where one pass gives them all."""
    if not hasattr(method, "attribute_many"):
        return [method.attribute(model, sample)]
    return method.attribute_many(model, sample, [sample.segments.output, *sentences])


def _shares(scores: pd.Series) -> pd.Series:
    return scores / (scores.abs().sum() or 1.0)


def _name_of(model: torch.nn.Module) -> str:
    """Name that the model was loaded by; of a folder the last part, since pages get shared."""
    name = str(getattr(model.config, "name_or_path", "") or type(model).__name__)
    return Path(name).resolve().name if Path(name).exists() else name
