"""What kmint writes as JSON: strict JSON, which knows neither NaN nor infinities."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """`value` with every number that JSON cannot hold replaced by null, and every mapping and sequence a plain one."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def compact(value: Any) -> str:
    """`value` as one line of JSON."""
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
