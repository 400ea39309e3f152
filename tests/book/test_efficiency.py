"""The benchmark: sizes are measured once and stored, limits end a row, and stored results are found again."""

import dataclasses
import json

import pandas as pd
import pytest
import torch

from flashtrace_book.efficiency import benchmark_runner, other_tools, worker
from flashtrace_book.efficiency import sweep as efficiency
from flashtrace_book.efficiency.benchmark_runner import SKIPPED
from flashtrace_book.efficiency.supervised_process import ERROR, OK, OUT_OF_MEMORY, TIME_OUT, Ended, supervise
from flashtrace_book.methods import build_method
from flashtrace_book.profiles import EfficiencyProfile, load_profile
from flashtrace_lib import files
from flashtrace_lib.bench import measure
from flashtrace_lib.methods import METHODS
from flashtrace_lib.store import Store
from tests.oracles.tiny import tiny_model
from tests.oracles.tiny_reasoner import load_tokenizer, tiny

SETTINGS = EfficiencyProfile(
    inputs=(8, 16, 32), generations=(4, 8, 16), fixed_input=8, fixed_generation=4, methods=("ifr", "ifr_one_by_one"),
    attention_inputs=(16,), pareto_input=16, time_limit=20, memory_limit=1,
)  # fmt: skip


@pytest.fixture
def profile():
    def made(**changes):
        return dataclasses.replace(load_profile("smoke"), efficiency=dataclasses.replace(SETTINGS, **changes))

    return made


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "efficiency")


@pytest.fixture
def quick(monkeypatch):
    """No peaks: to collect garbage first takes a second in a process as large as a test's."""
    monkeypatch.setattr(measure, "peak_gib", lambda model, work: (work(), 0.1)[1])


class Stub:
    """A worker that takes one second a token, and ends at sizes it is told."""

    def __init__(self, ends=None):
        self.ends, self.jobs = ends or {}, []

    def __call__(self, command, on_message, limits):
        job = json.loads(command[-1])
        self.jobs.append((job["name"], job["options"], [tuple(size) for size in job["sizes"]]))
        on_message({"ready": True})
        for size in job["sizes"]:
            on_message({"start": size})
            if tuple(size) in self.ends:
                return Ended(self.ends[tuple(size)], "told to")
            seconds = float(sum(size))
            times = {"seconds": seconds, "forward_s": 2.0, "ratio": seconds / 2, "n": 1}
            on_message({"done": size, **times, "peak_gib": 0.5, "runs_s": [seconds], "forward_runs_s": [2.0]})
        return Ended(OK)


def outcomes(frame, method, axis):
    part = frame[(frame["method"] == method) & (frame["axis"] == axis)]
    return dict(zip(part["length"], part["outcome"], strict=True))


def test_every_size_is_measured_once_and_kept(profile, store):
    stub = Stub()
    frame = efficiency.sweep(profile(), store, stub)
    assert [job[:2] for job in stub.jobs] == [("ifr", {}), ("ifr", {"batch_size": 1})]
    assert stub.jobs[0][2] == [(8, 4), (16, 4), (32, 4), (8, 8), (8, 16)]  # (8, 4) lies on both axes
    assert list(frame.columns) == list(efficiency.COLUMNS) and len(frame) == 12
    assert set(frame["outcome"]) == {OK} and set(frame["hardware"]) == {benchmark_runner.hardware_name("cpu")}
    assert frame.loc[frame["axis"] == "generation", "seconds"].tolist() == [12.0, 16.0, 24.0] * 2
    again = efficiency.sweep(profile(), store, stub)
    pd.testing.assert_frame_equal(frame, again)
    assert len(stub.jobs) == 2
    loaded = efficiency.load_sweep(store)
    keys = ["axis", "method", "length"]
    pd.testing.assert_frame_equal(
        loaded.sort_values(keys, ignore_index=True), frame.sort_values(keys, ignore_index=True)
    )


@pytest.mark.parametrize("end", [TIME_OUT, OUT_OF_MEMORY])
def test_a_limit_ends_its_row_and_no_other(profile, store, end):
    stub = Stub({(16, 4): end})
    frame = efficiency.sweep(profile(), store, stub)
    assert outcomes(frame, "ifr", "input") == {8: OK, 16: end, 32: SKIPPED}
    assert outcomes(frame, "ifr", "generation") == {4: OK, 8: OK, 16: OK}
    assert [sizes for name, options, sizes in stub.jobs[:2]][1] == [(8, 8), (8, 16)]
    failed = frame[frame["outcome"] != OK]
    assert failed["seconds"].isna().all() and failed["detail"].str.len().all()
    assert not any((32, 4) in sizes[: sizes.index((16, 4))] for _, _, sizes in stub.jobs if (16, 4) in sizes)


def test_a_wider_limit_is_tried_and_a_narrower_is_not(profile, store):
    efficiency.sweep(profile(), store, Stub({(16, 4): TIME_OUT}))
    narrow = Stub()
    assert outcomes(efficiency.sweep(profile(time_limit=10), store, narrow), "ifr", "input")[16] == TIME_OUT
    assert narrow.jobs == []
    wide = Stub()
    frame = efficiency.sweep(profile(time_limit=40), store, wide)
    assert outcomes(frame, "ifr", "input") == {8: OK, 16: OK, 32: OK}
    assert [sizes for _, _, sizes in wide.jobs] == [[(16, 4), (32, 4)]] * 2  # what was measured stands


def test_an_error_is_named_ends_nothing_and_is_tried_again(profile, store):
    frame = efficiency.sweep(profile(), store, Stub({(16, 4): ERROR}))
    assert outcomes(frame, "ifr", "input") == {8: OK, 16: ERROR, 32: OK}
    assert outcomes(efficiency.sweep(profile(), store, Stub()), "ifr", "input")[16] == OK


def test_a_worker_that_never_gets_ready_blames_no_size_twice(profile, store):
    calls = []

    def broken(command, on_message, limits):
        calls.append(command)
        return Ended(ERROR, "no such model")

    frame = efficiency.sweep(profile(), store, broken)
    assert set(frame["outcome"]) == {ERROR} and set(frame["detail"]) == {"no such model"} and len(calls) == 2


def test_another_machines_measurement_stands(profile, store, monkeypatch):
    efficiency.sweep(profile(), store, Stub())
    monkeypatch.setattr(benchmark_runner, "cpu_name", lambda: "another")
    stub = Stub()
    frame = efficiency.sweep(profile(), store, stub)
    assert stub.jobs == [] and not frame["hardware"].str.startswith("another").any()


def test_the_committed_results_are_found_and_none_is_measured_again():
    def refuse(command, on_message, limits):
        raise AssertionError(f"a stored size would be measured: {command}")

    store, laptop = Store(files.root() / "data" / "results" / "laptop" / "efficiency"), load_profile("laptop")
    sizes = ["method", "n_input", "n_generated"]
    stored = store.records().drop_duplicates(sizes).set_index(sizes)
    shared = stored.columns.intersection(list(efficiency.COLUMNS))
    assert set(stored["outcome"]) == {"ok", "time-out", "beyond"}
    stored.loc[stored["outcome"] == "ok", "n_peak"] = stored["n_peak"].fillna(1)  # older ones are of one run, uncounted
    sweeps = (efficiency.sweep, efficiency.sweep_headline, efficiency.sweep_attention, efficiency.sweep_pareto,
              efficiency.sweep_tools)  # fmt: skip
    for sweep in sweeps:
        frame = sweep(laptop, store, refuse)
        expected = stored.loc[frame[sizes].apply(tuple, axis=1), shared].reset_index(drop=True)
        pd.testing.assert_frame_equal(frame[shared], expected, check_dtype=False)


def test_methods_of_the_figure_alone_are_measured_at_its_lengths(profile, store):
    stub = Stub()
    asked = profile(pareto_methods=("at2", "last_token"), inputs=(8, 16, 1024), pareto_input=16)
    frame = efficiency.sweep_pareto(asked, store, stub)
    assert set(frame["axis"]) == {efficiency.PARETO} and frame["length"].tolist() == [16, 1024] * 2
    assert [(name, options) for name, options, _ in stub.jobs][0] == ("at2", {"weights": "uniform"})
    assert efficiency.sweep_pareto(profile(), store, stub).empty and len(stub.jobs) == 2
    assert efficiency.pareto_inputs(profile(pareto_input=SETTINGS.inputs[0]).efficiency) == [SETTINGS.inputs[0]]


def test_times_of_earlier_code_are_found_and_measured_again_on_request(profile, store, monkeypatch):
    frame = pd.concat([sweep(profile(), store, Stub()) for sweep in (efficiency.sweep, efficiency.sweep_attention)])
    assert efficiency.of_earlier_code(frame).empty
    unchanged = benchmark_runner.method_code
    changed = lambda name: "other" if name == "flashtrace" else unchanged(name)  # noqa: E731
    monkeypatch.setattr(benchmark_runner, "method_code", changed)
    monkeypatch.setattr(efficiency, "method_code", changed)
    earlier = efficiency.of_earlier_code(frame)
    assert set(earlier["method"]) == {f"flashtrace_{mode}" for mode in efficiency.ATTENTION_MODES}
    stub = Stub()
    efficiency.sweep_attention(profile(), store, stub)
    assert stub.jobs == []  # found, said, but kept
    efficiency.forget_earlier_code(store)
    again = efficiency.sweep_attention(profile(), store, stub)
    assert len(stub.jobs) == len(efficiency.ATTENTION_MODES) and efficiency.of_earlier_code(again).empty
    efficiency.sweep(profile(), store, stub)
    assert len(stub.jobs) == len(efficiency.ATTENTION_MODES)  # the times of the other methods stand
    store.drop(store.records()["key"])
    efficiency.forget_earlier_code(store)  # nothing stored, nothing to forget


def test_the_ways_to_attention_are_a_sweep_of_their_own(profile, store):
    frame = efficiency.sweep_attention(profile(), store, Stub())
    assert set(frame["method"]) == {f"flashtrace_{mode}" for mode in efficiency.ATTENTION_MODES}
    assert set(frame["axis"]) == {efficiency.ATTENTION} and set(frame["length"]) == {16}


def test_the_headline_is_measured_once_under_limits_of_its_own(profile, store):
    stub, limits = Stub(), []

    def patient(command, on_message, allowed):
        limits.append((allowed.seconds, allowed.gib, json.loads(command[-1])["runs"]))
        return stub(command, on_message, allowed)

    names = ("clp", "ifr", "ifr_one_by_one", "flashtrace", "attnlrp")
    asked = profile(headline_generations=(64,), headline_limit=900, methods=names, runs=3)
    frame = efficiency.sweep_headline(asked, store, patient)
    assert frame["method"].tolist() == ["flashtrace", "attnlrp", "ifr", "ifr_one_by_one"]
    assert limits == [(900, 2, 1)] * 4 and set(frame["axis"]) == {efficiency.HEADLINE} and set(frame["length"]) == {64}
    assert efficiency.sweep_headline(profile(), store, patient).empty and len(limits) == 4
    efficiency.sweep_headline(asked, store, patient)
    assert len(limits) == 4


def test_tools_are_swept_beside_the_nearest_method(profile, store, monkeypatch):
    monkeypatch.setattr(other_tools, "find_spec", lambda package: package == "captum")
    stub = Stub()
    frame = efficiency.sweep_tools(profile(), store, stub)
    assert [name for name, _, _ in stub.jobs] == ["captum_ablation", "perturbation"]
    assert frame["axis"].tolist() == [efficiency.TOOLS] * 6 and frame["length"].tolist() == [8, 16, 32] * 2
    assert other_tools.available() == (["captum_ablation"], [
        "flashtrace is not installed: left out", "inseq is not installed: left out"
    ])  # fmt: skip


def test_captums_ablation_is_perturbation():
    sample, model = worker.sweep_sample("captum_ablation", 50, 6, 97), tiny_model()
    theirs = other_tools.build("captum_ablation", {}, None).attribute(model, sample)
    ours = build_method("perturbation", {"units": "sentence", "spread": "copy"}).attribute(model, sample)
    assert theirs.scores.tolist() == pytest.approx(ours.scores.tolist(), abs=1e-4) and ours.scores.max() > 0
    assert theirs.metadata["forward_passes"] == ours.metadata["forward_passes"] == 4


def test_tools_are_those_of_the_profile(profile, store):
    assert set(EfficiencyProfile().tools) == set(other_tools.ADAPTERS)
    assert set(efficiency.sweep_tools(profile(tools=("captum_ablation",)), store, Stub())["method"]) == {
        "captum_ablation", "perturbation",
    }  # fmt: skip
    with pytest.raises(ValueError, match="no tool 'hammer'"):
        efficiency.sweep_tools(profile(tools=("hammer",)), store, Stub())


def test_inseqs_gradient_by_hand():
    pytest.importorskip("inseq", reason="pip install --no-deps -r requirements-nodeps.txt")
    model, tokenizer = tiny(), load_tokenizer()
    sample = worker.sweep_sample("inseq_gradient", 5, 3, 97)
    scores = other_tools.build("inseq_gradient", {}, tokenizer).attribute(model, sample).scores
    ids = tokenizer(" the" * 8, return_tensors="pt").input_ids
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    expected = torch.zeros(5)
    for row in range(5, 8):
        chance = model(inputs_embeds=embeddings).logits[0, row - 1].softmax(-1)[ids[0, row]]
        (gradient,) = torch.autograd.grad(chance, embeddings)
        expected += (gradient * embeddings)[0, :5].norm(dim=-1).detach()
    expected = expected / expected.sum()
    assert scores.tolist() == pytest.approx((scores.sum() * expected).tolist(), rel=1e-3) and scores.max() > 0


@pytest.mark.parametrize("n_generated, output", [(1, 1), (2, 1), (16, 8), (40, 16)])
def test_there_is_a_reasoning_to_follow(n_generated, output):
    segments = worker.sweep_sample("flashtrace", 8, n_generated, 97).segments
    assert segments.output == (8 + n_generated - output, 8 + n_generated)
    assert segments.generated == (8, 8 + n_generated) and segments.has_reasoning == (n_generated > 1)


def test_a_tool_that_follows_the_reasoning_gets_one():
    assert worker.sweep_sample("published_flashtrace", 8, 40, 97).segments.has_reasoning
    assert not worker.sweep_sample("captum_ablation", 8, 40, 97).segments.has_reasoning


def test_an_unknown_method_is_refused(profile):
    with pytest.raises(ValueError, match="no method 'nothing'; known are .*ifr_one_by_one"):
        efficiency.swept_methods(profile(methods=("nothing",)))


@pytest.mark.parametrize("label", [*EfficiencyProfile().methods, *load_profile("laptop").efficiency.pareto_methods])
def test_every_swept_method_can_be_measured(label, profile, quick):
    chosen = efficiency.swept_methods(profile(methods=(label,)))[0]
    options = chosen.options | ({"runs": 1, "max_steps": 2} if chosen.name == "reagent" else {})
    method, steps = build_method(chosen.name, options), []
    sample = worker.sweep_sample(chosen.name, 24, 20, 97)
    assert len(sample) == 44 and sample.segments.generated == (24, 44)
    found = worker.measure_attribution(tiny_model(), method, sample, 3, 60.0, lambda: steps.append(1))
    assert found["n"] == 3 and len(found["runs_s"]) == len(found["forward_runs_s"]) == 3
    assert found["n_peak"] == len(found["peak_runs_gib"]) == 3 and len(steps) == 2 * (3 + 3)
    assert found["seconds"] == sorted(found["runs_s"])[1] and found["forward_passes"] >= 1
    json.dumps(found)


def test_every_target_row_is_walked_one_by_one(quick):
    passes = {}
    for name, options in (("ifr", {}), ("ifr", {"batch_size": 1}), ("flashtrace", {"hops": 1})):
        sample = worker.sweep_sample(name, 8, 20, 97)
        method = build_method(name, options)
        found = worker.measure_attribution(tiny_model(), method, sample, 1, 60.0, lambda: None)
        passes[name, len(options)] = found["hop_passes"]
    assert passes == {("ifr", 0): 1, ("ifr", 1): 20, ("flashtrace", 1): 2}


def test_a_long_first_run_is_enough():
    method, sample = METHODS["ifr"](), worker.sweep_sample("ifr", 8, 4, 97)
    found = worker.measure_attribution(tiny_model(), method, sample, 3, 0.0, lambda: None)
    assert found["n"] == found["n_peak"] == 1 and found["seconds"] == found["runs_s"][0]


def test_a_peak_is_the_median_of_its_runs(monkeypatch):
    peaks = iter([0.1, 0.9, 0.3, 0.7, 0.2, 0.8])  # attribution, forward pass, and so on
    monkeypatch.setattr(measure, "peak_gib", lambda model, work: (work(), next(peaks))[1])
    method, sample = METHODS["ifr"](), worker.sweep_sample("ifr", 8, 4, 97)
    found = worker.measure_attribution(tiny_model(), method, sample, 3, 60.0, lambda: None)
    assert (found["peak_gib"], found["forward_peak_gib"], found["peak_runs_gib"]) == (0.2, 0.8, [0.1, 0.3, 0.2])


def test_a_real_worker_reports_through_the_supervisor(profile, store, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")  # the worker finds the checkout by itself
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    tiny_model().save_pretrained(folder)
    load_tokenizer().save_pretrained(folder)
    settings = profile(methods=("ifr",), model=str(folder), inputs=(8,), generations=(4,), pareto_input=8, runs=1)
    frame = efficiency.sweep(settings, store, supervise)
    assert frame["outcome"].tolist() == [OK, OK] and (frame["ratio"] > 0).all() and (frame["peak_gib"] >= 0).all()
