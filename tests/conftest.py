"""What every test shares: a private place for kmint's files, nothing of the caller's settings, and the gpu marker."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What somebody's shell or a build machine may hold, and what would change what kmint or a child process does.
_FOREIGN = ("KMINT_", "HF_", "HUGGING", "XDG_", "CLICOLOR", "TEXTUAL")
_OF_THE_TESTS = "KMINT_TEST_"
_FOREIGN_NAMES = {
    "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TRITON_INTERPRET",
    "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONPROFILEIMPORTTIME", "PYTHONSAFEPATH",
    "PYTHONSTARTUP", "PYTHONUTF8", "PYTHONVERBOSE", "PYTHONWARNINGS",
}  # fmt: skip
for _name in list(os.environ):
    if (_name.startswith(_FOREIGN) and not _name.startswith(_OF_THE_TESTS)) or _name in _FOREIGN_NAMES or _name.lower().endswith("_proxy"):
        del os.environ[_name]

# What is started in the background of a shell or by `nohup` ignores these, and so would every child that a test sends one. A
# handler is not inherited: it ignores them for this process alone.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)
signal.pthread_sigmask(signal.SIG_SETMASK, ())

# Two spinning threads of a library are many times slower than one while anything else runs on the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, and no failure because the machine was busy.
settings.register_profile(
    "kmint", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("kmint")


@pytest.fixture(autouse=True)
def kmint_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A KMINT_HOME of the test's own, so that no test reads or writes the user's files."""
    home = tmp_path_factory.mktemp("home") / "kmint"
    monkeypatch.setenv("KMINT_HOME", str(home))
    return home


def _group(item: pytest.Item) -> str:
    """A file, but for what needs the GPU, and for what shares a fixture that takes minutes to make."""
    if item.get_closest_marker("gpu"):
        return "gpu"
    return "project" if "project" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]


# Before xdist looks at the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where no CUDA device answers; with `-n`, say which tests stay in one process."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
