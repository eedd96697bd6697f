"""What is read is bad input at worst, and no fault: deep JSON, a home of nobody."""

from __future__ import annotations

import ast

from tests.architecture.test_imports import modules

# They read kmint's own file, or a process that runs kmint's own code on kmint's own data.
OF_KMINT = {
    "kmint_tui/graph/operations.py",
    "kmint_tui/doctor/examination.py",
    "kmint_tui/smith/worker.py",
    "kmint_tui/smith/template_process.py",
    "convert/limited_child.py",
    "convert/llama_worker.py",
    "convert/reference_logits.py",
    "referee/sandbox/worker.py",
    "referee/sandbox/layers.py",
    "referee/sandbox/zygote.py",
    "referee/sandbox/zygote_job.py",
    "referee/tracing/tracer.py",
    "referee/compiling/compile_worker.py",
}

PARSERS = ("json.loads", "json.load", "tomllib.loads", "tomllib.load")


def test_every_reader_of_json_is_ready_for_deep_json() -> None:
    """Python's parser raises RecursionError, which is no ValueError; TOML's does too."""
    readers = 0
    for path, tree in modules():
        ready: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Try, ast.With)) and "RecursionError" in _caught(node):
                ready |= {inner for line in node.body for inner in ast.walk(line)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or path in OF_KMINT:
                continue
            if ast.unparse(node.func) in PARSERS:
                readers += 1
                assert node in ready or _called_within(tree, node, ready), f"{path}:{node.lineno}"
    assert readers >= 10


def test_one_place_expands_the_users_home() -> None:
    """`Path.expanduser` raises RuntimeError for a `~` that names no user; `os.path` does not."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("expanduser", "home"):
                named = ast.unparse(node)
                assert named != "Path.home", f"{path}:{node.lineno}"
                assert named == "os.path.expanduser" or node.attr == "home", f"{path}:{node.lineno}"


def _caught(node: ast.Try | ast.With) -> str:
    if isinstance(node, ast.Try):
        return " ".join(ast.unparse(one.type) for one in node.handlers if one.type is not None)
    return " ".join(ast.unparse(item.context_expr) for item in node.items)


def _called_within(tree: ast.Module, node: ast.AST, ready: set[ast.AST]) -> bool:
    """Whether each call of the function that holds `node` is ready, in the same module."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and node in set(ast.walk(function)):
            calls = [
                call
                for call in ast.walk(tree)
                if isinstance(call, ast.Call) and ast.unparse(call.func) == function.name
            ]
            return bool(calls) and all(call in ready for call in calls)
    return False
