"""The recipes of CONTRIBUTING.md work as they are written: their examples pass what the book asks of its own."""

import importlib.util
import re
import sys

import pytest
import torch

from flashtrace_lib.methods import METHODS
from flashtrace_lib.tasks import TASKS, Task, is_correct, task_examples
from flashtrace_lib.tasks.datasets import synthetic_examples
from flashtrace_lib.tasks.responses import true_response
from tests.environment import ROOT
from tests.methods import test_methods
from tests.oracles.planted import planted_model
from tests.oracles.tiny import tiny_model, tiny_sample

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def example(title, package, tmp_path, monkeypatch):
    """The first Python block of a section, as a module of a package."""
    section = re.search(rf"^## {title}\n(.*?)^## ", TEXT, re.M | re.S)[1]
    path = tmp_path / "contributed.py"
    path.write_text(re.search(r"```python\n(.*?)```", section, re.S)[1])
    spec = importlib.util.spec_from_file_location(f"{package}.contributed", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def saliency(tmp_path, monkeypatch):
    """The method of the recipe, registered."""
    method = example("A method", "flashtrace_lib.methods", tmp_path, monkeypatch).Saliency
    monkeypatch.setitem(METHODS, method.name, method)
    return method


def test_the_method_goes_through_the_matrix(saliency):
    name = saliency.name
    test_methods.test_model_is_bit_identical_afterwards(name)
    test_methods.test_result_has_the_common_form(name, (9, 12))
    test_methods.test_result_has_the_common_form(name, (9, 9))
    for position, kind in [(2, 0), (6, 2), (13, 3)]:
        test_methods.test_faithful_methods_rank_the_planted_evidence_first(planted_model(), name, position, kind)


def test_the_method_is_the_gradient_that_it_says(saliency):
    model, sample = tiny_model("llama").double(), tiny_sample()
    signed = torch.tensor(saliency(order=1).attribute(model, sample).metadata["signed"], dtype=torch.float64)
    (first, _), (start, stop) = sample.segments.prompt, sample.segments.output
    base = model.get_input_embeddings()(sample.input_ids[None]).detach()

    def log_p(embeddings):
        with torch.no_grad():
            found = model(inputs_embeds=embeddings).logits[0].log_softmax(-1)[range(start - 1, stop - 1)]
        return found.gather(1, sample.input_ids[start:stop, None]).sum()

    moved = torch.eye(base.shape[-1], dtype=torch.float64) * 1e-3
    for token in (0, 3):
        slopes = []
        for step in moved:
            up, down = base.clone(), base.clone()
            up[0, first + token] += step
            down[0, first + token] -= step
            slopes.append((log_p(up) - log_p(down)) / 2e-3)
        assert torch.stack(slopes).abs().sum().item() == pytest.approx(signed[token].item(), rel=1e-2)


def test_the_task_is_one_file_and_one_line(tmp_path, monkeypatch):
    keys = example("A task", "flashtrace_lib.tasks", tmp_path, monkeypatch)
    line = re.search(r'TASKS\["(\w+)"\] = (Task\(.*?\))', TEXT)
    monkeypatch.setitem(TASKS, line[1], eval(line[2], {"Task": Task, **vars(keys)}))
    examples = task_examples("keys", 5)
    assert examples == task_examples("keys", 5) != task_examples("keys", 5, seed=1) and len(examples) == 5
    for one in examples:
        (start, stop), (answer,) = one.evidence[0], one.answers
        assert answer in one.prompt[start:stop] and one.prompt[:-1].split()[-1] in one.prompt[start:stop]
        assert one.prompt[one.question :].startswith("Which key")
        assert is_correct(one, true_response(one)) and not is_correct(one, "The yellow key.")
    trained = {answer for one in synthetic_examples("keys", 20, split="train") for answer in one.answers}
    assert not trained & {answer for one in task_examples("keys", 20) for answer in one.answers}
    with pytest.raises(ValueError, match="keys is not on the hub: name a folder that holds it"):
        task_examples("keys", 5, source="hub")
