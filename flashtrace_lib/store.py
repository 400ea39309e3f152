"""Records under keys in one file that survives a kill: a line a record, added at the end; the last of a key counts."""

import json
import os
import re
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import torch

from .files import atomic_path, locked, writing

KEY_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}")


class Store:
    """Records on disk, each stored as soon as it is put; processes and threads may read and write at once.

    A line holds a checksum, the key and the record as JSON. A line that is damaged counts as missing, with a warning,
    so that its record is computed again; one that a killed writer left unfinished is taken off by the next.

    Parameters
    ----------
    path : path-like
        ``dir/name`` or ``dir/name.jsonl``. Nothing is created before the first `put`.
    """

    def __init__(self, path: str | os.PathLike[str]):
        path = Path(path)
        self.path = path if path.suffix == ".jsonl" else path.with_name(path.name + ".jsonl")
        # key -> where its JSON begins in the file, its length, and the line's checksum
        self._places: dict[str, tuple[int, int, bytes]] = {}
        self._turn = threading.RLock()  # one thread at a time uses the places
        self._read_to, self._file = 0, 0  # how far the file was read, and its inode
        self._superfluous = False  # whether the file holds lines that do not count

    def put(self, key: str, record: dict[str, Any]) -> None:
        """Store ``record`` under ``key``, in the place of what was there.

        Parameters
        ----------
        key : str
            Letters, digits, ``.``, ``_`` and ``-``, at most 120.
        record : dict
            Columns: numbers, text, None, tensors, arrays, and lists and dicts of these.

        Raises
        ------
        ValueError
            If the key has other characters, or a column cannot be stored.
        CannotWrite
            If the disk is full or the folder read-only (`files.writing`).
        """
        if not KEY_PATTERN.fullmatch(key):
            raise ValueError(f"key {key!r} is none of a store: use letters, digits, '.', '_', '-' (fingerprint())")
        line = _line(key, record)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock(), open(self.path, "ab") as file:
                with self._opened():
                    end = self._read_to  # what stands behind it was left by a killed writer
                try:
                    file.truncate(end)
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:  # such as a full disk: no half of a line stays
                    os.truncate(self.path, end)
                    raise

    def get(self, key: str) -> dict[str, Any] | None:
        """The record under ``key``, arrays as lists; None where there is none."""
        return next(self._all([key]), None)

    def cached(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The record under ``key``; where there is none, the one that ``compute`` makes is stored first.

        Either way it comes from the disk, so that it is the same in the run that computes it and in later ones.
        """
        if (record := self.get(key)) is None:
            self.put(key, compute())
            record = self.get(key)
        return record

    def __contains__(self, key: str) -> bool:
        with self._opened():
            return key in self._places

    def __len__(self) -> int:
        with self._opened():
            return len(self._places)

    def records(self) -> pd.DataFrame:
        """All records, one row a key, sorted by key; None or NaN where a record lacks a column."""
        found = list(self._all())
        columns = list(dict.fromkeys(name for record in found for name in record)) or ["key"]
        return pd.DataFrame([{name: record.get(name) for name in columns} for record in found], columns=columns)

    def compact(self) -> None:
        """Write the file anew, sorted by key, where it holds damaged lines or records that were replaced."""
        with self._opened():
            pass
        if self._superfluous:
            with self._lock(), atomic_path(self.path) as temporary, open(temporary, "wb") as file:
                file.writelines(_line(record["key"], record) for record in self._all())

    def _all(self, keys: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        with self._opened() as file:
            texts = {key: self._text(file, key) for key in keys or sorted(self._places) if key in self._places}
        if None in texts.values():  # another file stands there, by chance with the inode of the one that was read
            self._file = -1
            yield from self._all(keys)
        else:
            yield from (json.loads(text) | {"key": key} for key, text in texts.items())

    def _text(self, file: BinaryIO, key: str) -> bytes | None:
        """JSON of a record; None where the file does not hold what was noted of it."""
        start, length, checksum = self._places[key]
        file.seek(start)
        text = file.read(length)
        return text if checksum == b"%08x" % zlib.crc32(b"%s %s" % (key.encode(), text)) else None

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """The file, once the places of the records are noted that were added since it was last read."""
        with self._turn, open(self.path if self.path.exists() else os.devnull, "rb") as file:
            state = os.fstat(file.fileno())
            if state.st_ino != self._file or state.st_size < self._read_to:
                self._places, self._read_to, self._file, self._superfluous = {}, 0, state.st_ino, False
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # still being written, or left by a killed writer
                self._note(line)
                self._read_to += len(line)
            yield file

    def _note(self, line: bytes) -> None:
        checksum, _, rest = line[:-1].partition(b" ")
        key, _, text = rest.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(rest):
            self._superfluous = True
            warnings.warn(f"{self.path} has a damaged line at byte {self._read_to}: its record counts as missing and "
                          "will be computed again", stacklevel=4)  # fmt: skip
            return
        self._superfluous |= key.decode() in self._places
        self._places[key.decode()] = (self._read_to + len(checksum) + len(key) + 2, len(text), checksum)

    def _lock(self):
        return locked(self.path.with_suffix(".lock"))


def _line(key: str, record: dict[str, Any]) -> bytes:
    columns = (f"{json.dumps(name)}: {_column(name, value)}" for name, value in record.items() if name != "key")
    rest = f"{key} {{{', '.join(columns)}}}".encode()
    return b"%08x %s\n" % (zlib.crc32(rest), rest)


def _column(name: str, value: Any) -> str:
    try:
        return json.dumps(value, default=_as_list)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name} cannot be stored ({error}): use numbers, text or lists of them") from error


def _as_list(value: Any) -> Any:
    """Tensors, arrays and numbers of numpy as what JSON knows."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
