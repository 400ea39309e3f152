"""Problems about the codes of boxes."""

from flashtrace_lib.tasks.example import Example


def example(i: int, answer: str = "4127") -> Example:
    prompt = f"Note {i}. The code of box {i} is {answer}. What is the code of box {i}?"
    start = prompt.index("The code")
    return Example(
        f"box-{i}", "boxes", "boxes", prompt, (answer,), ((start, prompt.index(". What") + 1),),
        reasoning=f"The text says that the code of box {i} is {answer}.", output=f"The code is {answer}.",
        metadata={"seed": i},
    )  # fmt: skip


EXAMPLES = [example(i) for i in range(6)]
