"""Synthetic records: schemas as the real ones, answers as a solver finds them, splits that share nothing."""

import hashlib
import json
import random
import re
import subprocess
import sys
from fractions import Fraction

import pytest

from flashtrace_book.paths import data_dir
from flashtrace_lib.tasks import is_correct, score
from flashtrace_lib.tasks.datasets import synthetic_examples, synthetic_records
from flashtrace_lib.tasks.registry import TASKS
from flashtrace_lib.tasks.synthetic.competition_math import TEXTS as MATH
from flashtrace_lib.tasks.synthetic.exercises import TEXTS as EXERCISES
from flashtrace_lib.tasks.synthetic.exercises import exercise
from flashtrace_lib.tasks.synthetic.splits import check_split, draw_in_split, in_split, pick, wording
from flashtrace_lib.tasks.synthetic.word_problems import TEXTS as WORD
from flashtrace_lib.tasks.synthetic.wordlists import WORDS

SCHEMAS = {
    "math500": {"problem", "solution", "answer", "subject", "level", "unique_id"},
    "math": {"problem", "solution", "type", "level"},
    "gsm8k": {"question", "answer"},
    "morehopqa": {"_id", "question", "answer", "previous_question", "previous_answer", "question_decomposition",
                  "context", "answer_type", "no_of_hops", "reasoning_type"},
    "hotpotqa": {"id", "question", "answer", "type", "level", "supporting_facts", "context"},
    "exercism": {"slug", "files"},
}  # fmt: skip
HASHES = {
    "math500": "a7e442638cfe7f46", "math": "d1e402d8c29afd27", "gsm8k": "7cc7f5e2edd2839a",
    "morehopqa": "4103f1138db63b7f", "hotpotqa": "e71d93e8ff057675", "exercism": "afaf2485b3e4842b",
}  # fmt: skip
KINDS = tuple(TASKS)
PUBLISHED = tuple(kind for kind in KINDS if kind != "math")  # of which a data directory holds real records


def records(kind, n=120, split="eval"):
    return synthetic_records(kind, n, seed=7, split=split)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_records_it_always_gave(kind):
    """The adapter is trained on these records, and stored results belong to them."""
    made = [synthetic_records(kind, 100, seed, split) for seed in (0, 7) for split in ("train", "eval")]
    assert hashlib.sha256(json.dumps(made).encode()).hexdigest()[:16] == HASHES[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", ("train", "eval"))
def test_records_have_the_schema_and_are_json(kind, split):
    for record in records(kind, 30, split):
        assert SCHEMAS[kind] <= set(record)
        assert json.loads(json.dumps(record)) == record


def test_enough_templates():
    assert len(WORD.problems) >= 12 and len(MATH.problems) >= 10 and len(EXERCISES) >= 6
    for name, kinds in (("gsm8k", WORD.problems), ("math500", MATH.problems), ("exercism", EXERCISES)):
        wordings = [text for kind in kinds.values() for text in kind.wordings]
        assert len(set(wordings)) == len(wordings)
        drawn = {r["template"] for r in records(name, 300)}
        assert len(drawn) == len(kinds)  # every kind has a held-out wording, and all are drawn


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_template_number_or_name(kind):
    train, held_out = records(kind, 400, "train"), records(kind, 200)
    assert {r["template"] for r in train}.isdisjoint(r["template"] for r in held_out)

    def numbers(rs):
        return {(r["template"].split("/")[0], tuple(r.get("numbers", ()))) for r in rs if r.get("numbers")}

    def names(rs):
        return {name for r in rs for name in r.get("names", ())}

    assert numbers(train).isdisjoint(numbers(held_out)) and names(train).isdisjoint(names(held_out))
    if kind == "gsm8k":  # given names are the people's first ones
        first = [set(re.findall(r"\b[A-Z][a-z]+\b", " ".join(r["evidence"]))) for r in (*train, *held_out)]
        people = [[n for n in words if n in WORDS.first_names] for words in first]
        assert all(in_split(n, "train") for part in people[:400] for n in part)
        assert all(in_split(n, "eval") for part in people[400:] for n in part) and any(people)


def test_a_record_does_not_depend_on_their_number():
    for kind in KINDS:
        assert synthetic_records(kind, 5, 3)[:2] == synthetic_records(kind, 2, 3)
        assert synthetic_records(kind, 2, 3) != synthetic_records(kind, 2, 4)


@pytest.mark.parametrize("split", ("train", "eval"))
def test_word_problems_compute(split):
    for record in records("gsm8k", split=split):
        lines = record["answer"].split("\n")
        known = {int(n) for n in re.findall(r"\d+", record["question"])}
        for line in lines[:-1]:
            a, sign, b, steps, mark, c = re.search(
                r"(\d+) ([-+*/]) (\d+) = ([-+*/=\d ]*)<<(.*)=\d+>>(\d+)", line
            ).groups()
            assert all(eval(step) == int(c) for step in steps.split("=")[:-1])
            assert {int(a), int(b)} <= known and mark == f"{a}{sign}{b}"  # each number was given or has been computed
            value = {"+": Fraction(a) + int(b), "-": Fraction(a) - int(b), "*": Fraction(a) * int(b),
                     "/": Fraction(int(a), int(b))}[sign]  # fmt: skip
            assert value == int(c)
            known.add(int(c))
        assert lines[-1] == f"#### {c}"
        assert set(map(str, record["numbers"])) <= set(re.findall(r"\d+", " ".join(record["evidence"])))


def solve_math(name, numbers):
    """The answer, found by trying or by counting."""
    brute = {
        "linear": lambda a, x, b: x,
        "evaluate": lambda a, b, n: (n + a) * n + b,
        "remainder": lambda a, b: next(r for r in range(b) if (a - r) % b == 0),
        "gcd": lambda a, b: max(k for k in range(1, a + 1) if a % k == b % k == 0),
        "percent": lambda a, b: Fraction(a, 100) * b,
        "rectangle": lambda a, b: a + b + a + b,
        "area": lambda a, b: Fraction(a * b, 2),
        "angle": lambda a, b: 180 - (a + b),
        "mean": lambda a, b, c: Fraction(a + b + c, 3),
        "probability": lambda a, b: Fraction(a, a + b),
        "sequence": lambda a, d, n: list(range(a, a + d * n, d))[n - 1],
        "sum_to": lambda n: sum(range(n + 1)),
    }
    return Fraction(brute[name](*numbers))


@pytest.mark.parametrize("split", ("train", "eval"))
def test_math_problems_compute(split):
    for record in records("math500", split=split):
        truth = solve_math(record["template"].split("/")[0], record["numbers"])
        fraction = re.fullmatch(r"\\frac\{(\d+)\}\{(\d+)\}", record["answer"])
        assert (Fraction(int(fraction[1]), int(fraction[2])) if fraction else Fraction(record["answer"])) == truth
        assert record["solution"].endswith(f"The answer is $\\boxed{{{record['answer']}}}$.")
        for left, right in re.findall(r"\$([^$=]*[-+/^][^$=]*) = (\d+)\$", record["solution"]):
            value = left.replace("\\cdot", "*").replace("^", "**")
            if "x" not in value:
                assert eval(value) == int(right), record["solution"]
        assert "<" not in record["problem"] + record["solution"]  # every place is filled


@pytest.mark.parametrize("split", ("train", "eval"))
def test_bridge_questions_follow_from_their_paragraphs(split):
    for record in records("morehopqa", split=split):
        context = {title: "".join(sentences) for title, sentences in record["context"]}
        assert len(context) == 2
        *hops, last = record["question_decomposition"]
        for hop in hops:
            assert hop["answer"] in context[hop["paragraph_support_title"]]
        assert hops[0]["paragraph_support_title"] in record["question"]
        assert record["previous_answer"] == hops[-1]["answer"] and last["answer"] == record["answer"]
        for detail in last["details"]:
            if found := re.fullmatch(r"What is (\d+) ([-+*]) (\d+)\?", detail["question"]):
                a, sign, b = int(found[1]), found[2], int(found[3])
                assert int(detail["answer"]) == {"+": a + b, "-": a - b, "*": a * b}[sign]
            elif found := re.fullmatch(r"What is the first letter of (\w+)\?", detail["question"]):
                assert detail["answer"] == found[1][0]
        assert record["no_of_hops"] == len(hops) + len(last["details"])


@pytest.mark.parametrize("split", ("train", "eval"))
def test_documents_hold_their_answer_once(split):
    seen = set()
    for record in records("hotpotqa", split=split):
        context = dict(zip(record["context"]["title"], record["context"]["sentences"], strict=True))
        assert len(context) == 10
        facts = list(zip(record["supporting_facts"]["title"], record["supporting_facts"]["sent_id"], strict=True))
        told = [context[title][i] for title, i in facts]
        seen.add(record["type"])
        if record["type"] == "bridge":
            (work, _), (person, _) = facts
            assert work in record["question"] and person in told[0] and record["answer"] in told[1]
            assert person not in record["question"]
        else:
            years = [int(re.search(r"\b1[89]\d\d\b", text)[0]) for text in told]
            born = dict(zip((title for title, _ in facts), years, strict=True))
            assert record["answer"] == min(born, key=born.get) and all(title in record["question"] for title in born)
    assert seen == {"bridge", "comparison"}


@pytest.mark.parametrize("kind", KINDS)
def test_examples_teach_the_right_answer_and_mark_the_evidence(kind):
    for example in synthetic_examples(kind, 40):
        assert is_correct(example, example.output) and score(example, "I do not know.") == 0.0
        assert example.reasoning and example.output
        marked = [example.prompt[a:b] for a, b in example.evidence]
        # A problem of MATH is needed as a whole, and nothing is marked.
        assert bool(marked) == (kind not in ("math500", "math")) and all(text == text.strip() for text in marked)
        if kind in ("morehopqa", "hotpotqa"):
            assert all(text in example.reasoning for text in marked)
    ids = [example.id for example in synthetic_examples(kind, 40)]
    assert len(set(ids)) == 40


def test_scorers_of_form():
    boxed, code = synthetic_examples("gsm8k", 1)[0], synthetic_examples("exercism", 1)[0]
    (answer,), (solution,) = boxed.answers, code.answers
    assert score(boxed, f"so \\boxed{{ {answer} }}.") == 1.0
    assert score(boxed, f"\\boxed{{1{answer}}}") == score(boxed, answer) == score(boxed, f"\\boxed{{{answer}") == 0.0
    assert score(code, solution.replace("):\n", '):\n    """What it does."""\n')) == 1.0
    assert score(code, f"Here:\n```python\n{solution}\n```\nDone.") == 1.0
    assert score(code, solution.replace("return", "return 1 +")) == score(code, "```python\ndef (\n```") == 0.0


def test_exercises_pass_their_tests_and_the_stubs_fail(tmp_path):
    """All kinds, in both splits, in one process of their own."""
    rng = random.Random(0)
    found = {}
    while len(found) < 2 * len(EXERCISES):
        for split in ("train", "eval"):
            record = exercise(rng, split)
            found.setdefault((record["slug"], split), record)
    runs = []
    for (slug, split), record in found.items():
        module, files = slug.replace("-", "_"), record["files"]
        for what in ("solution", "stub"):
            folder = tmp_path / split / what / slug
            folder.mkdir(parents=True)
            text = files[".meta/example.py"] if what == "solution" else files[f"{module}.py"]
            (folder / f"{module}.py").write_text(text)
            (folder / f"{module}_test.py").write_text(files[f"{module}_test.py"])
            runs.append((str(folder), module, what == "solution"))
    program = (
        "import json, sys, unittest\n"
        "for folder, module, passes in json.load(sys.stdin):\n"
        "    sys.path.insert(0, folder)\n"
        "    suite = unittest.defaultTestLoader.loadTestsFromName(module + '_test')\n"
        "    result = unittest.TextTestRunner(stream=open('/dev/null', 'w')).run(suite)\n"
        "    assert result.testsRun >= 3 and result.wasSuccessful() == passes, (folder, result)\n"
        "    sys.path.remove(folder)\n"
        "    for name in (module, module + '_test'): del sys.modules[name]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=json.dumps(runs), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(data_dir() is None, reason="FLASHTRACE_DATA_DIR names no folder of real records")
@pytest.mark.parametrize("kind", PUBLISHED)
def test_real_records_become_examples(kind):
    text = (data_dir() / TASKS[kind].files[0]).read_text()
    real = [json.loads(line) for line in text.splitlines()] if TASKS[kind].files[0].endswith("l") else json.loads(text)
    synthetic = records(kind, 1)[0]
    assert SCHEMAS[kind] <= set(real[0]) | {"id"} and SCHEMAS[kind] <= set(synthetic)
    for i, record in enumerate(real):
        example = TASKS[kind].example(record, f"real-{i}")
        assert example.prompt and score(example, example.output) == 1.0
        if kind == "math500":  # the whole of MATH has no field for the answer: it is read from the box
            bare = TASKS["math"].example({name: record[name] for name in ("problem", "solution")}, f"real-{i}")
            assert bare.prompt == example.prompt and score(bare, example.output) == 1.0
        if kind == "hotpotqa":
            assert len(example.evidence) >= 2


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="unknown kind 'squad'"):
        synthetic_records("squad", 1)
    with pytest.raises(ValueError, match="n must be a whole number"):
        synthetic_records("gsm8k", -1)
    with pytest.raises(ValueError, match="split must be one of train, eval"):
        check_split("test")
    with pytest.raises(ValueError, match="lacks answer"):
        TASKS["gsm8k"].example({"question": "What?"}, "x")
    with pytest.raises(ValueError, match="does not end in '#### N'"):
        TASKS["gsm8k"].example({"question": "What?", "answer": "4"}, "x")
    with pytest.raises(ValueError, match="no complete"):
        TASKS["math500"].example({"problem": "?", "solution": "\\boxed{4", "answer": "4"}, "x")
    with pytest.raises(ValueError, match="no file .docs/instructions.md"):
        TASKS["exercism"].example({"slug": "a-b", "files": {"x": "y"}}, "x")
    with pytest.raises(ValueError, match="does not stand in the prompt"):
        TASKS["gsm8k"].example({"question": "What?", "answer": "#### 4", "evidence": ["Who"]}, "x")
    with pytest.raises(ValueError, match="add more"):
        pick(random.Random(0), [next(t for t in "abcdefgh" if in_split(t, "train"))], "eval")
    with pytest.raises(ValueError, match="two wordings"):
        wording(random.Random(0), ["one"], "train")


def test_splits_are_a_partition():
    texts = [str(i) for i in range(2000)]
    held_out = [text for text in texts if in_split(text, "eval")]
    assert all(in_split(text, "train") != in_split(text, "eval") for text in texts)
    assert 0.15 < len(held_out) / len(texts) < 0.25
    rng = random.Random(0)
    assert in_split(f"n|{draw_in_split(lambda: rng.randrange(99), 'n', 'eval')}", "eval")
