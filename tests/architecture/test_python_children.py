"""Every Python child is started in one way, and modules in the current folder are never taken for
kmint's own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from kmint_tui.doctor.kernel import OP, SOURCE
from referee import python_child
from tests.architecture.test_imports import ROOT, imported, modules, uses
from tests.tiny_models import llama

HELPERS = ("referee/python_child.py", "convert/python_child.py")
# They start programs that are no Python interpreter: ptxas, nvidia-smi, nvidia-modprobe, ncu.
OTHER_PROGRAMS = {
    "referee/versions.py",
    "kmint_tui/core/facts.py",
    "kmint_tui/profiling/measured.py",
    "kmint_tui/screens/editor.py",
    "kmint_tui/smith/confined.py",
}
# It tells which interpreter took a measurement, and starts none.
NAMES_THE_INTERPRETER = {
    "kmint_tui/save/first_call.py",
    "referee/gpu/environment.py",
    "referee/sandbox/zygote.py",
}
STARTS = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
OF_THE_SYSTEM = ("exec", "spawn", "posix_spawn", "system", "popen")
SHADOW = (
    "import os\nwith open(os.environ['SHADOWS'], 'a') as log:\n    log.write(__file__ + chr(10))\n"
)
# `kmint` as the package's entry point starts it: the script's folder, not the current one, is first
# on the path.
SCRIPT = (
    "import sys\nsys.path.append({root!r})\nfrom kmint_tui.cli.main import main\nsys.exit(main())\n"
)


def test_one_place_knows_the_interpreter() -> None:
    """`sys.executable` is used by the helper alone, and nothing forks servers of Python's own."""
    for path, tree in modules():
        assert not uses(
            imported(tree),
            {
                "multiprocessing",
                "concurrent.futures.process",
                "concurrent.futures.ProcessPoolExecutor",
            },
        ), path
        if path not in (*HELPERS, *NAMES_THE_INTERPRETER):
            assert "sys.executable" not in {
                ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
            }, path
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
            ):
                assert not node.attr.startswith(OF_THE_SYSTEM), f"{path}:{node.lineno}"


def test_every_child_is_started_by_the_helper() -> None:
    """Each call of `subprocess` gets its command from `python_child`, and starts in its folder."""
    started = set()
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or path in OTHER_PROGRAMS:
                continue
            called = ast.unparse(node.func)
            if called.partition(".")[0] == "subprocess" and called.rpartition(".")[2] in STARTS:
                folder = next(
                    (ast.unparse(word.value) for word in node.keywords if word.arg == "cwd"), ""
                )
                assert ast.unparse(node.args[0]).startswith("python_child."), (
                    f"{path}:{node.lineno}"
                )
                assert folder == "python_child.WORKING_FOLDER", f"{path}:{node.lineno}"
                started.add(path)
    assert len(started) >= 6, started


def test_both_packages_hold_the_same_helper() -> None:
    first, second = ((ROOT / path).read_text(encoding="utf-8") for path in HELPERS)
    assert first == second


def test_a_child_finds_what_this_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the import path counts, in its place; the current folder, relative folders and
    PYTHONPATH do not.
    """
    for name in ("front", "here", "variable"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "found.py").write_text(f"MARK = {name!r}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "variable"))
    monkeypatch.setattr(
        sys, "path", ["", str(tmp_path / "here"), "../variable", *sys.path, str(tmp_path / "front")]
    )

    def said(command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=python_child.WORKING_FOLDER, capture_output=True, text=True, check=True
        )
        return done.stdout

    places = {
        f"{folder / 'referee' / '__init__.py'}\n"
        for folder in (ROOT, Path(sysconfig.get_path("purelib")))
    }
    assert (
        said(
            python_child.command("import found, sys; print(found.MARK, sys.argv[1:])", "one", "two")
        )
        == "front ['one', 'two']\n"
    )
    assert said(python_child.command("import referee; print(referee.__file__)", path=())) in places
    assert (
        "" not in python_child.import_path()
        and str(tmp_path / "here") not in python_child.import_path()
    )


def shadows(folder: Path) -> Path:
    """Fill a folder with a module for each name that Python or kmint imports; they write down that
    they were run.
    """
    names = (
        set(sys.stdlib_module_names)
        | set(packages_distributions())
        | {"kmint_tui", "referee", "convert", "sitecustomize", "usercustomize"}
    )
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(SHADOW, encoding="utf-8")
    return folder


@pytest.mark.sweep
@pytest.mark.parametrize(
    "arguments",
    [
        ["models", "verify", "embedded"],
        ["models", "import", "{model}", "--as", "tiny"],
        ["doctor"],
        ["judge", "{kernel}", "--op", OP],
        ["mint", "softmax", "--drafts", "1", "--max-tokens", "40", "--seed", "1"],
        ["history"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_no_module_of_the_current_folder_runs(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody runs kmint in a cloned repository with a `types.py` or a `jinja2.py` in it."""
    here, script, log = tmp_path / "here", tmp_path / "bin" / "kmint", tmp_path / "log"
    here.mkdir()
    script.parent.mkdir()
    script.write_text(SCRIPT.format(root=str(ROOT)), encoding="utf-8")
    (tmp_path / "kernel.py").write_text(SOURCE, encoding="utf-8")
    places = {"model": str(llama(tmp_path / "m.gguf")), "kernel": str(tmp_path / "kernel.py")}
    monkeypatch.setenv("SHADOWS", str(log))
    command = [sys.executable, str(script), *(argument.format(**places) for argument in arguments)]
    done = subprocess.run(command, cwd=shadows(here), capture_output=True, text=True)
    assert not log.exists(), log.read_text(encoding="utf-8")
    # The machine decides about doctor's answer.
    assert done.returncode in {"doctor": (0, 3)}.get(arguments[0], (0,)), done.stderr
