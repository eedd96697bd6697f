"""Where files are replaced and temporary ones made: in one module, whose names cannot be guessed
and whose leftovers are swept.
"""

from __future__ import annotations

import ast

from tests.architecture.test_imports import modules

FILES = "convert/files.py"
# The referee is usable alone, and makes its own: in its cache, in /dev/shm or in a folder that the
# caller names.
OWN = ("referee/",)
MAKERS = {"mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryDirectory", "mktemp"}
# Of a symbolic expression, not of a file.
REPLACES_SYMBOLS = {"kmint_tui/graph/reading.py"}
RENAMES = {("os", "replace"), ("os", "rename"), ("os", "renames"), ("shutil", "move")}
# Text that a person asked for under a name of their own, which may be a device or a pipe, and the
# log of a fault.
MAY_WRITE = {"kmint_tui/cli/crowns.py", "kmint_tui/cli/grid.py", "kmint_tui/cli/streams.py"}
# llama.cpp's log is another process's standard error; a part is written where it lies, to go on
# there after a kill.
MAY_OPEN = {
    "kmint_tui/smith/child.py",
    "kmint_tui/models/part.py",
    "kmint_tui/models/download.py",
    "kmint_tui/cli/streams.py",
}
# Within a temporary folder of `files`.
IN_A_TEMPORARY_FOLDER = {
    "kmint_tui/models/bundle.py",
    "convert/write.py",
}


def calls(tree: ast.Module) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def called(call: ast.Call) -> tuple[str, str]:
    """(owner, name) of a call: ("os", "replace"), ("path", "write_text"), ("", "open")."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return (function.value.id if isinstance(function.value, ast.Name) else "?", function.attr)
    return ("", function.id) if isinstance(function, ast.Name) else ("?", "?")


def writes(call: ast.Call) -> bool:
    """Whether it is an `open` for writing, by a mode that stands there as text."""
    modes = [
        item.value
        for item in call.args
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]
    return called(call)[1] == "open" and any(
        set(mode) & set("wax+") and len(mode) <= 3 for mode in modes
    )


def test_only_one_module_replaces_files_and_makes_temporary_ones() -> None:
    """A rename is `os.replace` or `Path.replace` with one argument; text has `str.replace` with
    two.
    """
    for path, tree in modules():
        if path == FILES or path.startswith(OWN):
            continue
        for call in calls(tree):
            owner, name = called(call)
            assert name not in MAKERS, f"{path}:{call.lineno}: use convert.files"
            assert (owner, name) not in RENAMES, f"{path}:{call.lineno}: use convert.files"
            one_argument = len(call.args) == 1 and not call.keywords
            one_argument &= path not in REPLACES_SYMBOLS
            assert not (name in ("replace", "rename") and one_argument), (
                f"{path}:{call.lineno}: use convert.files"
            )


def test_files_are_written_whole_or_where_it_is_said_why() -> None:
    """`write_text`, `write_bytes` and `open` for writing stand only in the modules that are listed
    above.
    """
    known = MAY_WRITE | MAY_OPEN | IN_A_TEMPORARY_FOLDER | {FILES}
    seen: set[str] = set()
    for path, tree in modules():
        for call in calls(tree):
            owner, name = called(call)
            if (name in ("write_text", "write_bytes") and owner != "files") or writes(call):
                seen.add(path)
                assert path in known or path.startswith(OWN), (
                    f"{path}:{call.lineno}: use convert.files"
                )
    assert known <= seen, f"nothing is written any more in {known - seen}"
