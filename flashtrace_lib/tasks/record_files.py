"""Records as they lie in files: JSON, a line each, or a folder of a published repository."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def read_records(path: Path) -> list[Record]:
    """Records of a JSON list or of a file with one JSON object a line; ValueError names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text: {error}") from None
    if path.suffix == ".jsonl":
        lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
        records = [_parsed(line, f"{path}, line {i}") for i, line in lines]
    else:
        records = _parsed(text, str(path))
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"{path} must hold a list of records, each a JSON object")
    if not records:
        raise ValueError(f"{path} holds no records")
    return records


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON: {error}") from None


def read_exercises(folder: Path) -> list[Record]:
    """The exercises in a clone of exercism/python, each with its text files by relative path."""
    return [{"slug": exercise.name, "files": _text_files(exercise)} for exercise in sorted(folder.glob("*"))]


def _text_files(folder: Path) -> dict[str, str]:
    """Texts of a folder by relative path."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in (".md", ".py", ".json", ".toml"))
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths if path.is_file()}
