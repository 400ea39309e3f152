"""The wordings of the synthetic problems: a mistake in a YAML file is named with file and line."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from flashtrace_book.reasoner import reading
from flashtrace_book.reasoner.reading import story_texts, texts
from flashtrace_lib.tasks.synthetic import (
    competition_math,
    documents_texts,
    exercises,
    long_exercises,
    long_word_problems,
    multihop_texts,
    template_files,
    word_problems,
)
from flashtrace_lib.tasks.synthetic.template_files import check_placeholders, fill, read_templates, sentences

FOLDER = Path(template_files.__file__).parent / "templates"
READERS = {
    "competition_math.yaml": competition_math.read_texts,
    "documents_qa.yaml": documents_texts.read_texts,
    "exercises.yaml": exercises.read_texts,
    "long_exercises.yaml": long_exercises.read_texts,
    "long_word_problems.yaml": long_word_problems.read_texts,
    "multihop_qa.yaml": multihop_texts.read_texts,
    "reading_questions.yaml": texts.read_texts,
    "reading_stories.yaml": story_texts.read_stories,
    "word_problems.yaml": word_problems.read_texts,
}


@dataclass(frozen=True)
class Greetings:
    title: str
    wordings: tuple[str, ...]


def read(tmp_path, text, shape=Greetings):
    path = tmp_path / "greetings.yaml"
    path.write_text(text, encoding="utf-8")
    read_templates.cache_clear()
    return read_templates(str(path), shape)


def test_a_file_is_read_once_into_its_shape(tmp_path):
    found = read(tmp_path, "title: Morning  # a comment\nwordings:\n  - Good morning, <who>!\n  - Grüß\n    dich.\n")
    assert found == Greetings("Morning", ("Good morning, <who>!", "Grüß dich."))
    assert found.wordings[1].where == "greetings.yaml, line 4"
    assert read_templates(str(tmp_path / "greetings.yaml"), Greetings) is found
    assert read(tmp_path, "b: {x: 'yes'}\na: {x: y z}", dict[str, dict[str, str]]) == {
        "b": {"x": "yes"},
        "a": {"x": "y z"},
    }


@pytest.mark.parametrize(
    "text, message",
    [
        ("title: A\nwordings: [a]\nnote: b", "line 3: unknown field 'note', known are title, wordings"),
        ("\ntitle: A", "line 2: lacks wordings"),
        ("title: A\ntitle: B\nwordings: [a]", "line 2: 'title' occurs twice"),
        ("title: A\nwordings:\n  - a\n  - b\n  - a", "line 5: 'a' occurs twice"),
        ("title: A\nwordings: a", "line 2: a list of texts is expected"),
        ("title: A\nwordings: []", "line 2: a list of texts is expected"),
        ("title: [A]\nwordings: [a]", "line 1: a text is expected"),
        ("title: yes\nwordings: [a]", "line 1: a text is expected, in quotes where it is a number, yes, no or null"),
        ("title: A\nwordings: [a, 1e3, 12]", "line 2: a text is expected"),
        ("title: A\nwordings:\n  -\n  - b", "line 3: a text is expected"),
        ("- title\n- wordings", "line 1: a mapping of names is expected"),
        ("title: A: B\nwordings: [a]", "line 1: mapping values are not allowed"),
        ("# nothing", "is empty"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(tmp_path, text, message):
    with pytest.raises(ValueError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith("greetings.yaml") and message in str(error.value)


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("competition_math.yaml", "Find $x$ if $<a>x + <b>", "Find $x$ if $<a>x + 1", "lacks the placeholder <b>"),
        (
            "competition_math.yaml",
            "Find $f(<n>)$",
            "Find $f(<z>)$",
            "unknown placeholder <z>, known are a, b, n, p, q, s, x",
        ),
        ("competition_math.yaml", "  gcd:", "  lcm:", "unknown problem 'lcm'"),
        ("competition_math.yaml", "\\boxed{<x>}", "\\boxed{}", "lacks the placeholder <x>"),
        ("documents_qa.yaml", "Born in <town> in <born>,", "Born in <town>,", "lacks the placeholder <born>"),
        ("documents_qa.yaml", "<person> left home early", "<person> left <town>", "<town> must stand in the text once"),
        (
            "documents_qa.yaml",
            "<person> left home early.",
            "<person> left. It rained.",
            "one sentence with a full stop",
        ),
        ("documents_qa.yaml", "Where was the <role> of <work> born?", "Where was he born?", "lacks the placeholder"),
        ("documents_qa.yaml", "  river_letter:", "  lake_letter:", "unknown kind of question 'lake_letter'"),
        (
            "documents_qa.yaml",
            "      - The life of <person> began in <town> in <born>.\n",
            "",
            "5 wordings for 'eval', at least 6",
        ),
        (
            "long_exercises.yaml",
            'and add "<s>". Otherwise',
            "and a mark. Otherwise",
            "the plan lacks the placeholder <s>",
        ),
        ("long_exercises.yaml", "hold <k> litres", "hold some litres", "lacks the placeholder <k>"),
        ("long_word_problems.yaml", "At <e> coins each, they bring <i>", "They bring <z>", "unknown placeholder <z>"),
        (
            "long_word_problems.yaml",
            "How many coins does the dealer pay?",
            "What are <e> coins?",
            "a question without a number",
        ),
        ("reading_questions.yaml", "coat, scarf", "anorak, scarf", "'anorak' must begin with a consonant"),
        (
            "reading_questions.yaml",
            "In <town> lives <who>. In",
            "Here lives <who>. In",
            "no sentence before the question holds <town>",
        ),
        ("exercises.yaml", "in the table of <k>", "in the table", "lacks the placeholder <k>"),
        ("exercises.yaml", "is-multiple:", "is-prime:", "unknown exercise 'is-prime'"),
        ("multihop_qa.yaml", "was <done> by <person>", "was <done>", "lacks the placeholder <person>"),
        ("multihop_qa.yaml", "turn <k>?", "turn old?", "lacks the placeholder <k>"),
        ("multihop_qa.yaml", "It has <weeks> chapters", "It has <pages> pages", "unknown placeholder <pages>"),
        ("multihop_qa.yaml", "<a> or <b> born first", "<a> or you born first", "lacks the placeholder <b>"),
        ("word_problems.yaml", "<who> keeps <c> <things>", "<who> keeps <d> <things>", "unknown placeholder <d>"),
        ("word_problems.yaml", "A jar holds <a>", "A jar holds some", "lacks the placeholder <a>"),
        ("word_problems.yaml", "      - Altogether there are <e> <things>.\n", "", "packs_plus takes 2 steps"),
        ("word_problems.yaml", "<other> was singing", "<aunt> was singing", "unknown placeholder <aunt>"),
    ],
)
def test_a_text_without_what_its_problem_needs_is_refused(tmp_path, name, old, new, message):
    folder = FOLDER if (FOLDER / name).exists() else reading.TEMPLATES
    before, found, after = (folder / name).read_text(encoding="utf-8").partition(old)
    assert found
    (tmp_path / name).write_text(before + new + after, encoding="utf-8")
    with pytest.raises(ValueError) as error:
        READERS[name](str(tmp_path / name))
    line, _, said = str(error.value).removeprefix(f"{name}, line ").partition(": ")
    assert message in said and abs(int(line) - before.count("\n") - 1) <= 1  # a text may begin on the line before


def test_a_problem_without_texts_is_refused(tmp_path):
    text = (FOLDER / "exercises.yaml").read_text(encoding="utf-8")
    (tmp_path / "few.yaml").write_text(text[: text.index("first-and-rest:")], encoding="utf-8")
    with pytest.raises(ValueError, match=r"^few\.yaml has no exercise first-and-rest$"):
        exercises.read_texts(str(tmp_path / "few.yaml"))


def test_placeholders_are_filled_and_sentences_told_apart():
    assert fill("<a> and {b} \\frac{<a>}{2}", {"a": 1}) == "1 and {b} \\frac{1}{2}"
    text = read_templates("word_problems.yaml", word_problems.Texts).asides[1]
    assert type(fill(text, {})) is str  # records hold plain texts
    check_placeholders(text, ())
    assert sentences("One. Two? It is 3.5!") == ["One.", "Two?", "It is 3.5!"]
