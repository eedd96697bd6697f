"""A recorded call: a small JSON file that `kmint record` writes and `--input @FILE` reads.
Torch-free.

    {"schema": "kmint.call/1", "function": "mod:fn", "inputs": {
      "x": {"dtype": "bfloat16", "shape": ["B", 4096], "strides": null, "offset": 0,
            "values": "normal"},
      "eps": {"value": 1e-06}, "dtype": {"literal": "torch.float32"}}}

An editor may change a size to a name, such as "B"; it is then a symbol.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from referee.reference.grammar import parse_inputs
from referee.reference.inputs import InputSet, TensorInput
from referee.reference.unusable import InputError

SCHEMA = "kmint.call/1"
MOST_BYTES = 1 << 20


class RecordError(ValueError):
    """The file is not a recorded call; the message gives the reason in one line."""


def recorded_text(path: Path) -> str:
    """The `--input` text of a recorded call. Raises RecordError."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(f"@{path} cannot be read: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise RecordError(f"@{path} is longer than {MOST_BYTES:,} bytes: that is no recorded call")
    try:
        data = json.loads(content)
        if (
            not isinstance(data, dict)
            or data.get("schema") != SCHEMA
            or not isinstance(data.get("inputs"), dict)
        ):
            raise RecordError(
                f"@{path} is no recorded call: its schema is not {SCHEMA}; `kmint record` writes such a file"
            )
        text = " ".join(f"{name}={_entry(entry)}" for name, entry in data["inputs"].items())
        return parse_inputs([text], f"@{path}")[0].text()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, (RecordError, InputError)):
            raise
        raise RecordError(
            f"@{path} is no recorded call: {' '.join(f'{type(error).__name__}: {error}'.split())[:200]}"
        ) from None


def _entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        raise TypeError("an input is an object with a dtype and a shape, or with a value")
    if "literal" in entry:
        return str(entry["literal"])
    if "value" in entry:
        return repr(entry["value"])
    sizes = ",".join(str(size) for size in entry["shape"])
    strides = (
        f"({','.join(str(stride) for stride in entry['strides'])})" if entry.get("strides") else ""
    )
    offset = f"+{entry['offset']}" if strides and entry.get("offset") else ""
    values = f":{entry['values']}" if entry.get("values") else ""
    return f"{entry['dtype']}[{sizes}]{strides}{offset}{values}"


def record_of(function: str, inputs: InputSet) -> dict[str, Any]:
    """The document of a call of `function` with these inputs."""
    return {
        "schema": SCHEMA,
        "function": function,
        "inputs": {name: _document(entry) for name, entry in inputs.entries},
    }


def _document(entry: Any) -> Mapping[str, Any]:
    if isinstance(entry, TensorInput):
        sizes = [dim.plus if not dim.symbol else str(dim) for dim in entry.dims]
        strides = list(entry.strides) if entry.strides else None
        return {
            "dtype": entry.dtype,
            "shape": sizes,
            "strides": strides,
            "offset": entry.offset,
            "values": str(entry.values),
        }
    value = entry.values[0]
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    return {"literal": repr(value)}


def is_plain(value: object) -> bool:
    """Whether the grammar of `--input` can write the value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return True
    try:
        return bool(isinstance(value, (tuple, list)) and ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
