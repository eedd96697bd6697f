"""Workers import the packages that the judge would import, also where another version of them lies on the path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from referee.device.gpu import ReplayerError
from referee.device.gpu_worker import _environment
from referee.judge import same_triton
from referee.sandbox.zygote import Zygote
from referee.triton_version import UnknownTriton, check_triton, triton_version
from referee.versions import describe_host
from tests.referee.sandbox.support import LIMITS

REPORT = "def where(payload, scratch, fds):\n    import mpmath\n    return str(getattr(mpmath, 'MARK', mpmath.__file__)).encode()\n"


@pytest.fixture
def in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ahead of all others on this process's path; only its packages are readable for a worker."""
    (tmp_path / "front").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "front"))
    return tmp_path / "front"


def test_the_package_in_front_is_the_worker_s_too(in_front: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_version_is_that_of_the_package_in_front(in_front: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = triton_version()
    assert installed is not None and installed.startswith("3.")
    (in_front / "triton").mkdir()
    (in_front / "triton" / "__init__.py").write_text("'''isort:skip_file'''\n__version__ = '9.8.7'\n")
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert triton_version() == "9.8.7"
    with pytest.raises(UnknownTriton, match=r"triton 9\.8\.7 is not supported"):
        check_triton()


def test_the_replay_worker_keeps_the_path_that_was_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/some/where:/else")
    assert _environment(tmp_path)["PYTHONPATH"].split(":")[-2:] == ["/some/where", "/else"]


def test_two_tritons_are_an_error_of_the_machinery() -> None:
    same_triton("3.6.0", "3.6.0")
    with pytest.raises(ReplayerError, match=r"triton 3\.7\.1 compiles, and the process that replays finds triton 3\.6\.0"):
        same_triton("3.7.1", "3.6.0")


def test_without_triton_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.triton_version.find_spec", lambda name: None)
    assert describe_host()["triton"] is None
    with pytest.raises(UnknownTriton, match=r"triton is not installed: the referee needs 3\.6 or 3\.7"):
        check_triton()
