"""What a launch returns in a trace, in place of the compiled kernel that Triton returns: it may be kept or thrown away, not looked at.

A compiled kernel has attributes, and is the same one after a second launch alike; a trace has none to show. Whatever is asked of it ends
the trace. Runs in the trace worker.
"""

from __future__ import annotations

from typing import Any

from referee.tracing.violation import Violations


def launched(violations: Violations) -> Any:
    """The class of what the launches of one trace return, each one of its own: a container asks equal objects, but not the same one."""

    def look(*given: Any) -> Any:
        raise violations.add("state", "what a launch returns is looked at; only launch kernels")

    # Of the class, which bears the name of Triton's own, nothing is known either. As every object, and Triton's, it counts as true.
    names = ("__getattr__", "__eq__", "__hash__", "__getitem__")
    unknown = type("Unknown", (type,), {"__getattr__": look})
    return unknown("CompiledKernel", (), dict.fromkeys(names, look))
