"""Files of training settings: every one loads, and what is wrong in one is named."""

import pytest

from flashtrace_book.reasoner import train
from flashtrace_book.reasoner.config import TrainingConfig, load_training_config, training_names
from flashtrace_book.reasoner.curriculum import TASKS
from tests.book.test_training import SMALL


def test_every_configuration_loads():
    assert set(training_names()) >= {"smoke", "short", "long"}
    for name in training_names():
        config = load_training_config(name)
        assert config.name == name and not set(config.eval_tasks) - set(TASKS)
    smoke = load_training_config("smoke", steps=3)
    assert smoke.steps == 3 and train.output_folder(smoke).name == "adapter"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "A b"}, "cannot name a folder"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"warmup": 6}, "must be shorter than the 6 steps"),
        ({"learning_rate": "1e-3"}, "learning_rate must be a finite number"),
        ({"clip": 0}, "clip must be a finite number > 0"),
        ({"weights": {"chess": 1.0}}, "unknown family chess"),
        ({"weights": {"vt": 0.0}}, "not all 0"),
        ({"weights": {"vt": "1"}}, r"weights\.vt must be a finite number >= 0"),
        ({"eval_tasks": ["chess"]}, "unknown eval_tasks chess"),
        ({"eval_tasks": ["gsm8k", "gsm8k"]}, "eval_tasks names something twice"),
        ({"description": None}, "description must be a str"),
        ({"ramp": 0.0}, "ramp must lie in"),
        ({"bf16": "yes"}, "bf16 must be true or false"),
        ({"threads": 0}, "threads must be a whole number"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**{"name": "t", **SMALL, **change})


def test_bad_files_are_refused(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    bad = {"nmae: x": "unknown key nmae", "name: x": "missing key description, steps", "- 1": "key: value"}
    for text, message in bad.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            load_training_config(path)
    assert train.main(["nonesuch"]) == 2 and "known are" in capsys.readouterr().err
