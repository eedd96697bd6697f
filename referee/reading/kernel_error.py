"""Why a kernel cannot be judged, as an exception with the guard that says so."""

from __future__ import annotations

import ast


class KernelError(ValueError):
    """The judge cannot compile this kernel. `guard` is stable, the message one line of advice."""

    def __init__(
        self, reason: str, *, guard: str = "kernel_vocabulary", node: ast.AST | None = None
    ) -> None:
        line = getattr(node, "lineno", None)
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.guard = guard


def syntax_error(reason: str, node: ast.AST | None = None) -> KernelError:
    """The error for syntax that kernels do not have."""
    return KernelError(reason, guard="kernel_syntax", node=node)


def constant_error(reason: str, node: ast.AST | None = None) -> KernelError:
    """The error for a constant that kernels cannot use."""
    return KernelError(reason, guard="kernel_constant", node=node)


def written_twice(kernel: str, node: ast.AST | None) -> KernelError:
    """The error for an annotated assignment whose value writes memory."""
    reason = "Triton evaluates the value of an annotated assignment twice, and this one writes memory; remove the annotation"
    return syntax_error(f"kernel `{kernel}`: {reason}", node)
