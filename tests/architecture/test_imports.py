"""Who may import whom, and what may be loaded when."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "torch",
    "triton",
    "llama_cpp",
    "textual",
    "numpy",
    "transformers",
    "huggingface_hub",
    "gguf",
}
PACKAGES = ("kmint_tui", "referee", "convert")

NETWORK = {
    *("http", "urllib.request", "ssl", "ftplib", "smtplib", "socketserver"),
    *("requests", "httpx", "httpx2", "aiohttp", "huggingface_hub"),
}
MAY_USE_NETWORK = {
    "kmint_tui/models/endpoint.py",
    "kmint_tui/models/hub.py",
    "kmint_tui/models/hub_http.py",
    "kmint_tui/core/farm/cluster.py",
}
MAY_USE_SOCKETS = {
    # A Unix socket in a folder of the user's alone (`test_a_session_uses_unix_sockets_only`).
    "kmint_tui/service/place.py",
    # Unnamed socket pairs between a process and its own children; no address is ever bound or
    # connected.
    "referee/sandbox/zygote.py",
    "referee/sandbox/zygote_job.py",
    "referee/sandbox/worker.py",
    "referee/sandbox/worker_job.py",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def uses(names: set[str], wanted: set[str]) -> set[str]:
    return {
        name
        for name in names
        if any(name == module or name.startswith(module + ".") for module in wanted)
    }


def loaded_by(code: str, home: Path) -> set[str]:
    script = f"import sys\n{code}\nsys.stderr.write('LOADED ' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KMINT_HOME": str(home)},
    )
    assert "LOADED " in done.stderr, done.stderr
    return {name.partition(".")[0] for name in done.stderr.rpartition("LOADED ")[2].split()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["mint", "--help"],
        ["judge", "--help"],
        ["ops"],
        ["ops", "show", "softmax"],
        ["models", "ls"],
        ["history"],
        ["path"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_quick_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    loaded = loaded_by(f"from kmint_tui.cli.main import main\nmain({arguments!r})", tmp_path)
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    "module",
    [
        "referee",
        "referee.ops",
        "kmint_tui.mint",
        "kmint_tui.events",
        "kmint_tui.smith",
        "kmint_tui.smith.prompts",
    ],
)
def test_light_modules_load_nothing_heavy(module: str, tmp_path: Path) -> None:
    assert not loaded_by(f"import {module}", tmp_path) & HEAVY


def test_importing_the_application_makes_no_directory(tmp_path: Path) -> None:
    names = [
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path, _ in modules()
    ]
    names = [
        name for name in names if name.startswith("kmint_tui") and not name.endswith("__main__")
    ]
    home = tmp_path / "home"
    loaded_by(
        "import importlib\n" + "\n".join(f"importlib.import_module({name!r})" for name in names),
        home,
    )
    assert not home.exists()


def test_only_the_interface_imports_textual() -> None:
    allowed = ("kmint_tui/app.py", "kmint_tui/screens/", "kmint_tui/widgets/")
    assert [
        path
        for path, tree in modules()
        if uses(imported(tree), {"textual"}) and not path.startswith(allowed)
    ] == []


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count; those for annotations alone do not."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=True)
    order = TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    order.prepare()  # Raises CycleError, which names the circle.


def test_only_main_starts_the_command_line() -> None:
    outside = {
        path
        for path, tree in modules()
        if uses(imported(tree), {"kmint_tui.cli"}) and not path.startswith("kmint_tui/cli/")
    }
    assert outside == {"kmint_tui/__main__.py"}


def test_only_the_command_line_imports_click() -> None:
    assert [
        path
        for path, tree in modules()
        if uses(imported(tree), {"click"}) and not path.startswith("kmint_tui/cli/")
    ] == []


def test_only_the_downloader_and_the_endpoint_open_connections() -> None:
    for path, tree in modules():
        names = imported(tree)
        assert not uses(names, NETWORK) or path in MAY_USE_NETWORK, path
        assert not uses(names, {"socket"}) or path in MAY_USE_NETWORK | MAY_USE_SOCKETS, path


def test_only_the_agents_server_uses_mcp() -> None:
    assert [path for path, tree in modules() if uses(imported(tree), {"mcp"})] == [
        "kmint_tui/agent/server.py"
    ]


def test_a_session_uses_unix_sockets_only() -> None:
    tree = dict(modules())["kmint_tui/service/place.py"]
    families = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("AF_")
    }
    made = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "socket.socket"
    ]
    assert families == {"AF_UNIX"} and made
    assert all(ast.unparse(node.args[0]) == "socket.AF_UNIX" for node in made)


# These ask of the streams (are they terminals, are they open?) or flush them, and never write.
_LOOKING = ("main.py", "state.py", "termination.py")


def test_only_one_module_writes_to_the_standard_streams() -> None:
    for path, tree in modules():
        if not path.startswith("kmint_tui/cli/"):
            continue
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.attr in ("stdout", "stderr")
                and node.value.id == "sys"
            ):
                name = path.removeprefix("kmint_tui/cli/")
                assert name in ("streams.py", *_LOOKING), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "click.echo", "click.secho"), f"{path}:{node.lineno}"


def test_files_stay_small() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in (*PACKAGES, "forge", "bench", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}
