"""Sealed responses: who has the prompt reads them, who has not sees noise, and damage is noticed."""

import numpy as np
import pytest

from flashtrace_lib.store import Store
from flashtrace_lib.tasks.sealing import read_sealed, seal, seal_record, unseal

PROMPT, KEY = "Ann has 3 apples and buys 4. How many has she?", "0f1e2d3c"
IDS = [17, 151645, 0, 2**32 - 1, 17, 17]
TEXTS = ["Ann has 7 apples", "", "Å 7"]


@pytest.mark.parametrize("values", [IDS, TEXTS, []])
def test_what_is_sealed_opens_with_its_prompt_and_key_alone(values):
    sealed = seal(values, PROMPT, KEY)
    assert len(sealed) == len(values) and unseal(sealed, PROMPT, KEY) == values
    if values:
        assert sealed != values
        assert unseal(sealed, PROMPT + " ", KEY) != values and unseal(sealed, PROMPT, KEY + "0") != values


def test_equal_tokens_do_not_look_equal():
    """A one-time pad: the stream does not depend on what is sealed, and is as random as SHAKE-256's."""
    zeros = np.array(seal([0] * 4096, PROMPT, KEY), dtype="<u4")
    assert len(set(zeros.tolist())) == 4096
    ones = np.unpackbits(zeros.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(4096 * 32)
    counted = np.array(seal(list(range(4096)), PROMPT, KEY), dtype="<u4")
    assert (counted ^ zeros).tolist() == list(range(4096))
    first, second = seal(["same", "same"], PROMPT, KEY)
    assert first != second


def test_records_of_either_kind_are_read_and_damage_is_refused(tmp_path):
    record = {"ids": IDS, "example": "a"}
    assert read_sealed(record, "ids", PROMPT, KEY) == record
    store = Store(tmp_path / "responses")
    store.put("plain", record)
    store.put(KEY, seal_record(record, "ids", PROMPT, KEY))
    store.compact()
    assert read_sealed(store.get("plain"), "ids", PROMPT, "plain")["ids"] == IDS
    assert read_sealed(store.get(KEY), "ids", PROMPT, KEY)["ids"] == IDS
    assert str(IDS[1]) not in str(store.get(KEY)["ids"])
    told = store.get(KEY)
    told["ids"][0] ^= 1
    for stored, prompt in ((told, PROMPT), (store.get(KEY), "another")):
        with pytest.raises(ValueError, match=f"the sealed ids of record {KEY} do not open"):
            read_sealed(stored, "ids", prompt, KEY)
