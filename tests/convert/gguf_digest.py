"""The content of a GGUF as a short fixture: keys with values, tensors with type and sha256."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LONG = 40
# The last bit of floating-point functions differs between machines, so these stay as numbers.
COMPUTED = ("ssm_a", "rope_freqs.weight")


def digest(path: Path) -> dict[str, Any]:
    """Metadata and tensors of a file.

    `metadata` maps key -> [GGUF type, value], or [type, length, sha256] for long arrays. `tensors`
    maps name -> [type, shape, sha256].
    """
    reader = gguf.GGUFReader(path)
    metadata = {
        name: _value(field) for name, field in reader.fields.items() if not name.startswith("GGUF.")
    }
    return {
        "metadata": metadata,
        "tensors": {tensor.name: _tensor(tensor) for tensor in reader.tensors},
    }


def _value(field: Any) -> list[Any]:
    kind, value = "/".join(part.name for part in field.types), field.contents()
    if isinstance(value, list) and len(value) > LONG:
        return [kind, len(value), hashlib.sha256(json.dumps(value).encode()).hexdigest()]
    return [kind, value]


def _tensor(tensor: Any) -> list[Any]:
    shape = [int(extent) for extent in tensor.shape]
    if tensor.name.endswith(COMPUTED):
        return [
            tensor.tensor_type.name,
            shape,
            [float(value) for value in np.asarray(tensor.data).reshape(-1)],
        ]
    return [
        tensor.tensor_type.name,
        shape,
        hashlib.sha256(np.ascontiguousarray(tensor.data).tobytes()).hexdigest(),
    ]
