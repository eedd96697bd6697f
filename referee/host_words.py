"""Host code that could tell a trace from a real call: texts of objects, identity, a module's name, what a kernel object keeps.

A text such as `str(x)` or `f"{kernel}"` shows what an object is made of, `is` tells a fresh object from a kept one, and a kernel
object remembers its launches. None of it is needed to launch a kernel; texts in `raise`, `assert` and a log are harmless.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_TEXT_OF = frozenset({"dtype", "device", "shape", "type"})
_TEXTS = frozenset({"str", "repr", "format", "bytes"})
_LOGS = frozenset({"critical", "debug", "error", "info", "warn", "warning"})
_TELLS = frozenset({"debug", "info", "warning", "error", "warn"})
_FORMATTING = frozenset({"format", "format_map"})

# Attributes of Triton's kernels, autotuners and heuristics, of what a launch returns, and of cached functions; no tensor has them.
KERNEL_ATTRIBUTES = frozenset(
    """
    add_pre_run_hook arg_names asm base_fn bench_time best_config cache cache_clear cache_info cache_key cache_parameters
    cache_results configs configs_timings constexprs create_binder device_caches do_not_specialize early_config_prune fn hash
    launch_metadata metadata module n_regs n_spills nargs noinline params parse perf_model post_hook pre_hook pre_run_hooks preload
    prune_configs raw_src repr reset_to_zero restore_value signature src starting_line_number used_global_vals warmup
    """.split()
)


def excused(root: ast.AST) -> frozenset[int]:
    """Identities of the nodes within `raise` statements, messages of `assert` and of loggers, and of docstrings."""
    found: set[int] = set()
    for node in ast.walk(root):
        messages: list[ast.AST | None] = []
        if isinstance(node, ast.Raise):
            messages = [node.exc, node.cause]
        elif isinstance(node, ast.Assert):
            messages = [node.msg]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            messages = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TELLS:
            messages = [*node.args]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _is_log(node.value.func):
            messages = list(node.value.args)
        found.update(id(part) for message in messages if message is not None for part in ast.walk(message))
    return frozenset(found)


def _is_log(called: ast.expr) -> bool:
    """`logger.info(...)`, `warnings.warn(...)`: what is written there does not come back."""
    return isinstance(called, ast.Attribute) and called.attr in _LOGS


def allowed_names(node: ast.AST) -> Iterator[int]:
    """Identities of names such as `str` that may stand below this node: for a harmless text, for `isinstance`, for a logger."""
    if not isinstance(node, ast.Call):
        return
    called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in _TEXTS and len(node.args) == 1 and _harmless(node.args[0]):
        yield id(node.func)
    elif called in ("isinstance", "issubclass"):
        yield from (id(part) for argument in node.args[1:] for part in ast.walk(argument))
    elif called == "getLogger":
        yield from map(id, node.args)


def telling(node: ast.AST) -> str | None:
    """Why this node, which is not excused, could tell a trace from a real call; None when it could not."""
    if isinstance(node, ast.JoinedStr) and not all(_harmless(value) for value in _formatted(node)):
        return "a formatted string shows what an object is; compare x.dtype or x.shape themselves (in `raise` and `assert` it may stand)"
    if isinstance(node, ast.Name) and node.id in _TEXTS and isinstance(node.ctx, ast.Load):
        return f"`{node.id}` shows what an object is; compare x.dtype or x.shape themselves"
    if isinstance(node, ast.Name) and node.id == "__name__":
        return '`__name__` is for `if __name__ == "__main__":` only'
    if isinstance(node, ast.Attribute) and node.attr == "__name__":
        return "`.__name__` shows what an object is (in `raise` and `assert` it may stand)"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
        return "`%` on a text shows what an object is; compare x.dtype or x.shape themselves"
    if isinstance(node, ast.Attribute) and node.attr in _FORMATTING:
        return f"`.{node.attr}` shows what an object is; compare x.dtype or x.shape themselves"
    if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops):
        sides = [node.left, *node.comparators]
        if not any(_settled(side) for side in sides) and not all(_is_dtype(side) for side in sides):
            return "`is` tells objects apart that are equal; compare with =="
    return None


def _formatted(node: ast.JoinedStr) -> Iterator[ast.expr]:
    return (value.value if isinstance(value, ast.FormattedValue) else value for value in node.values)


def _harmless(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Attribute) and value.attr in _TEXT_OF)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, (str, bytes)))


def _is_dtype(side: ast.expr) -> bool:
    return isinstance(side, ast.Attribute) and side.attr == "dtype"


def _settled(side: ast.expr) -> bool:
    """A constant, or a word such as `torch.float16`."""
    if isinstance(side, ast.Constant):
        return True
    return isinstance(side, ast.Attribute) and isinstance(side.value, ast.Name) and side.value.id in ("torch", "tl")
