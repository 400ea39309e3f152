"""Explain one answer of a model: from a prompt in words to a heatmap, in one call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from .attribution import Attribution, Method
from .generation import generate
from .locate import Locator
from .methods import FlashTrace
from .report.heatmap import hops_heatmap, token_heatmap
from .sample import Sample
from .text import Messages, build_sample, check_retokenises, render_prompt

_FORMAT = 1  # of the JSON file


@dataclass
class Trace:
    """What one answer rests on.

    Parameters
    ----------
    sample : Sample
        The context, its segments and display tokens.
    attribution : Attribution
        Importance of the tokens of I.
    model_name : str
        Name or path of the model.
    """

    sample: Sample
    attribution: Attribution
    model_name: str = ""

    @property
    def response(self) -> str:
        """Everything the model said, end token included."""
        return "".join(self.sample.tokens[slice(*self.sample.response)])

    @property
    def answer(self) -> str:
        """The output O that is explained."""
        return "".join(self.sample.tokens[slice(*self.sample.segments.output)]).strip()

    def top(self, k: int = 10) -> pd.DataFrame:
        """The ``k`` most important tokens of the input.

        Returns
        -------
        pandas.DataFrame
            ``token, position, score``, highest first; ``position`` counts from the start of the whole context.
        """
        if k < 1:
            raise ValueError(f"top needs a count of at least 1, got {k}")
        start = self.sample.segments.prompt[0]
        order = torch.argsort(self.attribution.scores, descending=True, stable=True)[:k].tolist()
        rows = [(self.sample.tokens[start + i], start + i, float(self.attribution.scores[i])) for i in order]
        return pd.DataFrame(rows, columns=["token", "position", "score"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, JSON-ready: ids, tokens, segments, scores, every hop."""
        sample, attribution = self.sample, self.attribution
        segments = sample.segments
        return {
            "format": _FORMAT,
            "model": self.model_name,
            "method": attribution.method,
            "options": attribution.metadata.get("options", {}),
            "seconds": attribution.seconds,
            "input_ids": sample.input_ids.tolist(),
            "tokens": list(sample.tokens),
            "segments": {name: list(getattr(segments, name)) for name in ("prompt", "reasoning", "output")},
            "response": list(sample.response),
            "scores": attribution.scores.tolist(),
            "flow": [float(rho) for rho in attribution.flow],
            "hops": [
                {"target": list(hop.target), "weights": hop.weights.tolist(), "scores": hop.scores.tolist()}
                for hop in attribution.hops
            ],
        }

    def to_json(self, path: str | Path) -> Path:
        """Write `to_dict` to ``path`` and return it."""
        path = Path(path)
        path.write_text(json.dumps(self.to_dict(), ensure_ascii=False) + "\n", encoding="utf-8", errors="replace")
        return path

    def to_html(self, path: str | Path) -> Path:
        """Write a page with the heatmap of the input and of each hop, and return its path."""
        title = escape(f"{self.attribution.method} · {self.model_name}")
        hops = hops_heatmap(self.sample, self.attribution) if self.attribution.hops else ""
        page = (
            f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
            f"<body>\n{self._repr_html_()}\n{hops}\n</body>\n</html>\n"
        )
        path = Path(path)
        path.write_text(page, encoding="utf-8", errors="replace")
        return path

    def _repr_html_(self) -> str:
        scores = np.full(len(self.sample), np.nan)
        scores[slice(*self.sample.segments.prompt)] = self.attribution.scores.numpy()
        return token_heatmap(
            self.sample.tokens,
            scores,
            labels=self.sample.segments.labels(len(self.sample)),
            title=f"{self.attribution.method}: what the answer rests on",
            diverging=bool((self.attribution.scores < 0).any()),
        )

    def __repr__(self) -> str:
        top = ", ".join(repr(token) for token in self.top(5)["token"])
        return f"Trace({self.attribution.method}: {self.answer[:60]!r} rests on {top})"


def trace(
    model: torch.nn.Module,
    tokenizer: Any,
    prompt: str | Messages,
    response: str | Sequence[int] | torch.Tensor | None = None,
    output: Locator = "auto",
    reasoning: Locator = "auto",
    hops: int = 1,
    max_new_tokens: int = 512,
    *,
    system: str | None = None,
    template: bool = True,
    template_kwargs: Mapping[str, Any] | None = None,
    method: Method | None = None,
) -> Trace:
    r"""Explain which words of the prompt a model's answer rests on.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its fast tokenizer; its chat template is applied where it has one.
    prompt : str or list of messages
        The user's words, or a conversation that ends with them: the input I.
    response : str or token ids, optional
        The answer to explain. Default: the model generates it greedily.
    output, reasoning : str, compiled pattern, (int, int) or None
        The passages O and T of the response: a substring (its last occurrence), a pattern (its last match, or the
        first group of it), a token range of the whole context, or ``"auto"``: ``<think>…</think>`` around T, a
        ``\boxed{…}`` as O where there are no marks, else the whole answer. ``reasoning=None``: none.
    hops : int
        K, recursive hops through T.
    max_new_tokens : int
        Longest response to generate, tokens.
    system, template, template_kwargs
        See `text.render_prompt`.
    method : Method, optional
        Default: ``FlashTrace(hops=hops)``.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        If the prompt or the answer is empty, a passage is not found, or ids given as ``response`` do not
        re-tokenise to themselves.
    """
    rendering = {"system": system, "template": template, "template_kwargs": template_kwargs}
    if response is None:
        text = render_prompt(tokenizer, prompt, **rendering).text
        response = generate(model, tokenizer, [text], max_new_tokens)[0]
    elif not isinstance(response, str):
        check_retokenises(tokenizer, response)
    sample = build_sample(tokenizer, prompt, response, reasoning=reasoning, output=output, **rendering)
    attribution = (method or FlashTrace(hops=hops)).attribute(model, sample)
    return Trace(sample, attribution, getattr(model.config, "name_or_path", "") or type(model).__name__)
