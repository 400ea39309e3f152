"""Explain one answer of a model: from a prompt in words to a heatmap, in one call."""

import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .attribution import Method
from .contrast import contrasted
from .estimate import estimate, warn_if_short
from .methods import chosen_method
from .model.answer import NotExplained, check_fits, generate_answer
from .model.context import vocabulary_size
from .model.generate import is_finished
from .model.wrapped import unwrap
from .names import check_order, did_you_mean
from .sample import Sample
from .text.build_sample import build_sample
from .text.chat_template import Messages, conversation_and_response, render_prompt
from .text.locate import Locator
from .text.offsets import checked_ids, decode, is_own_spelling
from .text.reading import special_ids
from .text.sentences import response_sentences
from .traced import Target, Trace, explained
from .viewer import cautions


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
    if contrast is not None and not (isinstance(contrast, str | int | float) and (contrast := str(contrast)).strip()):
        raise ValueError("contrast is empty or no text: give another answer, as contrast='platform 4', or leave it out")
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
    sentences = response_sentences(sample, tokenizer.convert_ids_to_tokens(sorted(special_ids(tokenizer))))
    attribution, *others = explained(method, model, sample, sentences)
    return Trace(sample, attribution, _name_of(model), list(map(Target, sentences, others)), model)


def _cautions(model: Any, tokenizer: Any, sample: Sample, response: str | list[int], limit: int | None) -> list[str]:
    """Cautions on special tokens in the input, on the response's ids and on its end."""
    told = cautions.special_in_input(sample, special_ids(tokenizer))
    if isinstance(response, str):
        return told
    if not is_own_spelling(tokenizer, "".join(sample.tokens[: sample.response[0]]), response):
        told.append("The response's ids are not those of its text (not canonical): explained as given.")
    if not is_finished(model, tokenizer, sample.input_ids.tolist()):
        cut = f"was cut at {len(response)} tokens by max_new_tokens (--max-new-tokens)"
        told.append(f"The response {cut if limit else 'does not end with an end token'}: it may not be complete.")
    return told


def _name_of(model: torch.nn.Module) -> str:
    """Name that the model was loaded by; of a folder the last part, since pages get shared."""
    name = str(getattr(model.config, "name_or_path", "") or type(model).__name__)
    return Path(name).resolve().name if Path(name).exists() else name
