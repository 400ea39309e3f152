"""What FlashTrace does with replies and cases that are easy to get wrong: ``python -m scripts.robustness_table``.

Writes docs/robustness.md. The replies are read anew at every run.
"""

from __future__ import annotations

from pathlib import Path

from flashtrace_lib.text.locate import locate_segments

PAGE = Path(__file__).resolve().parent.parent / "docs" / "robustness.md"
CLOSED = "<think>\n\n</think>\n\n"
CHANNEL, FINAL = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"
# What is shown of it, (end of the prompt, reply), T, O, a pattern of the caution.
REPLIES = (
    ("think tags", ("", "<think>We add.</think>It is 7."), "We add.", "It is 7.", ""),
    ("other case, blanks", ("", "< Think >We add.</ THINK >\nIt is 7."), "We add.", "It is 7.", ""),
    ("another tag", ("", "<reasoning>We add.</reasoning>It is 7."), "We add.", "It is 7.", ""),
    ("Seed", ("", "<seed:think>We add.</seed:think>It is 7."), "We add.", "It is 7.", ""),
    ("Kimi", ("", "◁think▷We add.◁/think▷It is 7."), "We add.", "It is 7.", ""),
    ("Mistral", ("", "[THINK]We add.[/THINK]It is 7."), "We add.", "It is 7.", ""),
    ("OpenThinker", ("",
     "<|begin_of_thought|>We add.<|end_of_thought|>\n<|begin_of_solution|>It is 7.<|end_of_solution|>"),
     "We add.", "It is 7.", ""),
    ("Command", ("", "<|START_THINKING|>We add.<|END_THINKING|><|START_RESPONSE|>It is 7.<|END_RESPONSE|>"),
     "We add.", "It is 7.", ""),
    ("Apertus", ("", "<|inner_prefix|>We add.<|inner_suffix|>It is 7."), "We add.", "It is 7.", ""),
    ("LongCat", ("<longcat_think>", "We add.</longcat_think>It is 7."), "We add.", "It is 7.", ""),
    ("MiniMax M3", ("", "<mm:think>We add.</mm:think>It is 7."), "We add.", "It is 7.", ""),
    ("Hunyuan 4", ("<think:6124c78e>", "We add.</think:6124c78e>It is 7."), "We add.", "It is 7.", ""),
    ("openPangu", ("", "[unused16]We add.[unused17]It is 7."), "We add.", "It is 7.", ""),
    ("Solar Open 2", ("<|think:start|>", "We add.<|think:end|>It is 7."), "We add.", "It is 7.", ""),
    ("Solar Open", ("<|begin|>assistant", "<|think|>We add.<|end|><|begin|>assistant<|content|>It is 7.<|end|>"),
     "We add.", "It is 7.", ""),
    ("bars and a slash", ("", "<|think|>We add.<|/think|>It is 7."), "We add.", "It is 7.", ""),
    ("PLaMo 3", ("", "<|plamo:begin_think:plamo|>We add.<|plamo:end_think:plamo|>It is 7."), "We add.", "It is 7.", ""),
    ("K2 Horizon", ("<ifm|think_fast>", "We add.</ifm|think_fast>It is 7."), "We add.", "It is 7.", ""),
    ("Kimi K3", ("<|open|>think<|sep|>",
                 "We add.<|close|>think<|sep|><|open|>response<|sep|>It is 7.<|close|>response<|sep|>"),
     "We add.", "It is 7.", ""),
    ("Muse Glimmer", ("<|start|>assistant",
                      " to=self<|message|>We add.<|eom|><|start|>assistant to=user<|message|>It is 7.<|eot|>"),
     "We add.", "It is 7.", ""),
    ("gpt-oss", ("<|start|>assistant", f"{CHANNEL}We add.{FINAL}It is 7.<|return|>"), "We add.", "It is 7.", ""),
    ("gpt-oss, words in between",
     ("", f"{CHANNEL}We add.<|end|><|start|>assistant<|channel|>commentary<|message|>I look it up.{FINAL}It is 7."),
     "We add.", "It is 7.", "'I look it up.'"),
    ("Granite", ("", "Here is my thought process:\nWe add.\n\nHere is my response:\nIt is 7."),
     "We add.", "It is 7.", ""),
    ("Apriel", ("Here are my reasoning steps:\n", "We add.\n[BEGIN FINAL RESPONSE]\nIt is 7.\n[END FINAL RESPONSE]"),
     "We add.", "It is 7.", ""),
    ("Gemma 4's closed block, reasoning in another",
     ("<|channel>thought\n<channel|>", "<think>\nWe add.\n</think>\n\nIt is 7."),
     "We add.", "It is 7.", ""),
    ("a bold answer behind a bold label", ("", "We add.\n\n**Final Answer:** **7**"), "We add.", "**7**", ""),
    ("answer tags", ("", "We add. <answer>It is 7.</answer>"), "We add.", "It is 7.", ""),
    ("both", ("", "<think>We add.</think><answer>It is 7.</answer>"), "We add.", "It is 7.", ""),
    ("answer tags amid words", ("", "<think>We add.</think>So: <answer>7</answer> Bye."),
     "We add.", "7", "'So:', 'Bye.'"),
    ("the template opens", ("<think>\n", "We add.</think>It is 7."), "We add.", "It is 7.", ""),
    ("both open", ("<think>\n", "<think>\nWe add.</think>It is 7."), "We add.", "It is 7.", ""),
    ("the template closes", (CLOSED, "It is 7."), "", "It is 7.", ""),
    ("an empty block", ("", f"{CLOSED}It is 7."), "", "It is 7.", ""),
    ("closed, never opened", ("", "We add.</think>It is 7."), "We add.", "It is 7.", "neither the prompt nor"),
    ("cut while it thinks", ("<think>\n", "We add"), "", "", "never closes it, .*--max-new-tokens"),
    ("nothing behind", ("", "<think>We add.</think>"), "", "", "holds no answer"),
    ("opened twice", ("", "<think><think>We add.</think>It is 7."), "We add.", "It is 7.", ""),
    ("two blocks, words between", ("", "<think>Hm.</think>Wait. <think>We add.</think>It is 7."), "We add.", "It is 7.",
     "'Hm.', 'Wait.'"),
    ("opened behind the answer", ("", "<think>We add.</think>It is 7.<think>Or"), "We add.", "It is 7.", "'Or'"),
    ("a tag in the answer's code", ("", "<think>We add.</think>Write `'</think>'`."), "We add.", "Write `'</think>'`.",
     "taken for words"),
    ("tags spoken of", ("", "The <think> tag ends with </think> tags."), "", "The <think> tag ends with </think> tags.",
     "marks no reasoning"),
    ("a box", ("", "We add: \\boxed{7}"), "We add:", "\\boxed{7}", ""),
    ("a label, a note", ("", "We add.\n\n**Final answer:** 7\n\nNote: I may err."),
     "We add.", "7", "'Note: I may err.'"),
    ("a label in another language", ("", "我们相加。因此，最终答案是：7"), "我们相加。", "7", ""),
    ("a label, lines of Windows", ("", "We add.\r\n\r\n**Final Answer**\r\n\r\n7"), "We add.", "7", ""),
    ("an inequality", ("", "<think>We add.</think>p<t"), "We add.", "p<t", ""),
    ("four hashes", ("", "We add.\n#### 7"), "We add.", "7", ""),
    ("a sentence", ("", "We add. So the final answer is 7.\nI hope this helps!"),
     "We add.", "7.", "'I hope this helps!'"),
    ("no mark at all", ("", "It is 7."), "", "It is 7.", "marks no reasoning"),
)  # fmt: skip
RESPONSES, CONVERSATIONS, UNITS, MODELS = "Responses", "Conversations and ids", "Units and metrics", "Models"
CASES = {
    RESPONSES: (
        ("the answer is cut at `max_new_tokens`", "explained, with a caution that names the number and the option"),
        ("the reasoning is cut at `max_new_tokens`",
         "an error that names the number and the option; what the model wrote is kept in a file that it names"),
        ("token ids without an end token", "explained, with a caution"),
        ("a second turn behind the end token", "the first turn is explained; a caution quotes what was left out"),
        ("marks that are tokens of their own",
         "found as tokens; the same letters spelled by other tokens are words"),
        ("a token that holds words and a part of a tag", "context, with a caution"),
        ('`output="…"`, `output=("…", 2)`, a pattern, a token range', "goes before every mark"),
    ),
    CONVERSATIONS: (
        ("`reasoning`, `reasoning_content`, `thinking`, or parts of a content that hold it",
         "read; two that differ are refused"),
        ("the reasoning of the last answer", "put in the template's own format where that shows, else in `<think>`"),
        ("a template that cuts the reasoning out of earlier messages", "a caution names the message and the words"),
        ("ids as they were sampled, an emoji cut in half", "explained as they are; a caution if their text has others"),
        ("ids outside the vocabulary, or no whole numbers", "refused"),
        ("line ends of Windows in a file", "kept; a byte order mark and the file's last line end are not"),
        ("a template that takes lists of parts alone", "is given parts"),
        ("a tool's message that the template writes as JSON", "its words are those that the model reads"),
        ("a system message that the template refuses", "an error: put it into the user's turn"),
        ("any other error of a template", "passed on, with a remedy"),
        ("letters composed (NFC) or decomposed (NFD)", "a passage is found in either form"),
    ),
    UNITS: (
        ("marks of the template between sentences", "belong to no unit; never ranked, never masked"),
        ("prose wrapped at a width", "lines of one sentence are joined"),
        ("a list, a table, code, JSON, a log", "a unit a line, and a caution where most of the input is lines"),
        ("`1.1.`, `<!`, an ellipsis, an abbreviation, full stops of other scripts", "no sentence ends, or one does"),
        ("tied scores in recovery, R-precision, AUROC", "the expectation over all orders of the tied tokens"),
        ("tied scores in a deletion curve", "masked in a random order that the sample fixes"),
    ),
    MODELS: (
        ("a compiled model, as a whole or in parts", "runs uncompiled; the same scores"),
        ("DataParallel, DDP, a value head", "the model inside is explained"),
        ("FSDP, ZeRO-3", "an error: load whole weights"),
        ("another wrapper, a bare decoder, an encoder-decoder", "an error that says what to pass"),
        ("several threads", "take turns; the same results"),
        ("a `generate` of the caller's beside a trace", "goes on unchanged"),
        ("LoRA on the embedding or the head", "equals the merged model"),
        ("prompt, prefix and p-tuning", "methods that change the input are right; others name a remedy"),
        ("a batch that predicts something else than single passes", "refused"),
        ("a layer without gradients (int8, GPTQ, AWQ, …)", "methods that need gradients name its class"),
        ("a packed `o_proj`", "an error that names its class"),
        ("weights on the disk", "methods that change the input are right; others say so"),
        ("a GGUF file, or a folder with `gguf_file=`", "loads"),
        ("a folder with a vision tower", "its text path, else a short error"),
        ("a tokenizer beside an adapter", "is used"),
        ("`revision`, `token`, `cache_dir`, `trust_remote_code`, `subfolder`",
         "reach the tokenizer and an adapter's base as well"),
    ),
}  # fmt: skip
INTRODUCTION = """\
# Replies and cases that are easy to get wrong

What is done with each; `python -m scripts.robustness_table` writes this page. What a format leaves open is a caution,
which `Trace.cautions()`, the page and the command line show; `Trace.format` names the format.

## Where the reasoning ends

The end of the prompt stands before a bar where it matters. A line end is shown as ⏎.

| reply | | T | O | format | caution or error |
|---|---|---|---|---|---|
"""


def found(before: str, reply: str) -> tuple[str, str, str, str]:
    """T, O, cautions (or the error) and format of a reply."""
    try:
        located = locate_segments(reply, "auto", "auto", before)
    except ValueError as error:
        return "", "", str(error), ""
    thought = located.reasoning or (0, 0)
    return reply[slice(*thought)], reply[slice(*located.output)], " ".join(located.cautions), located.format


def page() -> str:
    """The page as it should be."""
    rows = []
    for name, (before, reply), *_ in REPLIES:
        thought, answer, caution, form = found(before, reply)
        shown = f"{_code(before)} \\| {_code(reply)}" if before else _code(reply)
        rows.append(f"| {name} | {shown} | {_code(thought)} | {_code(answer)} | {_code(form)} | {_cell(caution)} |")
    lines = [INTRODUCTION + "\n".join(rows)]
    for section, cases in CASES.items():
        lines += [f"\n## {section}\n\n| case | what is done |\n|---|---|"]
        lines += [f"| {case} | {done} |" for case, done in cases]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "⏎")


def _code(text: str) -> str:
    """Text as code in a cell of a table; two backticks around text that has one."""
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text}{ticks}".replace("|", "\\|").replace("\r\n", "⏎").replace("\n", "⏎") if text else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
