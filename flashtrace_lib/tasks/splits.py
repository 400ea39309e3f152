"""Two halves of all names and numbers: what a model is trained on and what it is evaluated on share none."""

import zlib

_ONE_IN = 5  # texts of which one is held out for evaluation


def in_split(text: str, split: str) -> bool:
    """Whether a name or a number, as text, may be used in a split, ``"train"`` or ``"eval"``; its checksum decides."""
    if split not in ("train", "eval"):
        raise ValueError(f"split must be 'train' or 'eval', got {split!r}")
    return (zlib.crc32(text.encode()) % _ONE_IN == 0) == (split == "eval")
