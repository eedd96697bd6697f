"""The engine's process with a stranger's model file: its rights, and the report on them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from kmint_tui.doctor.examination import Child, listen
from kmint_tui.smith import Choice, Failed, ModelLoaded, Smith, Token, confined
from kmint_tui.smith.confined import WITHOUT_VARIABLE, as_choice
from kmint_tui.smith.events import encode
from referee.sandbox.confinement import NAMES
from referee.sandbox.demand import Protection
from tests.smith.conftest import MakeSmith

ROOT = str(Path(__file__).resolve().parents[2])
SCRIPT = """
import json, sys
sys.path.append({root!r})
from importlib.util import find_spec
from pathlib import Path
from kmint_tui.smith.confined import confine
confine(Path(sys.argv[1]))
import numpy
from kmint_tui.smith.native import library
said = [library().__name__, open(sys.argv[1], "rb").read(4).decode()]
for path, mode in ((sys.argv[2], "r"), (sys.argv[2], "a"), (sys.argv[1], "a")):
    try:
        open(path, mode)
        said.append("opened")
    except PermissionError:
        said.append("refused")
print(json.dumps(said))
"""


def confinement(smith: Smith) -> Choice:
    """The engine's report on its layers."""
    *_, loaded = smith.load()
    assert isinstance(loaded, ModelLoaded)
    return next(choice for choice in loaded.choices if choice.name == "confinement")


def test_it_reads_its_model_and_writes_nothing(
    model_files: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    command = [
        sys.executable,
        "-c",
        SCRIPT.format(root=ROOT),
        str(model_files["llama"]),
        str(tmp_path / "secret"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(done.stdout) == [
        "llama_cpp.llama_cpp",
        "GGUF",
        "refused",
        "refused",
        "refused",
    ], done.stderr


def test_packages_may_lie_in_any_folder(model_files: dict[str, Path], tmp_path: Path) -> None:
    """A confined process cannot list a folder outside site-packages, and still knows versions."""
    folder = tmp_path / "packages"
    folder.mkdir()
    spec = find_spec("llama_cpp")
    assert spec is not None and spec.origin is not None
    for entry in Path(spec.origin).parents[1].iterdir():
        (folder / entry.name).symlink_to(entry)
    script = "import sys; sys.path[:] = [one for one in sys.path if 'site-packages' not in one]\n"
    script += f"sys.path.append({str(folder)!r})\n" + SCRIPT.format(root=ROOT)
    model, secret = model_files["llama"], tmp_path / "secret"
    secret.write_text("secret")
    command = [sys.executable, "-I", "-c", script, str(model), str(secret)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(done.stdout)[0] == "llama_cpp.llama_cpp", done.stderr


def test_the_running_process_has_the_layers_and_says_so(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    assert confinement(smith) == Choice("confinement", "every layer", ", ".join(NAMES))
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{smith.pid}/status").read_text().splitlines()
    )
    threads = [path.read_text() for path in Path(f"/proc/{smith.pid}/task").glob("*/status")]
    assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16)) == ("2", "1", 0)
    assert len(threads) > 1 and all(
        "Seccomp:\t2" in text and "NoNewPrivs:\t1" in text for text in threads
    )


def test_a_layer_left_out_for_a_driver_is_told(
    make_smith: MakeSmith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WITHOUT_VARIABLE, "landlock, system-call filter")
    reason = "no landlock: left out on request; no system-call filter: left out on request"
    assert confinement(make_smith("llama")) == Choice("confinement", "4 of 6 layers", reason)


def test_missing_layers_are_told_with_their_reasons() -> None:
    layers = (
        Protection("landlock", False, "an old kernel"),
        Protection("not dumpable", True, "yes"),
    )
    assert as_choice(layers) == Choice("confinement", "1 of 2 layers", "no landlock: an old kernel")


def test_it_is_given_no_secret_of_the_users(
    make_smith: MakeSmith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-very-secret-word")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    smith = make_smith("llama")
    assert isinstance([*smith.load()][-1], ModelLoaded)
    try:
        variables = Path(f"/proc/{smith.pid}/environ").read_bytes()
    except PermissionError:
        pytest.skip("only root may look at it")
    assert b"CUDA_VISIBLE_DEVICES=3" in variables and b"a-very-secret-word" not in variables


@pytest.mark.parametrize("shift", ["", "'"], ids=["long", "long and then no JSON"])
def test_a_line_without_an_end_is_cut_off(
    make_smith: MakeSmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: str
) -> None:
    """A process under the control of a model file may write for ever."""
    liar = tmp_path / "python"
    liar.write_text(f"#!/bin/sh\nprintf '\"%s' \"{shift}\"\nexec tr '\\0' x < /dev/zero\n")
    liar.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(liar))
    monkeypatch.setattr("kmint_tui.smith.child._LINE_CHARACTERS", 1 << 20)
    *_, event = make_smith("llama").load()
    assert isinstance(event, Failed) and event.code == "protocol"


@pytest.mark.parametrize("draft", [2, -1, 10**9])
def test_a_draft_that_was_not_asked_for_is_no_draft(
    make_smith: MakeSmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draft: int
) -> None:
    loaded = ModelLoaded(
        path="m",
        description="m",
        architecture="llama",
        parameters=1,
        bytes=1,
        layers=1,
        vocabulary=1,
        trained_context=1,
        recurrent=False,
        gpu_layers=0,
        choices=(),
        seconds=0.1,
    )
    liar = tmp_path / "python"
    liar.write_text(
        f"#!/bin/sh\ncat << 'END'\n{encode(loaded)}\n{encode(Token(draft, 'x', 1))}\nEND\nread line\nread line\n"
    )
    liar.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(liar))
    *_, event = make_smith("llama").draft("def run(", 2)
    assert isinstance(event, Failed) and event.code == "protocol" and str(draft) in event.reason


@pytest.mark.parametrize(
    ("parts", "devices"),
    [
        (("base", "cpu", "cpu-haswell", "blas"), 0),
        (("base", "cpu", "cuda"), 2),
        (("base", "cpu", "hip"), 2),
        (("base", "vulkan"), 2),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, tuple) else "",
)
def test_devices_are_for_builds_that_use_them(
    parts: tuple[str, ...], devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a build on a machine with one GPU."""
    package = tmp_path / "llama_cpp"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for part in parts:
        (package / "lib" / f"libggml-{part}.so").write_text("")
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "tty", "sda"):
        (tmp_path / "dev" / name).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    monkeypatch.setattr(confined, "_DEVICE_FOLDER", tmp_path / "dev")
    found = confined.rights(None)
    assert len(found.devices) == devices and (found.memory_bytes is None) == bool(devices)


def test_the_examination_names_each_layer() -> None:
    child = Child("smith")
    found = tuple(listen((child,), time.monotonic() + 3600))
    child.close()
    assert [one.name for one in found] == [f"smith {name}" for name in NAMES]
    assert all(one.status == "ok" or one.fix for one in found)


def test_all_that_llama_cpp_imports_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each package lies in a folder of its own, as on PYTHONPATH."""
    code = "import sys, numpy; had = set(sys.modules); from llama_cpp import llama_cpp"
    shown = "print(*{name.partition('.')[0] for name in set(sys.modules) - had})"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}; {shown}"], capture_output=True, text=True, check=True
    )
    imported = set(child.stdout.split()) - set(sys.stdlib_module_names) - {"__mp_main__"}
    assert "llama_cpp" in imported
    for name in imported:
        folder = tmp_path / f"of_{name}"
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, name, raising=False)
    readable = confined.rights(None).readable
    assert {str(tmp_path / f"of_{name}" / name) for name in imported} <= set(readable)
