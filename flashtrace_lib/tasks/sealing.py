"""Responses that quote records which are not ours to copy: committed so that only who has the record can read them.

A response is combined (XOR) with a stream of SHAKE-256 of the prompt that it answers. Who has the records writes the
same prompt and gets the response back, to the token, on any machine; without them its tokens look like noise. This
keeps texts from being copied. It is no protection of secrets: a short prompt can be guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..fingerprints import fingerprint


def seal(values: Sequence[int] | Sequence[str], prompt: Any, key: str) -> list[int] | list[str]:
    """Seal token ids or short texts.

    Parameters
    ----------
    values : sequence of int or of str
        Token ids (each below 2**32), or texts.
    prompt : JSON-ready
        What only who has the record can write: the prompt as text or as token ids.
    key : str
        Key of the record that it is stored in: no two records share a stream.

    Returns
    -------
    list of int or list of str
        Of the same length: integers below 2**32, or hexadecimal digits, two for each byte of a text.
    """
    if all(isinstance(value, str) for value in values):
        return [_combined(text.encode(), prompt, key, i).hex() for i, text in enumerate(values)]
    return _ids(values, prompt, key)


def unseal(sealed: Sequence[int] | Sequence[str], prompt: Any, key: str) -> list[int] | list[str]:
    """What was sealed for this prompt and key, see `seal`; with another prompt, noise (`read_sealed` checks)."""
    if all(isinstance(value, str) for value in sealed):
        return [_combined(bytes.fromhex(x), prompt, key, i).decode(errors="replace") for i, x in enumerate(sealed)]
    return _ids(sealed, prompt, key)


def seal_record(record: Mapping[str, Any], name: str, prompt: Any, key: str) -> dict[str, Any]:
    """The record with the values under ``name`` sealed, and under ``sealed`` a hash that `read_sealed` checks."""
    values = list(record[name])
    return {**record, name: seal(values, prompt, key), "sealed": fingerprint([prompt, values])}


def read_sealed(record: Mapping[str, Any], name: str, prompt: Any, key: str) -> dict[str, Any]:
    """A stored record with the values under ``name`` as they were, whether it is sealed or not.

    Raises
    ------
    ValueError
        If the sealed values, opened with this prompt, are not what was sealed.
    """
    if not record.get("sealed"):
        return dict(record)
    values = unseal(record[name], prompt, key)
    if fingerprint([prompt, values]) != record["sealed"]:
        raise ValueError(
            f"the sealed {name} of record {key} do not open with its prompt: the store is damaged, restore it"
        )
    return {**record, name: values, "sealed": None}


def _ids(values: Sequence[int], prompt: Any, key: str) -> list[int]:
    """Token ids combined with the stream; the same again gives them back."""
    combined = _combined(np.asarray(values, dtype="<u4").tobytes(), prompt, key, 0)
    return np.frombuffer(combined, dtype="<u4").tolist()


def _combined(plain: bytes, prompt: Any, key: str, index: int) -> bytes:
    """Bytes XOR the stream of this prompt, record and place."""
    secret = f"{key} {index} {prompt}".encode()
    stream = np.frombuffer(hashlib.shake_256(secret).digest(len(plain)), dtype=np.uint8)
    return (np.frombuffer(plain, dtype=np.uint8) ^ stream).tobytes()
