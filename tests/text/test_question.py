"""Where a prompt asks: what each task says of itself, and what is found where only the words tell."""

from pathlib import Path

import pytest

from flashtrace_lib.sample import Sample
from flashtrace_lib.tasks.datasets import task_examples
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.text import build_sample
from flashtrace_lib.text.sentences import asking
from tests.oracles.tiny_reasoner import load_tokenizer

RECORDS = Path(__file__).parents[1] / "records"
BEGINS = {  # the first words of the question, by the benchmark's template
    "mq_q2": "What are all the special magic numbers for ",
    "mv_v2": "What are all the special magic numbers for ",
    "h2_c3": "Question: Find all variables that are assigned the value ",
    "morehopqa": "Question: ",
    "hotpotqa": "Question: ",
    "exercism": "Use the above instructions to modify the supplied files: ",
}


def question_of(sample: Sample) -> str:
    """What the sample's own tokens read from its question to the end of its input."""
    return "".join(sample.tokens[sample.metadata["question_start"] : sample.segments.prompt[1]]).strip()


def built(example: Example) -> Sample:
    response = f"<think>\n{example.reasoning}\n</think>\n\n{example.output}"
    return build_sample(load_tokenizer(), example.prompt, response, places={"question": example.question})


def check_marked(example: Example) -> None:
    """The question is the rest of the prompt, begins as its template does, and is found among the tokens."""
    question, begins = example.prompt[example.question :], BEGINS[example.cell]
    assert question.startswith(begins) and begins not in question[len(begins) :]
    assert question_of(built(example)) == question.strip()


@pytest.mark.parametrize("cell", ["mq_q2", "mv_v2", "h2_c3"])
def test_ruler_marks_its_question(cell):
    for example in ruler_examples(load_tokenizer(), cell, 384, 2):
        check_marked(example)


@pytest.mark.parametrize("kind", ["morehopqa", "hotpotqa", "exercism"])
def test_records_mark_their_question(kind):
    for example in task_examples(kind, None, folder=RECORDS):
        check_marked(example)


@pytest.mark.parametrize("kind", ["gsm8k", "math500"])
def test_a_problem_asks_where_its_words_do(kind):
    for example in task_examples(kind, None, folder=RECORDS):
        question = question_of(built(example))
        assert question.endswith(("?", "$")) and example.prompt.rstrip().endswith(question)
        assert question.startswith(("How", "What", "In the final", "If the", "Convert", "Enter")), question


@pytest.mark.parametrize(
    "sentences, run",
    [
        (["Ann has 3 hens.", "How many eggs does she sell?"], (1, 2)),
        (["Write the name of the author as two letters. ", "Which are they?"], (0, 2)),
        (["The works are old.", "Write the name of the author as two letters. ", "Which are they?"], (1, 3)),
        (["Let $f(x) = x$.", "Compute $f(2)$.", "Express your answer as a fraction."], (1, 3)),
        (["Two dice are thrown.", "What is the chance of a 7? ", "(Both are fair.)"], (1, 2)),
        (["Given that $x = 2$, find $y$. ", "Both are whole."], (0, 1)),
        (["He asks, \"Is it?\" ", "She says no.", "Find the number."], (2, 3)),
        (["Find $x.", "$"], (0, 2)),
        (["The rest is known.", "So it is"], (1, 2)),
        (["安娜养蜜蜂。", "克拉拉养什么？", "请用一个词作答。"], (1, 2)),
        (["علي يربي الدجاج.", "ماذا يربي علي؟ ", "بكلمة واحدة."], (1, 2)),
        (["What is it?", "Question: Name the town", "It is small."], (1, 2)),
        (["Use it.", "## Question\n", "The town with hens\n", "Answer in one word.\n", "Ann lives here."], (1, 4)),
        (["Q: Is it red?", "A: no", "**Q2:** Is it blue?", "A:"], (2, 3)),
        (["Ann is old.", "**Is Ann old?**\n", "Be brief."], (1, 2)),
        (["<question>Is Ann old?</question>\n", "Ann is old."], (0, 1)),
        (["Ann is old.", "Question:"], (1, 2)),
        (["Q: Is it red?", "A: no", "It is old.", "Whose is it?"], (3, 4)),
        (["A text.", "Question: Which is it?", "This or that?"], (1, 3)),
        (["Q: Is it red?", "A: no", "Q: Is it blue?", "A: yes", "Tell the colour.", "In a word."], (4, 5)),
        (["Please summarise the text.", "Ann is old.", "Bob is not."], (0, 1)),
        (["Η Άννα έχει μέλισσες.", "Τι έχει η Άννα\u037e", "Με μία λέξη."], (1, 2)),
    ],
)  # fmt: skip
def test_where_only_the_words_tell(sentences, run):
    assert asking(sentences) == run


def test_no_sentence_asks_nothing():
    with pytest.raises(ValueError, match="without sentences"):
        asking([])


FACTS = "Anna keeps bees. Boris keeps goats. Clara keeps ducks. David keeps hens."


ASKED = {"role": "user", "content": "What does Clara keep?\nThink step by step."}


@pytest.mark.parametrize(
    ("prompt", "content"), [(f"{FACTS}\n\n{ASKED['content']}", FACTS),
    (f"Question: What does Clara keep?\n\nContext: {FACTS}", f"Context: {FACTS}"),
    (f"Use the text.\nWhat does Clara keep?\n{FACTS}", f"Use the text. {FACTS}"),
    ([{"role": "user", "content": "Q: who?"}, {"role": "assistant", "content": "Ann."}, ASKED], "Q: who? Ann."),
    ([{"role": "system", "content": "Be. " * 20}, ASKED, {"role": "tool", "content": FACTS}], "Be. " * 20 + FACTS)],
)  # fmt: skip
def test_the_rest_of_a_text_is_content_where_the_question_leads(prompt, content):
    sample = build_sample(load_tokenizer(), prompt, "ducks", whole=True)
    inside = [span for span in sample.sentences_in(sample.segments.prompt) if sample.is_content(span)]
    assert " ".join(" ".join("".join(sample.tokens[slice(*span)]) for span in inside).split()) == content


def test_a_question_outside_the_prompt_is_refused():
    with pytest.raises(ValueError, match=r"question range \(9, 4\) does not lie in the prompt of 4 characters"):
        Example("x", "t", "c", "Why?", ("so",), question=9)
