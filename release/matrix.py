"""Runs kmint's tests and the selftest with several versions of torch, Triton and the other packages.
It needs no GPU.

    pip install uv && python release/matrix.py        every pair of PAIRS
    python release/matrix.py --pair 2.11.0 3.6.0      one pair
    python release/matrix.py --quick                  only the tests that depend most on Triton
    python release/matrix.py --resolution lowest-direct
                                                      the oldest packages that kmint admits
    python release/matrix.py --over .venv --pair - 3.9.0
                                                      Triton alone, over another environment
    python release/matrix.py --over .venv --pair - 3.9.0 --renamed 3.10.0
                                                      the same under the number of an unknown version

Each pair gets a new environment, into which kmint is installed as a user would install it. Triton
then goes in alone, because a build of torch requires one Triton only. With `--over`, an
existing environment gives every package but Triton, or every package but the oldest direct ones;
torch, Triton and llama-cpp-python stay those of that environment then. The table goes to the
terminal. `--keep FILE` adds each row to a JSON file as soon as the row is known.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "kmint.matrix/1"
PAIRS = (("2.11.0", "3.6.0"), ("2.13.0", "3.7.1"), ("2.14.1", "3.8.0"), ("2.15.0", "3.9.0"))
ALL = ("tests/referee", "tests/forge", "tests/graph")
_JUDGE = (
    "interpret interpret_memory recorded_programs masked_lanes casts integers booleans formats"
    " subnormals combiners libdevice rounding hints pipelines race_detector"
).split()
QUICK = (
    "tests/referee/test_canary.py",
    "tests/referee/test_compiler_switches.py",
    *(
        f"tests/referee/trace/test_{name}.py"
        for name in ("triton_compat", "compile", "launches", "pruning")
    ),
    *(f"tests/referee/judge/test_{name}.py" for name in _JUDGE),
)
"""The tests of the parts that differ between versions of Triton."""
PACKAGES = (
    "tests/cli/test_frame.py",
    "tests/convert",
    "tests/models",
    "tests/history",
    "tests/tui/test_shell.py",
)
"""The tests of the parts that use the other direct dependencies."""
SAME = "-"
_STALE_PLUGINS = """
from importlib.metadata import distributions
own = {}
for one in distributions():
    plugins = {entry.name for entry in one.entry_points if entry.group == "pytest11"}
    print(*(plugins - own.setdefault(one.name.lower(), plugins)), sep="\\n")
"""
_OF_BELOW = ("torch", "triton", "llama-cpp-python", "nvidia-", "cuda-")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One environment. `tests` is pytest's last line; `failed` names its failures; `selftest` counts
    the wrong verdicts, None where it did not run.
    """

    torch: str
    triton: str
    python: str
    resolution: str
    scope: str
    tests: str
    failed: tuple[str, ...]
    selftest: int | None
    skipped: int | None
    seconds: float


def environment(folder: Path, torch: str, triton: str, resolution: str) -> Path:
    """The interpreter of a new environment with this pair in it."""
    python = folder / "bin" / "python"
    run(uv(), "venv", "--quiet", "--python", sys.executable, str(folder))
    install = (uv(), "pip", "install", "--quiet", "--python", str(python))
    wanted = [f"{ROOT}[test]", *([] if torch == SAME else [f"torch=={torch}"])]
    run(*install, f"--resolution={resolution}", *wanted)
    if triton != SAME:
        run(*install, "--no-deps", f"triton=={triton}")
    return python


def overlaid(folder: Path, below: Path, triton: str, resolution: str) -> Path:
    """The interpreter of a new environment that takes from `below` every package that is not put in
    here.
    """
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    inside = Path("lib") / version / "site-packages"
    paths = f"{ROOT}\n{below.resolve() / inside}\n"
    (folder / inside / "below.pth").write_text(paths, encoding="utf-8")
    wanted = [] if triton == SAME else [f"triton=={triton}"]
    if resolution != "highest":
        wanted += resolved(resolution)
    if wanted:
        install = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target")
        run(*install, str(folder / inside), *wanted)
    return folder / "bin" / "python"


def rename(python: Path, version: str) -> None:
    """Change the version number of the Triton in an environment, as an unknown version has one."""
    found = said(python, "-c", "import triton; print(triton.__file__)").strip()
    file = Path(found)
    if not file.is_relative_to(python.parents[1]):
        sys.exit(f"failed: this Triton belongs to another environment: {found}")
    text, count = re.subn(
        r"^__version__ = .*$",
        f"__version__ = '{version}'",
        file.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    if count != 1:
        sys.exit(f"failed: {found} names no version")
    file.write_text(text, encoding="utf-8")


def resolved(resolution: str) -> list[str]:
    """The packages of kmint and of its tests, each with its version, without those that `below` has
    to give.
    """
    # The tests' packages too: a new one of them does not work with an old one of kmint's.
    command = (uv(), "pip", "compile", "-q", "--no-header", "--no-annotate", "--extra=test")
    done = subprocess.run(
        (*command, f"--resolution={resolution}", str(ROOT / "pyproject.toml")),
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit("failed: uv pip compile")
    lines = (line.split(";")[0].strip() for line in done.stdout.splitlines())
    return [line for line in lines if line and not line.startswith(_OF_BELOW)]


def uv() -> str:
    """The program uv, of this interpreter's environment or of the search path."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return shutil.which("uv", path=places) or sys.exit("uv is missing: pip install uv")


def without_stale_plugins(python: Path) -> list[str]:
    """Arguments for pytest, which loads the plugins of every distribution that it finds.

    In an environment over another one, an older package may hide the module of a newer one's
    plugin.
    """
    return [f"-pno:{name}" for name in said(python, "-c", _STALE_PLUGINS).split()]


def run(*command: str) -> None:
    """Run it. Ends the script where it fails."""
    if subprocess.run(command).returncode:
        sys.exit(f"failed: {' '.join(command)}")


def tried(python: Path, resolution: str, scope: str, files: Sequence[str], processes: int) -> Row:
    """The tests and the selftest with one interpreter; the quick selftest judges good kernels."""
    started = time.monotonic()
    code = "import platform, torch, triton as t; print(torch.__version__, t.__version__, platform.python_version())"
    torch, triton, own = said(python, "-c", code).split()
    options = ("-q", f"-n{processes}", *without_stale_plugins(python))
    lines = said(python, "-m", "pytest", *options, *files).strip().splitlines()
    failed = tuple(line for line in lines if line.startswith(("FAILED", "ERROR")))
    code = "import sys; from kmint_tui.cli.main import main; sys.exit(main())"
    only = ["--only", "gold"] if scope == "quick" else []
    text = said(python, "-c", code, "selftest", "--json", *only)
    wrong = skipped = None
    try:
        document = json.loads(text)
        wrong = len(document["failures"])
        skipped = sum(result["status"] == "skipped" for result in document["results"])
    except ValueError:
        print(text, file=sys.stderr)
    return Row(
        torch=torch,
        triton=triton,
        python=own,
        resolution=resolution,
        scope=scope,
        tests=lines[-1] if lines else "no output",
        failed=failed,
        selftest=wrong,
        skipped=skipped,
        seconds=round(time.monotonic() - started, 1),
    )


def said(python: Path, *arguments: str) -> str:
    """The standard output of the interpreter, whether it fails or not."""
    with tempfile.TemporaryDirectory() as home:
        given = {**os.environ, "KMINT_HOME": home}
        return subprocess.run(
            [python, *arguments], cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True
        ).stdout


def table(rows: Sequence[Row]) -> str:
    """The rows in columns, and under them the names of failed tests."""
    names = ("torch", "triton", "python", "resolution", "scope", "selftest", "seconds", "tests")
    cells = [names, *(tuple(str(getattr(row, name)) for name in names) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    return "\n".join((*lines, *(f"{row.triton}: {name}" for row in rows for name in row.failed)))


def keep(file: Path, row: Row) -> None:
    """Add a row to the JSON file; it takes the place of an older one of the same environment."""

    def which(one: dict[str, Any]) -> tuple[object, ...]:
        return tuple(one[name] for name in ("torch", "triton", "python", "resolution", "scope"))

    rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    rows = [*(one for one in rows if which(one) != which(asdict(row))), asdict(row)]
    document = {"schema": SCHEMA, "machine": platform.machine(), "rows": rows}
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description="run kmint's tests with several versions of torch and Triton"
    )
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        metavar=("TORCH", "TRITON"),
        help=f"{SAME} leaves one as it is",
    )
    parser.add_argument("--resolution", default="highest", choices=("highest", "lowest-direct"))
    parser.add_argument(
        "--over", type=Path, metavar="VENV", help="take every other package from this environment"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the tests that depend most on Triton, and good kernels",
    )
    parser.add_argument(
        "--renamed", metavar="VERSION", help="give the Triton of each pair this version number"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    given = parser.parse_args()
    lowest = given.resolution != "highest"
    scope = "quick" if given.quick else "all"
    files = (*(QUICK if given.quick else ALL), *(PACKAGES if lowest else ()))
    rows = []
    for torch, triton in given.pair or ([(SAME, SAME)] if lowest else PAIRS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "venv"
            if given.over:
                python = overlaid(folder, given.over, triton, given.resolution)
            else:
                python = environment(folder, torch, triton, given.resolution)
            if given.renamed:
                rename(python, given.renamed)
            rows.append(tried(python, given.resolution, scope, files, given.processes))
        if given.keep:
            keep(given.keep, rows[-1])
    print(table(rows))


if __name__ == "__main__":
    main()
