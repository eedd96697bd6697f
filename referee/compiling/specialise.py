"""Compile requests: what of a launch decides how its kernel is compiled, and nothing else.

Triton compiles a kernel anew for the types of its arguments, pointers' and integers' divisibility by 16, integers equal to
1, and every constexpr. Values beyond that are replaced by representatives, so that equal requests are compiled once.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from referee.plans.plan import LaunchConfig, Value, View
from referee.plans.plan_parse import dump_value
from referee.triton_private import representative

# The judge aligns every buffer to at least this, so a view's alignment is its offset's.
BASE_ALIGNMENT = 16


def request(kernel: str, config: LaunchConfig) -> dict[str, Any]:
    """The JSON form of one compilation: kernel, arguments as [name, value, constexpr], launch options."""
    return {
        "kernel": kernel,
        "arguments": [[a.name, dump_value(a.value) if a.constexpr else _reduced(a.value), a.constexpr] for a in config.arguments],
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "maxnreg": config.maxnreg,
    }


def key_of(compile_request: dict[str, Any], *context: str) -> str:
    """A content hash of a request within its context (kernel text, target, versions)."""
    content = json.dumps([compile_request, *context], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _reduced(value: Value) -> Any:
    if isinstance(value, View):
        return {"pointer": value.dtype, "offset": value.offset % BASE_ALIGNMENT}
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return representative(value)
    if isinstance(value, float):
        return 0.5
    if isinstance(value, tuple):
        return {"tuple": [_reduced(item) for item in value]}
    return dump_value(value)
