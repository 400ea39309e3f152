"""Conversations: every message is found in the template and has its share of the mass."""

import pytest
import torch

from flashtrace_lib import FlashTrace, Trace, trace
from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.chat_template import conversation_and_response, render_prompt
from flashtrace_lib.viewer.message_shares import importance, parts
from tests.oracles.tiny_chat import PROMPT, RESPONSE, TEMPLATE, make_chat_model, make_tokenizer, shaped

CALLS = "{% for c in m.tool_calls or [] %}[call {{ c.function.name }} {{ c.function.arguments }}]{% endfor %}"
WITH_TOOLS = TEMPLATE.replace("{{ m.content }}", "{{ m.content }}" + CALLS)
CALL = {"type": "function", "function": {"name": "hours", "arguments": {"what": "breakfast"}}}
AGENT = [
    {"role": "system", "content": "Use the tools."}, {"role": "user", "content": "Hi. When is breakfast?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "breakfast 7:00"},
    {"role": "user", "content": [{"type": "text", "text": "Hi. "}, {"type": "text", "text": "So when?"}]},
    {"role": "assistant", "content": "At 7:00. Bye."},
]  # fmt: skip


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


@pytest.mark.parametrize(("shape", "message", "read", "left_out"), [
    ("cuts", TAGGED, "Two.", "<think>\\nHm, x.\\n</think>"), ("cuts", THINKS, "Two.", "Hm, x."),
    ("field", THINKS, TAGGED["content"], None), ("parts", THINKS, "[THINK]Hm, x.[/THINK]Two.", None),
    ("first part", {**THINKS, "reasoning": "y" * 99}, "Two.", "y" * 60 + "… (99 characters)"),
])  # fmt: skip
def test_what_a_template_cuts_out_of_a_message_is_told(shape, message, read, left_out):
    tok = shaped(shape)
    talk = [{"role": "user", "content": "One?"}, message, {"role": "user", "content": "Three?"}]
    assert words(render_prompt(tok, talk, whole=True)) == [("user", "One?"), ("assistant", read), ("user", "Three?")]
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
    result, plain = trace(model, tok, PROMPT, RESPONSE, hops=1), build_sample(tok, PROMPT, RESPONSE)
    assert result.sample.segments == plain.segments and torch.equal(result.sample.input_ids, plain.input_ids)
    alone = FlashTrace().attribute(model, plain)
    torch.testing.assert_close(result.attribution.scores, alone.scores, atol=1e-6, rtol=1e-5)
    assert len(importance(result.sample, alone)) == len(plain)
    assert "messages" not in plain.metadata  # the book's samples are keyed by their metadata


@pytest.mark.parametrize(("prompt", "response", "message"), [
    (AGENT, "At 8.", "drop one of them"),
    ([{"role": "assistant", "content": "", "tool_calls": [CALL]}], None, "holds no words"),
    ([{"role": "user", "content": [{"type": "image"}]}], "x", "no text but image: only text"),
    ([AGENT[1], {"role": "assistant", "content": "x", "reasoning": "y", "thinking": "z"}], None, "two reasonings"),
    ([{"content": "x"}], "x", "role and content"), (["Hi."], None, "role and content"),
    ([{"role": "system", "content": "x"}], "x", "ends with the user's"), ([], "x", "ends with the user's"),
    ([AGENT[1], {"role": "user"}], "x", r"message 2 \(user\), the one to answer, is empty"),
    ([AGENT[1], {"role": "user", "content": None}], "x", "message 2 .*is empty"),
    ([AGENT[1], {"role": "user", "content": " \n"}], "x", "message 2 .*is empty"),
])  # fmt: skip
def test_bad_conversations(model, tok, prompt, response, message):
    with pytest.raises(ValueError, match=message):
        trace(model, tok, prompt, response)


def test_an_empty_system_message_is_no_loss_and_a_call_behind_the_words_is_told(model, tok):
    with pytest.warns(RuntimeWarning, match="calls a tool behind its words"):
        result = trace(model, tok, [AGENT[1], {**AGENT[5], "tool_calls": [CALL]}], system="")
    assert result.answer == "At 7:00. Bye." and not any("Message" in note for note in result.cautions())


def test_a_call_that_the_template_leaves_out_is_named(model):
    deaf = make_tokenizer()  # its template writes no calls of tools
    notes = trace(model, deaf, AGENT).cautions()
    assert notes[0] == "Message 3 (assistant) is not in what the model read: its chat template leaves it out."


SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When?"}]


@pytest.mark.parametrize(("template", "message"), [
    ("{{ raise_exception('no system role') }}", "refuses this conversation: no system role; .* the user's turn"),
    ("{{ messages.x.y }}", "refuses .*no attribute 'x'"), ("{{ 1 + messages[0].role }}", "TypeError: .*template=F"),
    ("{{ messages[0].content.index('?') }}", "ValueError"), ("{{ '{x}'.format() }}", "KeyError: 'x'; .*change the"),
    (TEMPLATE.replace("for m in messages", "for m in messages[-1:]"), "message 1 .system. cannot be located"),
    (TEMPLATE.replace("m.content", "m.content | upper"), "changes the user's text"),
])  # fmt: skip
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


ASKED = [{"role": "user", "content": "Who has ducks?"}, AGENT[2], {"role": "tool", "content": "Clara: ducks"}]
LATE_TALK = [{"role": "system", "content": "Be brief."}, ASKED[0], AGENT[-1], {"role": "user", "content": "So who?"}]
EACH, REST = "{% for m in messages %}", "|{{ m.content }}{% endif %}{% endfor %}|A:"
CALLED = 'hours {"what": "breakfast"'


@pytest.mark.parametrize(("template", "talk", "read"), [
    # as gpt-oss: no result of a tool without the call before it
    ("{% set ns = namespace(c=none) %}" + EACH + "{% if m.tool_calls %}{% set ns.c = m.tool_calls[0].function %}"
     "|{{ ns.c.name }} {{ ns.c.arguments | tojson }}{% else %}{% if m.role == 'tool' and ns.c is none %}"
     "{{ raise_exception('no call') }}{% endif %}" + REST, ASKED, ["Who has ducks?", CALLED, "Clara: ducks"]),
    # as Gemma 4: the result stands with the call
    (EACH + "{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}|<{{ f.name }} {{ f.arguments | tojson }}>"
     "{{ messages[loop.index0 + 1].content }}</result>{% elif m.role != 'tool' %}" + REST,
     ASKED, ["Who has ducks?", f"<{CALLED}}}>", "Clara: ducks"]),
    # as Mistral: the system's words stand in the last turn of the user
    (EACH + "{% if m.role != 'system' %}{% if loop.last %}{{ messages[0].content }} {% endif %}" + REST,
     LATE_TALK, ["Be brief.", "Who has ducks?", "At 7:00. Bye.", "So who?"]),
])  # fmt: skip
def test_messages_that_a_template_moves_or_ties_together(template, talk, read):
    sample = build_sample(make_tokenizer(template), talk, "It is Clara.", whole=True)
    shown = ["".join(sample.tokens[m["start"] : m["stop"]]) for m in sample.metadata["messages"]]
    assert [text.strip() for text in shown] == read
    (first, stop), found = sample.segments.prompt, sample.metadata["messages"]
    assert all(first <= m["start"] < m["stop"] <= stop for m in found)


def part(kind, words):
    return {"type": kind, kind.removeprefix("output_").removeprefix("input_"): words}


@pytest.mark.parametrize("message", [
    {"reasoning_content": "Is 7."}, {"reasoning": "\nIs 7.\n"}, {"thinking": "Is 7.", "reasoning": "Is 7."},
    {"content": [part("thinking", "Is 7."), part("text", "At "), part("text", "7.")]},
    {"content": [part("thinking", [part("text", "Is "), part("text", "7.")]), part("output_text", "At 7.")]},
    {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Is 7."}]}, "At 7."]},
    {"content": [part("text", {"value": "At 7."})], "reasoning": [part("text", "Is 7.")]},
])  # fmt: skip
def test_reasoning_of_the_last_message_is_the_reasoning(message):
    last = {"role": "assistant", "content": "At 7.", **message}
    prompt = [{"role": "user", "content": [part("input_text", "When?")]}, last]
    assert conversation_and_response(prompt, None, shaped("field")) == (prompt[:1], "<think>\nIs 7.\n</think>\n\nAt 7.")
    empty = [prompt[0], {"role": "assistant", "content": "At 7.", "reasoning_content": None, "tool_calls": None}]
    assert conversation_and_response(empty, None) == ([prompt[0]], "At 7.")  # as servers write what is missing


@pytest.mark.parametrize(("shape", "opened", "options", "response"), [
    ("cuts", "", {}, "<think>\nT\n</think>\n\nO"),  # its format cannot be seen
    ("cuts", "<think>\n", {}, "T\n</think>\n\nO"), ("cuts", "[THINK]", {}, "T\n[/THINK]\n\nO"),
    ("field", "<think>\n", {}, "T\n</think>\n\nO"), ("field", "<think>", {}, "\nT\n</think>\n\nO"),
    ("field", "", {"template": False}, "<think>\nT\n</think>\n\nO"),
    ("field", "", {"answer_prefix": "<think>\n"}, "T\n</think>\n\nO"),
    ("parts", "", {}, "[THINK]T[/THINK]O"),
    ("channels", "", {}, "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>O"),
])  # fmt: skip
def test_reasoning_stands_before_the_answer_as_the_template_has_it(shape, opened, options, response):
    tok = shaped(shape)
    tok.chat_template = tok.chat_template.removesuffix("{% endif %}") + opened + "{% endif %}"
    talk = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "O", "reasoning": "T"}]
    result = trace(make_chat_model(tok), tok, talk, method="ifr", **options, reasoning="T", output="O")
    assert result.response == response.lstrip()  # a token of white space alone is the prompt's
    assert "".join(result.sample.tokens).endswith(opened + response + "<|end|>")
