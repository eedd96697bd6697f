"""What every test shares: a private place for kmint's files, nothing of the caller's settings, and
the gpu marker.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.sampling import EVERY_CASE, SWEEP_STEP

if TYPE_CHECKING:
    from referee.judge import Referee

# What somebody's shell or a build machine may hold, and what would change what kmint or a child
# process does.
_FOREIGN = ("KMINT_", "HF_", "HUGGING", "XDG_", "CLICOLOR", "TEXTUAL")
_OF_THE_TESTS = "KMINT_TEST_"
_FOREIGN_NAMES = {
    "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION",
    "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE", "PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONOPTIMIZE",
    "PYTHONPROFILEIMPORTTIME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "PYTHONUTF8", "PYTHONVERBOSE", "PYTHONWARNINGS",
}  # fmt: skip
for _name in list(os.environ):
    if (
        (_name.startswith(_FOREIGN) and not _name.startswith(_OF_THE_TESTS))
        or _name in _FOREIGN_NAMES
        or _name.lower().endswith("_proxy")
    ):
        del os.environ[_name]

# What is started in the background of a shell or by `nohup` ignores these, and so would every child
# that a test sends one. A handler is not inherited: it ignores them for this process alone.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)
signal.pthread_sigmask(signal.SIG_SETMASK, ())

# Collecting the tests makes hardly any garbage, and looking for some is a fifth of its time.
gc.disable()

# Two spinning threads of a library are many times slower than one while anything else runs on the
# machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Triton 3.9 warns where nothing says whether a * b + c is fused.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

# The same examples in every run, and no failure because the machine was busy.
settings.register_profile(
    "kmint",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("kmint")


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("homes")
    # A folder of pytest's own costs a look at all the earlier ones.
    return (folder / str(number) / "kmint" for number in count())


@pytest.fixture(autouse=True)
def kmint_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A KMINT_HOME of the test's own, so that no test reads or writes the user's files."""
    home = next(_homes)
    home.parent.mkdir()
    monkeypatch.setenv("KMINT_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def shared_referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    """One warm referee for all tests of a process."""
    from tests.shared_referee import SharedReferee

    with pytest.MonkeyPatch.context() as patch:
        # Files judge a few operations in turn.
        patch.setattr("referee.judge.MOST_SEEDS", 8)
        with SharedReferee(cache=tmp_path_factory.mktemp("warm")) as opened:
            yield opened


def _patches(item: pytest.Item) -> bool:
    """Whether a test patches something itself, or by a fixture made for that."""
    info = item._fixtureinfo  # type: ignore[attr-defined]
    made = {name for name, found in info.name2fixturedefs.items() if name not in _PATCH_NO_STEP}
    return "monkeypatch" in info.argnames or any(
        "monkeypatch" in found.argnames for name in made for found in info.name2fixturedefs[name]
    )


_PATCH_NO_STEP = {"kmint_home", "own_process", "warm"}


@pytest.fixture(autouse=True)
def _seed_of_the_run(request: pytest.FixtureRequest) -> None:
    shared = sys.modules.get("tests.shared_referee")
    if shared is not None:
        shared.SharedReferee.repeats = not _patches(request.node)
        request.node.add_report_section("setup", "KMINT_TEST_SEED", str(shared.SEED))


@pytest.fixture
def warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kmint` of tests/cli/runner.py runs in this process, and the referee that it opens is open.

    A command of its own process would load torch three times. Where a GPU is, each command does:
    tests hide the GPU from a command by its environment.
    """
    # A command finds another class under the name of the referee's.
    import tests.shared_referee  # noqa: F401
    from referee.gpu.replayer import Replayer

    if Replayer.available() is not None:
        monkeypatch.setattr(
            "tests.cli.runner.warm", lambda: request.getfixturevalue("shared_referee")
        )


@pytest.fixture
def own_process(warm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file whose tests are `warm`: `kmint` runs in a process of its own in this test."""
    monkeypatch.setattr("tests.cli.runner.warm", None)


@pytest.fixture(autouse=True)
def _torch_settings() -> Iterator[None]:
    """No test may change how gradients are made in the process that it shares with others."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.is_anomaly_enabled():
        torch.autograd.set_detect_anomaly(False)
        pytest.fail("a test left torch's detection of anomalies on")
    if torch is not None and not torch.is_grad_enabled():
        torch.set_grad_enabled(True)
        pytest.fail("the test left torch's gradients off, and later tests need them")


def _group(item: pytest.Item) -> str:
    """A file, but for what needs the GPU, and for what shares a fixture that takes minutes to make."""
    if item.get_closest_marker("gpu"):
        return "gpu"
    return (
        "project"
        if "project" in getattr(item, "fixturenames", ())
        else item.nodeid.partition("::")[0]
    )


# The fixtures and the names in a module by which a test starts processes, runs kernels or drives the
# application.
_SLOW_FIXTURES = {
    "interpreter", "make_smith", "open_app", "project", "referee", "servers", "smiths", "warm",
    "zygote",
}  # fmt: skip
_SLOW_NAMES = {"Referee", "Workers", "Zygote", "kmint", "subprocess"}
_SLOW_FOLDERS = ("forge", "tui", "referee/sandbox")
_SLOW_FILES = {
    "tests/convert/test_equals_peft.py",
    "tests/referee/judge/test_fresh_widths.py",
    "tests/referee/judge/test_quick_compare.py",
    "tests/referee/judge/test_user_tolerance.py",
    "tests/referee/ops/test_reference.py",
    "tests/referee/ops/test_mutation_check.py",
    "tests/referee/reference/test_reference_values.py",
    "tests/referee/stats/test_decided.py",
}


# Longest first, so that no worker begins a long one when the others are nearly done.
_LONGEST = (
    "project",
    "tests/tui/test_snapshots.py",
    "tests/docs/test_examples.py",
    "tests/tui/test_random_keys.py",
    "tests/referee/judge/test_cpu_reach.py",
    "tests/referee/judge/test_judge.py",
    "tests/graph/test_variants.py",
    "tests/referee/test_canary.py",
    "tests/referee/judge/test_interpreter_checks.py",
    "tests/referee/judge/test_kills.py",
    "tests/mint/test_end_to_end.py",
    "tests/smith/test_engine.py",
    "tests/referee/judge/test_replay_path.py",
    "tests/save/test_planted_mistakes.py",
    "tests/save/test_own_reference.py",
    "tests/save/test_verifying.py",
    "tests/referee/judge/test_batch_invariance.py",
    "tests/referee/judge/test_library_style.py",
    "tests/smith/test_drafting.py",
    "tests/convert/test_equals_peft.py",
    "tests/referee/judge/test_fresh_widths.py",
)


def _turn(item: pytest.Item) -> int:
    group = _group(item)
    return _LONGEST.index(group) if group in _LONGEST else len(_LONGEST)


def _is_slow(item: pytest.Item) -> bool:
    """Whether a test is left out of the quick group, `-m "not slow"`."""
    file = item.nodeid.partition("::")[0]
    return (
        item.get_closest_marker("gpu") is not None
        or file in _SLOW_FILES
        or file.startswith(tuple(f"tests/{folder}/" for folder in _SLOW_FOLDERS))
        or not _SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or not _SLOW_NAMES.isdisjoint(vars(getattr(item, "module", item)))
    )


def _sampled(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """The items with one of `SWEEP_STEP` cases of each test marked `sweep`. A case that was asked for
    by its name stays.
    """
    asked = any("[" in name for name in config.args)
    seen: Counter[str] = Counter()
    left: list[pytest.Item] = []
    out: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        stays = not item.get_closest_marker("sweep") or seen[test] % SWEEP_STEP == 0 or asked
        seen[test] += 1
        (left if stays else out).append(item)
    if out:
        config.hook.pytest_deselected(items=out)
    return left


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for garbage from now on, and never among what is collected, which stays."""
    gc.freeze()
    gc.enable()


# Before xdist looks at the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of sweeps, skip the tests marked `gpu` where no CUDA device answers, mark the
    slow ones, and say which tests stay in one process with `-n`.
    """
    if not EVERY_CASE:
        items[:] = _sampled(config, items)
    items.sort(key=_turn)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        if _is_slow(item):
            item.add_marker(pytest.mark.slow)
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
