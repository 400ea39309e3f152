"""Conversations: every message is found in the template and has its share of the mass."""

import re

import pytest
import torch

from flashtrace_lib import FlashTrace, Trace, trace
from flashtrace_lib.methods import ContextCite, Perturbation, RandomSentences, ReAGent
from flashtrace_lib.methods.perturbation import shortened_rows
from flashtrace_lib.methods.perturbation_base import unit_spans
from flashtrace_lib.metrics import deletion_curve
from flashtrace_lib.model.batched_forward import score_rows
from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.chat_template import conversation_and_response, render_prompt
from flashtrace_lib.text.offsets import tokenise
from flashtrace_lib.text.sentences import response_sentences
from flashtrace_lib.viewer.cautions import cautions
from flashtrace_lib.viewer.message_shares import importance, parts, shares
from tests.oracles.tiny_chat import PROMPT, RESPONSE, TEMPLATE, make_chat_model, make_tokenizer, shaped

CALLS = "{% for c in m.tool_calls or [] %}[call {{ c.function.name }} {{ c.function.arguments }}]{% endfor %}"
WITH_TOOLS = TEMPLATE.replace("{{ m.content }}", "{{ m.content }}" + CALLS)
CALL = {"type": "function", "function": {"name": "hours", "arguments": {"what": "breakfast"}}}
AGENT = [
    {"role": "system", "content": "Use the tools."},
    {"role": "user", "content": "Hi. When is breakfast?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "breakfast 7:00"},
    {"role": "user", "content": [{"type": "text", "text": "Hi. "}, {"type": "text", "text": "So when?"}]},
    {"role": "assistant", "content": "At 7:00. Bye."},
]


@pytest.fixture(scope="module")
def tok():
    return make_tokenizer(WITH_TOOLS)


def words(rendered):
    return [(turn.role, rendered.text[slice(*turn.span)]) for turn in rendered.turns]


@pytest.mark.parametrize("template", [True, False])
def test_every_message_is_located(tok, template):
    conversation, answer = conversation_and_response(AGENT, None)
    rendered = render_prompt(tok, conversation, template=template, whole=True)
    call = "[call hours {'what': 'breakfast'}]" if template else ""
    assert answer == "At 7:00. Bye."
    assert words(rendered) == [
        ("system", "Use the tools."), ("user", "Hi. When is breakfast?"), ("assistant", call),
        ("tool", "breakfast 7:00"), ("user", "Hi. So when?"),
    ]  # fmt: skip
    assert rendered.text[slice(*rendered.span)].startswith("Use the") and rendered.span[1] == rendered.turns[-1].span[1]
    alone = render_prompt(tok, [*conversation[:4], {"role": "user", "content": "So when?"}], template=template)
    assert alone.turns == () and alone.text[slice(*alone.span)] == "So when?"


THINKS = {"role": "assistant", "content": "Two.", "reasoning": "Hm, x."}
TAGGED = {"role": "assistant", "content": "<think>\nHm, x.\n</think>\n\nTwo."}


@pytest.mark.parametrize(
    ("shape", "message", "read", "left_out"),
    [
        ("cuts", TAGGED, "Two.", "<think>\\nHm, x.\\n</think>"), ("cuts", THINKS, "Two.", "Hm, x."),
        ("field", THINKS, TAGGED["content"], None), ("parts", THINKS, "[THINK]Hm, x.[/THINK]Two.", None),
        ("first part", {**THINKS, "reasoning": "y" * 99}, "Two.", "y" * 60 + "… (99 characters)"),
    ],
)  # fmt: skip
def test_what_a_template_cuts_out_of_a_message_is_told(shape, message, read, left_out):
    tok = shaped(shape)
    talk = [{"role": "user", "content": "One?"}, message, {"role": "user", "content": "Three?"}]
    rendered = render_prompt(tok, talk, whole=True)
    assert words(rendered) == [("user", "One?"), ("assistant", read), ("user", "Three?")]
    result = trace(make_chat_model(tok), tok, talk, "Yes.", method="ifr")
    notes = [note for note in Trace.from_dict(result.to_dict()).cautions() if "did not read all" in note]
    expected = f"The model did not read all of message 2: its chat template leaves out '{left_out}'."
    assert notes == ([expected] if left_out else [])


def test_the_system_option_is_context_and_its_mass_is_reported(model, tok):
    result = trace(model, tok, PROMPT, RESPONSE, system="Be brief.")
    kinds = {part.name: part.kind for part in parts(result.sample)}
    assert kinds["1 system"] == "context" and kinds["2 user"] == "input"
    frame = result.shares().set_index("part")
    assert torch.isnan(torch.tensor(frame.loc["1 system", "share"])) and frame.loc["1 system", "hop 0"] > 0
    assert frame.loc["2 user", "share"] == pytest.approx(1)


def test_shares_follow_the_scores_and_sum_to_one(model, tok):
    result = trace(model, tok, AGENT, hops=1)
    sample = result.sample
    assert result.answer == "At 7:00. Bye."
    texts = ["".join(sample.tokens[m["start"] : m["stop"]]) for m in sample.metadata["messages"]]
    assert texts == ["Use the tools.", "Hi. When is breakfast?", "[call hours {'what': 'breakfast'}]",
                     "breakfast 7:00", "Hi. So when?"]  # fmt: skip
    tiles = [part.span for part in parts(sample)]
    assert tiles[0][0] == 0 and tiles[-1][1] == len(sample)
    assert all(a[1] == b[0] for a, b in zip(tiles, tiles[1:], strict=False))
    frame, hop = result.shares().set_index("part"), result.attribution.hops[0].scores.double()
    assert frame[["share", "hop 0"]].sum().tolist() == pytest.approx([1, 1]) and frame["tokens"].sum() == len(sample)
    start, stop = (sample.metadata["messages"][2][name] for name in ("start", "stop"))
    assert frame.loc["3 assistant", "hop 0"] == pytest.approx(float(hop[start:stop].sum()))
    roles = result.shares("role").set_index("part")
    assert roles.loc["user", "hop 0"] == pytest.approx(frame.loc[["2 user", "5 user"], "hop 0"].sum())
    with pytest.raises(ValueError, match="'message' or 'role'"):
        result.shares("turn")


def test_the_template_between_messages_is_never_ranked(model, tok):
    result = trace(model, tok, AGENT)
    positions = set(result.top(10_000)["position"])
    own = {i for m in result.sample.metadata["messages"] for i in range(m["start"], m["stop"])}
    assert positions == {i for i in own if result.sample.tokens[i].strip()}
    values = importance(result.sample, result.attribution)
    assert {int(i) for i in torch.tensor(values).isnan().logical_not().nonzero()} == own
    assert "assistant" in result._repr_html_()


def test_words_that_are_neither_reasoning_nor_output_are_the_rest(model, tok):
    sample = build_sample(tok, PROMPT, RESPONSE, output="7261", whole=True)
    found = [(part.role, "".join(sample.tokens[slice(*part.span)]).strip()) for part in parts(sample)[2:]]
    assert [text for role, text in found if role == "rest of response"] == ["The number is", ". Bye."]
    assert ("template", "</think>") in found and found[-1] == ("template", "<|end|>")
    assert [part.role for part in parts(build_sample(tok, PROMPT, RESPONSE))].count("rest of response") == 0
    boxed = build_sample(tok, PROMPT, "It is \\boxed{7} <b>.")  # angle brackets that no special token spells
    rest = [part.span for part in parts(boxed) if part.role == "rest of response"]
    assert ["".join(boxed.tokens[slice(*span)]).strip() for span in rest][-1] == "<b>."


def test_one_message_is_the_prompt_as_before(model, tok):
    result = trace(model, tok, PROMPT, RESPONSE, hops=1)
    plain = build_sample(tok, PROMPT, RESPONSE)
    assert result.sample.segments == plain.segments and torch.equal(result.sample.input_ids, plain.input_ids)
    alone = FlashTrace().attribute(model, plain)
    torch.testing.assert_close(result.attribution.scores, alone.scores, atol=1e-6, rtol=1e-5)
    assert len(importance(result.sample, alone)) == len(plain)
    assert "messages" not in plain.metadata  # the book's samples are keyed by their metadata


@pytest.mark.parametrize(
    ("prompt", "response", "message"),
    [
        (AGENT, "At 8.", "drop one of them"),
        ([{"role": "assistant", "content": "", "tool_calls": [CALL]}], None, "holds no words"),
        ([{"role": "user", "content": [{"type": "image"}]}], "x", "no text but image: only text"),
        ([AGENT[1], {"role": "assistant", "content": "x", "reasoning": "y", "thinking": "z"}], None, "two reasonings"),
        ([{"content": "x"}], "x", "role and content"), (["Hi."], None, "role and content"),
        ([{"role": "system", "content": "x"}], "x", "ends with the user's"), ([], "x", "ends with the user's"),
        ([AGENT[1], {"role": "user"}], "x", r"message 2 \(user\), the one to answer, is empty"),
        ([AGENT[1], {"role": "user", "content": None}], "x", "message 2 .*is empty"),
        ([AGENT[1], {"role": "user", "content": " \n"}], "x", "message 2 .*is empty"),
    ],
)  # fmt: skip
def test_bad_conversations(model, tok, prompt, response, message):
    with pytest.raises(ValueError, match=message):
        trace(model, tok, prompt, response)


def test_a_call_that_the_template_leaves_out_is_named(model):
    deaf = make_tokenizer()  # its template writes no calls of tools
    notes = trace(model, deaf, AGENT).cautions()
    assert notes[0] == "Message 3 (assistant) is not in what the model read: its chat template leaves it out."


SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When?"}]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system role') }}", "refuses this conversation: no system role; .* the user's turn"),
        ("{{ messages.x.y }}", "refuses .*no attribute 'x'"), ("{{ 1 + messages[0].role }}", "TypeError: .*template=F"),
        ("{{ messages[0].content.index('?') }}", "ValueError"), ("{{ '{x}'.format() }}", "KeyError: 'x'; .*change the"),
        (TEMPLATE.replace("for m in messages", "for m in messages[-1:]"), "message 0 .system. cannot be located"),
        (TEMPLATE.replace("m.content", "m.content | upper"), "changes the user's text"),
    ],
)  # fmt: skip
def test_a_template_that_does_not_take_the_conversation_is_named(template, message):
    with pytest.raises(ValueError, match=message) as error:
        render_prompt(make_tokenizer(template), SYSTEM, whole=True)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("shape", ["parts", "first part", "user parts"])
def test_templates_that_want_parts_get_them(shape):
    rendered = render_prompt(shaped(shape), [*SYSTEM, AGENT[-1], SYSTEM[1]], request=" Say.", whole=True)
    assert [text for _, text in words(rendered)] == ["Be brief.", "When?", "At 7:00. Bye.", "When?"]
    assert "When? Say.<|end|>" in rendered.text and "{" not in rendered.text


def test_tools_messages_stand_as_the_template_writes_them():
    talk, tok = [AGENT[1], AGENT[2], {"role": "tool", "content": 'a "b"\n'}], shaped("tool json")
    rendered = render_prompt(tok, talk, whole=True, request=" Say it.")
    assert words(rendered)[-1] == ("tool", r"a \"b\"\n") and r"\n Say it." in rendered.text
    with pytest.raises(ValueError, match="places in it cannot be found"):
        build_sample(tok, talk, "Yes.", whole=True, evidence=[(0, 1)])
    call = words(render_prompt(shaped("calls"), talk, whole=True))[1][1]
    assert call == '[TOOL_CALLS] [{"name": "hours", "arguments": {"what": "breakfast"}}]'


def part(kind, words):
    return {"type": kind, kind.removeprefix("output_").removeprefix("input_"): words}


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning_content": "Is 7."}, {"reasoning": "\nIs 7.\n"}, {"thinking": "Is 7.", "reasoning": "Is 7."},
        {"content": [part("thinking", "Is 7."), part("text", "At "), part("text", "7.")]},
        {"content": [part("thinking", [part("text", "Is "), part("text", "7.")]), part("output_text", "At 7.")]},
        {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Is 7."}]}, "At 7."]},
        {"content": [part("text", {"value": "At 7."})], "reasoning": [part("text", "Is 7.")]},
    ],
)  # fmt: skip
def test_reasoning_of_the_last_message_is_the_reasoning(message):
    last = {"role": "assistant", "content": "At 7.", **message}
    prompt = [{"role": "user", "content": [part("input_text", "When?")]}, last]
    expected = prompt[:1], "<think>\nIs 7.\n</think>\n\nAt 7."
    assert conversation_and_response(prompt, None, shaped("field")) == expected


@pytest.mark.parametrize(
    ("shape", "opened", "options", "response"),
    [
        ("cuts", "", {}, "<think>\nT\n</think>\n\nO"),  # its format cannot be seen
        ("cuts", "<think>\n", {}, "T\n</think>\n\nO"), ("cuts", "[THINK]", {}, "T\n[/THINK]\n\nO"),
        ("field", "<think>\n", {}, "T\n</think>\n\nO"), ("field", "<think>", {}, "\nT\n</think>\n\nO"),
        ("field", "", {"template": False}, "<think>\nT\n</think>\n\nO"),
        ("field", "", {"answer_prefix": "<think>\n"}, "T\n</think>\n\nO"),
        ("parts", "", {}, "[THINK]T[/THINK]O"),
        ("channels", "", {}, "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>O"),
    ],
)  # fmt: skip
def test_reasoning_stands_before_the_answer_as_the_template_has_it(shape, opened, options, response):
    tok = shaped(shape)
    tok.chat_template = tok.chat_template.removesuffix("{% endif %}") + opened + "{% endif %}"
    talk = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "O", "reasoning": "T"}]
    result = trace(make_chat_model(tok), tok, talk, method="ifr", **options, reasoning="T", output="O")
    assert result.response == response.lstrip()  # a token of white space alone is the prompt's
    assert "".join(result.sample.tokens).endswith(opened + response + "<|end|>")


# --- sentences of the response --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "output", "texts"),
    [
        ("<think>\nOne two. Three.\n</think>\n\nIt is 7261. Surely. Bye.", "Surely.",
         ["One two.", "Three.", "It is 7261.", "Surely.", "Bye."]),
        ("One. Two three. A box \\boxed{7}. The end. Bye.", "auto",
         ["One.", "Two three.", "A box", "\\boxed{7}", "The end.", "Bye."]),
    ],
)  # fmt: skip
def test_sentences_cover_what_the_response_says_and_no_mark(tok, response, output, texts):
    sample = build_sample(tok, PROMPT, response, output=output, whole=True)
    found = ["".join(sample.tokens[slice(*span)]) for span in response_sentences(sample, ["<|end|>"])]
    assert [text.strip() for text in found] == texts


def test_sentences_are_explained_as_by_themselves(model, tok):
    result = trace(model, tok, PROMPT, RESPONSE, hops=2)
    assert len(result.targets) == 4
    for target in result.targets:
        alone = FlashTrace(hops=2).attribute(model, result.sample.with_output(target.span))
        torch.testing.assert_close(target.attribution.scores, alone.scores, atol=1e-6, rtol=1e-5)
    assert trace(model, tok, PROMPT, "7.", method=Perturbation()).targets == []  # a pass for each would be needed


def test_cautions_name_what_stands_out(model, tok):
    result = trace(model, tok, PROMPT, RESPONSE)
    sample, attribution = result.sample, result.attribution
    start = sample.segments.prompt[0]

    def notes(weights):
        attribution.scores = torch.tensor([weights(i) for i in range(start, sample.segments.prompt[1])])
        attribution.hops[0].scores = torch.zeros(len(sample)).index_fill(0, torch.tensor([start]), 1.0)
        return cautions(sample, attribution)

    even = notes(lambda i: 1.0 if any(c.isalnum() for c in sample.tokens[i]) else 0.01)
    assert [note for note in even if "no better than even" not in note and "near tie" not in note] == []
    assert "first token" in notes(lambda i: 9.0 if i == start else 0.01)[0]
    marks = notes(lambda i: 0.001 if any(c.isalnum() for c in sample.tokens[i]) else 1.0)
    assert any("punctuation" in note for note in marks)
    assert "does not rest on it" in notes(lambda i: 0.0)[0]
    attribution.hops[0].scores = torch.zeros(len(sample)).index_fill(0, torch.tensor([0]), 1.0)
    assert "100% of the first hop's mass" in cautions(sample, attribution)[0]
    assert shares(sample, attribution).set_index("part").loc["template", "hop 0"] == pytest.approx(1)


class Writes:
    """Stands for a model's `generate`: one letter again and again, and an end where the answer has its length."""

    def __init__(self, tok, length):
        self.letter, self.end, self.length = tok.convert_tokens_to_ids("a"), tok.eos_token_id, length

    def __call__(self, input_ids, max_new_tokens, **_):
        self.max_new_tokens = max_new_tokens
        written = ([self.letter] * (self.length - 1) + [self.end])[:max_new_tokens]
        return torch.cat([input_ids, torch.tensor([written])], dim=1)


def test_an_answer_is_generated_within_the_context_only(tok, monkeypatch):
    with pytest.raises(ValueError, match="the model reads 40 at most"):
        trace(make_chat_model(tok, max_position_embeddings=40), tok, PROMPT)
    n_prompt = len(tokenise(tok, render_prompt(tok, PROMPT).text)[0])
    small = make_chat_model(tok, max_position_embeddings=n_prompt + 20)
    for length in (8, 20):  # they fit, whatever was allowed
        monkeypatch.setattr(small, "generate", Writes(tok, length))
        result = trace(small, tok, PROMPT)
        assert small.generate.max_new_tokens == 20 and len(result.sample) == n_prompt + length
    monkeypatch.setattr(small, "generate", Writes(tok, 21))
    with pytest.raises(ValueError, match=f"the prompt has {n_prompt} tokens, 20 are left"):
        trace(small, tok, PROMPT)
    assert small.generate.max_new_tokens == 20  # no token was generated for nothing
    assert len(trace(small, tok, PROMPT, max_new_tokens=20).sample) == n_prompt + 20  # as the message advises


def test_special_tokens_in_the_users_words_are_told(tok, model, tmp_path):
    talk = [{"role": "user", "content": "Is it <|end|> 7261?"}, {"role": "tool", "content": "<|end|><|start|> 7261."}]
    for prompt, special in (("Is it <|end|> 7261?", "<|end|>"), (talk, "<|end|>, <|start|>")):
        result = trace(model, tok, prompt, RESPONSE)
        assert f"The input's own words hold {special}: the model reads such a special token" in result.cautions()[0]
        read = Trace.from_json(result.to_json(tmp_path / "t.json"))
        assert read.cautions() == result.cautions()  # and the page of each sentence has it as well
    clean = trace(model, tok, "Is it < end > 7261?", RESPONSE)
    assert not any("special token as" in note for note in clean.cautions())


# --- units -----------------------------------------------------------------------------------------------------


TALK = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": "What is <think>? Say it."},
    {"role": "assistant", "content": "<think>\nHm. So.\n</think>\n\nA mark. Yes."},
    {"role": "user", "content": "And\nnow?"},
]
THOUGHT_TWICE = "<think>\nA b. C.\n</think>\nI say:\n<think>\nmore\n</think>\nDone. Bye."
UNITS = ["Be brief.", "What is <think>?", "Say it.", "Hm.", "So.", "A mark.", "Yes.", "And", "now?"]


@pytest.mark.parametrize("template", [True, False])
def test_template_tokens_are_in_no_unit(tok, template):
    thought = re.compile("(?s)A b.*more")
    sample = build_sample(tok, TALK, THOUGHT_TWICE, whole=True, template=template, reasoning=thought)
    said = ["".join(sample.tokens[slice(*span)]).strip() for span in sample.sentences]
    assert said == [*UNITS, "A b.", "C.", "I say:", "more", "Done.", "Bye."]
    prompt = ["".join(sample.tokens[a:b]) for a, b in sample.words(sample.segments.prompt)]
    assert [words.strip() for words in prompt] == [
        "Be brief.", "What is <think>? Say it.", "Hm. So.", "A mark. Yes.", "And\nnow?"
    ]  # fmt: skip
    assert len(sample.words(sample.segments.reasoning)) == 3


@pytest.mark.parametrize("units", ["sentence", "token"])
def test_template_tokens_are_never_masked_and_no_sources(tok, model, units, monkeypatch):
    sample = build_sample(tok, TALK, "Done. Bye.", whole=True)
    first, stop = sample.segments.prompt
    outside = torch.ones(len(sample), dtype=torch.bool)
    for start, end in sample.words(sample.segments.prompt):
        outside[start:end] = False
    rows = []

    def watched(model, given, *arguments, **options):
        given = list(given)
        rows.extend(given)
        return score_rows(model, given, *arguments, **options)

    for module in ("methods.perturbation_base", "methods.reagent", "model.ablations", "metrics.deletion"):
        monkeypatch.setattr(f"flashtrace_lib.{module}.score_rows", watched)
    methods = [Perturbation(units), ReAGent(units, runs=1, max_steps=2), ContextCite(n_masks=9), RandomSentences()]
    for method in methods:
        attribution = method.attribute(model, sample)
        assert not attribution.scores[outside[first:stop]].any() and attribution.scores.shape == (stop - first,)
    curve = deletion_curve(model, sample, torch.rand(stop - first), steps=5)
    assert curve.n_masked[-1] == (~outside[first:stop]).sum()
    changed = torch.stack([row[:stop] != sample.input_ids[:stop] for row in rows if len(row) >= stop])
    assert len(changed) > 20 and changed[:, ~outside[:stop]].any() and not changed[:, outside[:stop]].any()
    shortened = list(shortened_rows(sample, unit_spans(sample, sample.segments.prompt, units)))
    assert torch.equal(shortened[-1][: int(outside[:stop].sum())], sample.input_ids[:stop][outside[:stop]])
