"""Workers import the packages that the judge would import, also where another version of them lies
on the path.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from referee.gpu.replayer import ReplayerError
from referee.gpu.worker_process import WorkerProcess
from referee.judge import same_triton
from referee.sandbox.zygote import Zygote
from referee.versions import UnknownTriton, check_triton, describe_host, triton_version
from tests.referee.sandbox.support import LIMITS

REPORT = "def where(payload, scratch, fds):\n    import mpmath\n    return str(getattr(mpmath, 'MARK', mpmath.__file__)).encode()\n"


@pytest.fixture
def in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ahead of all others on this process's path; only its packages are readable for a
    worker.
    """
    (tmp_path / "front").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "front"))
    return tmp_path / "front"


def test_the_package_in_front_is_the_worker_s_too(
    in_front: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = tmp_path / "entries"
    entries.mkdir()
    (entries / "reporting.py").write_text(REPORT)
    monkeypatch.delitem(sys.modules, "mpmath", raising=False)

    def found() -> str:
        with Zygote(preload=("mpmath",), extra_path=(str(entries),)) as zygote:
            outcome = zygote.run("reporting:where", b"", limits=LIMITS)
        assert outcome.status == "ok", outcome
        return outcome.data.decode()

    assert found().endswith("mpmath/__init__.py")
    (in_front / "mpmath").mkdir()
    (in_front / "mpmath" / "__init__.py").write_text("MARK = 'in front'\n")
    importlib.invalidate_caches()
    assert found() == "in front"


def test_the_version_is_that_of_the_package_in_front(
    in_front: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = triton_version()
    assert installed is not None and installed.startswith("3.")
    (in_front / "triton").mkdir()
    (in_front / "triton" / "__init__.py").write_text(
        "'''isort:skip_file'''\n__version__ = '2.8.7'\n"
    )
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert triton_version() == "2.8.7"
    with pytest.raises(UnknownTriton, match=r"triton 2\.8\.7 is not supported"):
        check_triton()


def test_the_package_in_front_is_the_replay_worker_s_too(
    in_front: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker imports from the judge's folders, in their order, and from none that a variable
    names.
    """
    (in_front / "mpmath").mkdir()
    (in_front / "mpmath" / "__init__.py").write_text("MARK = 'in front'\n")
    (in_front / "telling.py").write_text(
        "import sys, mpmath\nopen(sys.argv[1], 'w').write(mpmath.MARK)\n"
    )
    (tmp_path / "mpmath.py").write_text("MARK = 'of a variable'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = WorkerProcess(tmp_path, "telling", str(tmp_path / "told"))
    worker.close()
    assert (tmp_path / "told").read_text() == "in front"


def test_two_tritons_are_an_error_of_the_machinery() -> None:
    same_triton("3.6.0", "3.6.0")
    with pytest.raises(
        ReplayerError,
        match=r"triton 3\.7\.1 compiles, and the process that replays finds triton 3\.6\.0",
    ):
        same_triton("3.7.1", "3.6.0")


def test_without_triton_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.versions.find_spec", lambda name: None)
    assert describe_host()["triton"] is None
    with pytest.raises(
        UnknownTriton, match=r"triton is not installed: the referee needs triton 3\.6 or later"
    ):
        check_triton()
