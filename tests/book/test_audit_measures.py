"""What sums keep, and answers with a sentence masked, are measured again; a tampered record is found."""

import random
from types import SimpleNamespace

import pytest

from flashtrace_book.audit_measures import audit_measures
from flashtrace_book.experiments import cancellation, causal_masking
from flashtrace_lib import FlashTrace
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.store import Store
from tests.book.test_open_questions import Words, causal_sample
from tests.oracles.planted import planted_model
from tests.oracles.tiny import tiny_model, tiny_sample

PROFILE = SimpleNamespace(hops=1, seed=0)


def audited(store, model, sample):
    return [check[-1] for check in audit_measures(store, PROFILE, model, Words(), [sample], 3, random.Random(0))]


@pytest.mark.parametrize("tampered", [False, True])
def test_a_changed_share_is_found(tmp_path, tampered):
    model, sample, store = tiny_model(), tiny_sample(), Store(tmp_path / "cancellation")
    record = cancellation.measured(model, sample, PROFILE.hops)
    record["kept"][1][0] += 0.01 * tampered
    store.put(cancellation.record_key(model_fingerprint(model), sample, PROFILE.hops), record)
    assert audited(store, model, sample) == [not tampered]
    assert audited(store, model, tiny_sample(seed=1)) == [False]  # no record of any sample at hand


@pytest.mark.parametrize("tampered", [False, True])
def test_a_changed_answer_is_found(tmp_path, tampered):
    model, sample, store = planted_model(), causal_sample(), Store(tmp_path / "answers")
    causal_masking.causal_frame(model, Words(), [sample], FlashTrace(hops=PROFILE.hops), store, seed=PROFILE.seed)
    if tampered:
        key = causal_masking.record_key(model_fingerprint(model), sample, FlashTrace(hops=PROFILE.hops), PROFILE.seed)
        record, store = store.get(key), Store(tmp_path / "tampered")
        store.put(key, {**record, "answers": ["another", *list(record["answers"])[1:]]})
    assert audited(store, model, sample) == [not tampered]


def test_another_store_is_refused(tmp_path):
    store = Store(tmp_path / "other")
    store.put("a", {"x": 1})
    with pytest.raises(ValueError, match="holds neither"):
        audited(store, tiny_model(), tiny_sample())
