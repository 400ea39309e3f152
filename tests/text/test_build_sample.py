import re

import pytest

from flashtrace_lib.text.build_sample import build_sample
from flashtrace_lib.text.chat_template import STEP_BY_STEP, render_prompt
from flashtrace_lib.text.offsets import decode_with_offsets, tokenise
from tests.oracles.tiny_chat import EVIDENCE, PROMPT, RESPONSE, TEMPLATE, make_tokenizer, spelled


def evidence(prompt=PROMPT):
    start = prompt.index(EVIDENCE)
    return [(start, start + len(EVIDENCE))]


def words(tok, sample, name):
    return tok.decode(sample.input_ids[slice(*getattr(sample.segments, name))])


@pytest.mark.parametrize("as_ids", ["text", "ids", "bytes"])
def test_segments_gold_and_sentences_read_back_as_the_text(tok, as_ids):
    response = {
        "text": RESPONSE,
        "ids": [*tokenise(tok, RESPONSE)[0], tok.eos_token_id],
        "bytes": [*spelled(tok, RESPONSE), tok.eos_token_id],
    }[as_ids]
    sample = build_sample(tok, PROMPT, response, evidence=evidence(), metadata={"id": "x"})
    assert words(tok, sample, "prompt").strip() == PROMPT.strip()
    assert words(tok, sample, "reasoning") == "The text says 日本 🦜.\nSo it is 7261."
    assert words(tok, sample, "output").strip() == "The number is 7261. Bye."
    assert tok.decode(sample.input_ids[sample.gold]).strip() == EVIDENCE
    assert tok.decode(sample.input_ids[slice(*sample.response)]) == RESPONSE + "<|end|>"
    assert "".join(sample.tokens) == render_prompt(tok, PROMPT).text + RESPONSE + "<|end|>"
    assert sample.mask_token_id == tok.eos_token_id  # no pad token
    assert sample.id == "x"
    if as_ids != "text":
        assert sample.input_ids[sample.response[0] :].tolist() == list(response)


def test_sentences_tile_the_segments(tok):
    sample = build_sample(tok, PROMPT, RESPONSE)
    for _, (start, stop) in sample.segments.named():
        inside = [s for s in sample.sentences if start <= s[0] < stop]
        assert inside[0][0] == start and inside[-1][1] == stop
        assert all(a[1] == b[0] for a, b in zip(inside, inside[1:], strict=False))
    texts = [tok.decode(sample.input_ids[a:b]).strip() for a, b in sample.sentences]
    assert EVIDENCE in texts and "Dr. No knows it." in texts and "Bye." in texts


def test_direct_answer_has_no_reasoning(tok):
    sample = build_sample(tok, PROMPT, "It is 7261.")
    assert not sample.segments.has_reasoning
    assert words(tok, sample, "output") == "It is 7261."
    assert sample.segments.output[1] == len(sample) - 1  # the end token is context
    assert sample.response[1] == len(sample)
    copied = build_sample(tok, PROMPT, f"It is 7261.{tok.eos_token}\n")  # no second end token
    assert copied.input_ids.tolist().count(tok.eos_token_id) == sample.input_ids.tolist().count(tok.eos_token_id)


def test_boxed_answer_without_marks(tok):
    sample = build_sample(tok, PROMPT, r"We add 3 and 4. It is \boxed{\frac{7}{1}} then.")
    assert words(tok, sample, "output").strip() == r"\boxed{\frac{7}{1}}"
    assert words(tok, sample, "reasoning").strip() == "We add 3 and 4. It is"


def test_output_by_substring_pattern_and_range(tok):
    last = build_sample(tok, PROMPT, "7261, yes 7261!", output="7261", reasoning=None)
    text = "".join(last.tokens[last.segments.output[0] :])
    assert text.strip().startswith("7261!") and not last.segments.has_reasoning
    group = build_sample(tok, PROMPT, RESPONSE, output=re.compile(r"is (\d+)"))
    assert words(tok, group, "output").strip() == "7261"
    assert words(tok, group, "reasoning").startswith("The text")
    first, stop = last.response
    exact = build_sample(tok, PROMPT, "7261, yes 7261!", output=(stop - 3, stop), reasoning=(first, first + 2))
    assert exact.segments.output == (stop - 3, stop) and exact.segments.reasoning == (first, first + 2)


def test_system_conversation_and_plain_prompts(tok):
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    sample = build_sample(tok, [*talk, {"role": "user", "content": "Hi."}], "Yes.", system="Be brief.")
    text = "".join(sample.tokens)
    assert words(tok, sample, "prompt") == "Hi."
    assert text.index("Be brief.") < text.index("Hello.") < text.rindex("Hi.")
    assert sample.segments.prompt[0] > len(
        tokenise(tok, text[: text.index("Hello.")])[0]
    )  # the last turn, not the first
    plain = build_sample(tok, "The number is", " 7261.", template=False)
    assert plain.segments.prompt[0] == 0 and words(tok, plain, "output") == " 7261."
    prefixed = build_sample(tok, "A question.", " 7261.", template=False, answer_prefix=" The number is")
    assert words(tok, prefixed, "prompt") == "A question." and words(tok, prefixed, "output") == " 7261."


def test_the_prompt_is_the_user_s_even_where_the_template_says_the_same(tok):
    for content in ("assistant", "user", "a", "<|start|>assistant\n x"):
        rendered = render_prompt(tok, content)
        assert rendered.text[slice(*rendered.span)] == content
        assert rendered.text[: rendered.span[0]].endswith("<|start|>user\n")


def test_a_template_that_trims_keeps_the_evidence_in_place():
    tok = make_tokenizer(TEMPLATE.replace("{{ m.content }}", "{{ m.content | trim }}"))
    sample = build_sample(tok, PROMPT, RESPONSE, evidence=evidence())
    assert tok.decode(sample.input_ids[sample.gold]).strip() == EVIDENCE
    assert words(tok, sample, "prompt") == PROMPT.strip()


def test_offsets_of_split_characters(tok):
    text = "a 日本 🦜é"
    decoded, offsets = decode_with_offsets(tok, spelled(tok, text))
    assert decoded == text
    for char in "日🦜é":
        assert len([i for i, (a, b) in enumerate(offsets) if a <= text.index(char) < b]) == len(char.encode())
    assert offsets[0] == (0, 1) and offsets[-1][1] == len(text)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("as_ids", [False, True])
def test_the_words_that_begin_the_turn_step_by_step_are_context(tok, whole, as_ids):
    said = " It is 7261.\n2. The answer: 5. Answer: no.\nAnswer: 7261"
    response = [*tokenise(tok, said)[0], tok.eos_token_id] if as_ids else said
    sample = build_sample(tok, PROMPT, response, whole=whole, **STEP_BY_STEP)
    text = "".join(sample.tokens)
    prefix, request = STEP_BY_STEP["answer_prefix"], STEP_BY_STEP["request"]
    assert text.endswith(f"{PROMPT}{request}<|end|>\n<|start|>assistant\n{prefix}{said}<|end|>")
    assert words(tok, sample, "prompt").strip() == PROMPT.strip()  # I: the user's words without the request
    assert words(tok, sample, "reasoning").strip() == "It is 7261.\n2. The answer: 5. Answer: no."
    assert words(tok, sample, "output").strip() == "Answer: 7261"
    assert "".join(sample.tokens[: sample.response[0]]).rstrip().endswith(prefix)  # before the response
    asked = build_sample(tok, PROMPT, response, whole=whole, request=" Use <think> tags.")  # spoken of by the request
    assert words(tok, asked, "output").strip() == "7261" and not asked.metadata.get("cautions")


@pytest.mark.parametrize("said, thought, answer", [
    (r" 2. So \boxed{1}, then \(\boxed{7}\).", r"2. So \boxed{1}, then \(", r"\boxed{7}\)."),
    (r" So \boxed{7}. Answer: 7", r"So \boxed{7}.", "Answer: 7"), (" It is 7.", "", "It is 7."),
])  # fmt: skip
def test_step_by_step_without_the_label_takes_the_box_or_the_whole(tok, said, thought, answer):
    sample = build_sample(tok, PROMPT, said, **STEP_BY_STEP)
    assert words(tok, sample, "reasoning").strip() == thought
    assert words(tok, sample, "output").strip() == answer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("", "Yes."), "prompt is empty"), ((PROMPT, ""), "response is empty"), ((PROMPT, []), "response is empty")],
)
def test_bad_prompts_and_responses(tok, arguments, message):
    with pytest.raises(ValueError, match=message):
        build_sample(tok, *arguments)


@pytest.mark.parametrize(("options", "message"), [
    ({"output": "Paris"}, "'Paris' does not occur"), ({"output": re.compile("Q+")}, "pattern 'Q\\+' does not occur"),
    ({"output": re.compile(rb"\d+")}, "is one for bytes: compile it from a text"),
    ({"output": re.compile(r"is|(Paris)")}, "matches, but no words"),
    ({"output": re.compile(r"Q*")}, "matches, but no words"),
    ({"output": "The number", "reasoning": "Bye."}, "'Bye.' does not occur .* before the output"),
    ({"output": "The number", "reasoning": "Paris"}, "does not occur in the response '<think>.*before the output"),
    ({"output": b"7261"}, "output must be a text, .* got b'7261'"),
    ({"output": b"72"}, "output must be a text, .* got b'72'"),
    ({"reasoning": (1, 2, 3)}, "reasoning must be a text, .* got \\(1, 2, 3\\)"),
    ({"output": None}, "output must be .* got None"),
    ({"output": (0, 3)}, "output must be .* token range of the response"),
    ({"output": (9999, 10001)}, "output must be .* token range of the response"),
    ({"evidence": [(5, 5)]}, "evidence range"),
])  # fmt: skip
def test_bad_locators(tok, options, message):
    with pytest.raises(ValueError, match=message):
        build_sample(tok, PROMPT, RESPONSE, **options)


@pytest.mark.parametrize("pattern", ["^The number", r"^\w+ number", "(?m)^The number", r"^(The number) is"])
def test_a_pattern_may_begin_where_the_answer_does(tok, pattern):
    found = build_sample(tok, PROMPT, RESPONSE, output=re.compile(pattern))
    assert words(tok, found, "output").strip() == "The number"
    assert words(tok, found, "reasoning") == "The text says 日本 🦜.\nSo it is 7261."


def test_half_a_surrogate_pair_is_refused(tok):
    pair, mended = "\ud83e\udd9c", "🦜"
    for arguments in ((f"Is it {pair[0]}?", "Yes."), (PROMPT, f"Yes {pair}.")):
        with pytest.raises(ValueError, match="half a surrogate pair, '.ud83e', .* try text.encode"):
            build_sample(tok, *arguments)
    with pytest.raises(ValueError, match="half a surrogate pair"):
        build_sample(tok, PROMPT, "Yes.", system=pair)
    assert pair.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == mended  # what the message advises
    assert pair[0].encode("utf-16", "surrogatepass").decode("utf-16", "replace") == "\ufffd"


def test_slow_tokenizers_are_refused():
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="fast tokenizer"):
        tokenise(Slow(), "x")
