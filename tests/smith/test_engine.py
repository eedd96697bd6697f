"""The child process: bad files, cancelling, killing at any moment, and never an orphan."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kmint_tui.smith import (
    DraftDone,
    Event,
    Failed,
    Loading,
    ModelLoaded,
    Prompt,
    RunDone,
    Smith,
    Token,
)
from tests.sampling import repeats
from tests.smith.conftest import MakeSmith, done

PROMPT = Prompt("system", "tl.store(y_ptr, x) " * 40)
GIVE_UP_SECONDS = 300


def wait_for_end(pid: int) -> bool:
    """True when the process ends within a generous time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], GIVE_UP_SECONDS)[0])
    finally:
        os.close(handle)


def last(smith: Smith) -> Event:
    *_, event = smith.draft(PROMPT, 2, max_tokens=5)
    return event


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read"),
        (b"", "not a GGUF file"),
        (b"hello, world" * 100, "not a GGUF file"),
        (b"GGUF" + b"\xff" * 200, "llama.cpp"),
        (b"GGUF\x03\x00\x00\x00", "llama.cpp"),
    ],
)
def test_files_that_are_no_models_fail_with_a_reason(
    make_smith: MakeSmith, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    *_, event = make_smith(path).load()
    assert isinstance(event, Failed) and event.code == "model" and event.exit_code == 4
    assert reason in event.reason and "\n" not in event.reason


@pytest.mark.parametrize("share", [0.2, 0.5, 0.95])
def test_a_truncated_model_fails_with_a_reason(
    make_smith: MakeSmith, model_files: dict[str, Path], tmp_path: Path, share: float
) -> None:
    whole = model_files["llama"].read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * share)])
    smith = make_smith(path)
    *_, event = smith.load()
    assert isinstance(event, Failed) and event.code == "model"
    assert str(path) in event.reason
    assert event.log == str(smith.log)
    assert smith.pid is None


def test_layers_that_were_asked_for_and_not_given_stop_the_run(make_smith: MakeSmith) -> None:
    *_, event = make_smith("llama", gpu_layers=-1).load()
    if isinstance(event, ModelLoaded):
        pytest.skip("this machine has a GPU that llama.cpp uses")
    assert isinstance(event, Failed) and event.code == "gpu" and event.exit_code == 3
    *_, event = make_smith("llama", gpu_layers=-1, allow_cpu=True).load()
    assert isinstance(event, ModelLoaded) and event.gpu_layers == 0


def test_cancelling_ends_every_draft_and_the_next_run_is_whole(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    events: list[Event] = []
    # As many tokens as fit, so that the run is far from its end when the cancel arrives.
    for event in smith.draft(PROMPT, 4, max_tokens=1200):
        if isinstance(event, Token) and not any(isinstance(seen, Token) for seen in events):
            smith.cancel()
        events.append(event)
    assert isinstance(events[-1], RunDone) and events[-1].cancelled
    assert {draft.finish for draft in done(events).values()} <= {"cancelled", "stop", "length"}
    assert len(done(events)) == 4
    assert "cancelled" in {draft.finish for draft in done(events).values()}
    whole = list(smith.draft(PROMPT, 4, max_tokens=10))
    assert isinstance(whole[-1], RunDone) and not whole[-1].cancelled
    assert all(draft.tokens == 10 for draft in done(whole).values())


@pytest.mark.parametrize("model", ["llama", "hybrid"])
def test_cancelling_before_anything_happened_keeps_the_books(
    make_smith: MakeSmith, model: str
) -> None:
    smith = make_smith(model)
    list(smith.load())
    clean = [
        draft.ids for draft in done(list(smith.draft(PROMPT, 3, max_tokens=20, seed=1))).values()
    ]
    for round_ in repeats(3, 6):
        prompt = Prompt("system", f"{round_} " + "tl.load(x_ptr) " * 200)
        run = smith.draft(prompt, 3, max_tokens=100)
        starter = threading.Thread(target=smith.cancel)
        starter.start()
        events = list(run)
        starter.join()
        assert isinstance(events[-1], RunDone) and len(done(events)) == 3
    again = [
        draft.ids for draft in done(list(smith.draft(PROMPT, 3, max_tokens=20, seed=1))).values()
    ]
    assert again == clean


def test_a_cancel_while_the_model_is_loaded_is_not_lost(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    events: list[Event] = []
    for event in smith.draft(PROMPT, 3, max_tokens=400):
        if isinstance(event, Loading) and not events:
            smith.cancel()
        events.append(event)
    assert isinstance(events[-1], RunDone) and events[-1].cancelled
    assert {(draft.finish, draft.tokens) for draft in done(events).values()} == {("cancelled", 0)}


def test_leaving_the_iterator_cancels_the_run(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    run = smith.draft(PROMPT, 4, max_tokens=400)
    assert any(isinstance(event, Token) for event in run)
    run.close()  # type: ignore[attr-defined]
    assert isinstance(last(smith), RunDone)


def test_one_run_at_a_time(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    run = smith.draft(PROMPT, 2, max_tokens=50)
    next(run)
    with pytest.raises(RuntimeError, match="busy"):
        next(smith.draft(PROMPT, 2))
    assert isinstance([*run][-1], RunDone)


def test_a_crash_while_loading_is_retried_with_plain_weights(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    loading = smith.load()
    assert isinstance(next(loading), Loading)
    assert smith.pid is not None
    os.kill(smith.pid, signal.SIGSEGV)
    *_, event = loading
    assert isinstance(event, ModelLoaded)
    assert "crashed (SIGSEGV)" in next(
        choice.reason for choice in event.choices if choice.name == "weights"
    )


def test_a_crash_in_a_run_is_told_with_the_log(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    list(smith.load())
    run = smith.draft(PROMPT, 2, max_tokens=300)
    next(run)
    assert smith.pid is not None
    os.kill(smith.pid, signal.SIGABRT)
    *_, event = run
    assert isinstance(event, Failed) and event.code == "native" and "SIGABRT" in event.reason
    assert event.log == str(smith.log) and event.exit_code == 70
    assert smith.log.exists()


def test_a_signal_without_a_name_is_told_by_its_number(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    list(smith.load())
    run = smith.draft(PROMPT, 2, max_tokens=300)
    next(run)
    assert smith.pid is not None
    os.kill(smith.pid, signal.SIGRTMIN + 3)
    *_, event = run
    assert (
        isinstance(event, Failed)
        and event.code == "killed"
        and f"signal {signal.SIGRTMIN + 3}" in event.reason
    )


def test_a_context_without_memory_fails_and_the_next_run_works(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    list(smith.load())
    pid = smith.pid
    assert pid is not None
    assert isinstance(last(smith), RunDone)
    status = Path(f"/proc/{pid}/status").read_text()
    size = next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmSize:")
    )
    usual = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (size + (1 << 20), usual[1]))
    *_, event = smith.draft("x = 1", 8, max_tokens=2000)
    assert isinstance(event, Failed) and event.code in ("memory", "native"), event
    if smith.pid == pid:
        resource.prlimit(pid, resource.RLIMIT_AS, usual)
    assert isinstance(last(smith), RunDone)


@pytest.mark.parametrize(
    "words",
    ['{"event": "ModelLoaded"}', r"\377\376 no text", "[" * 99_999],
    ids=["other", "bytes", "deep"],
)
def test_something_else_than_events_on_the_pipe_is_an_error(
    make_smith: MakeSmith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    liar = tmp_path / "python"
    liar.write_text(f"#!/bin/sh\nprintf '{words}\\n'\nread line\n")
    liar.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(liar))
    *_, event = make_smith("llama").load()
    assert isinstance(event, Failed) and event.code == "protocol"


def test_closing_is_final_for_the_child_and_may_be_repeated(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    list(smith.load())
    pid = smith.pid
    assert pid is not None
    smith.close()
    smith.close()
    assert wait_for_end(pid) and smith.pid is None
    smith.cancel()
    assert isinstance(last(smith), RunDone)


def test_closing_from_another_thread_ends_the_run(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    run = smith.draft(PROMPT, 4, max_tokens=400)
    assert any(isinstance(event, Token) for event in run)
    closer = threading.Thread(target=smith.close)
    closer.start()
    events = list(run)
    closer.join()
    assert isinstance(events[-1], (Failed, RunDone))


ORPHAN = """
import sys
from pathlib import Path
from kmint_tui.smith import Options, Smith
smith = Smith(Path(sys.argv[1]), Options(log=Path(sys.argv[2])))
for event in smith.load(): pass
print(smith.pid, flush=True)
for event in smith.draft("x = 1", 4, max_tokens=1500): pass
"""


def test_the_child_dies_with_its_parent(model_files: dict[str, Path], tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(model_files["llama"]), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_for_end(pid)


def test_importing_the_smith_loads_nothing_heavy() -> None:
    root = Path(__file__).resolve().parents[2]
    code = "import sys, kmint_tui.smith; print(sorted({'llama_cpp','torch','triton','textual','numpy','jinja2'} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_drafts_reach_the_reader_before_the_run_is_over(make_smith: MakeSmith) -> None:
    kinds = [
        type(event)
        for event in make_smith("ending").draft(PROMPT, 6, max_tokens=300)
        if not isinstance(event, Token)
    ]
    assert kinds.count(DraftDone) == 6 and kinds[-1] is RunDone


def activity(smith: Smith) -> str:
    """The smith's activity, read again."""
    return smith.activity


def test_a_paused_run_stands_still_and_goes_on(make_smith: MakeSmith) -> None:
    smith = make_smith("llama")
    undisturbed = done(list(smith.draft(PROMPT, 4, max_tokens=60, seed=3)))
    run, events = smith.draft(PROMPT, 4, max_tokens=60, seed=3), []
    for event in run:
        events.append(event)
        if isinstance(event, Token) and activity(smith) == "drafting":
            smith.pause()
            assert activity(smith) == "paused"
            stat = Path(f"/proc/{smith.pid}/stat").read_text()
            assert stat.rpartition(") ")[2].startswith("T")
            smith.resume()
    assert activity(smith) == "idle"
    assert {index: draft.ids for index, draft in done(events).items()} == {
        index: draft.ids for index, draft in undisturbed.items()
    }


@pytest.mark.parametrize("ending", ["cancel", "close", "kill"])
def test_a_paused_run_can_still_be_ended(make_smith: MakeSmith, ending: str) -> None:
    smith = make_smith("llama")
    events: list[Event] = []
    pid = 0
    for event in smith.draft(PROMPT, 2, max_tokens=900):
        events.append(event)
        if isinstance(event, Token) and not pid:
            pid = smith.pid or 0
            smith.pause()
            if ending == "kill":
                os.kill(pid, signal.SIGKILL)
            else:
                {"cancel": smith.cancel, "close": smith.close}[ending]()
    assert isinstance(events[-1], RunDone if ending == "cancel" else Failed)
    assert ending == "cancel" or wait_for_end(pid)
    assert smith.activity == "idle"
