"""Long steps say what they are; short ones say nothing."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from kmint_tui.cli.main import main
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.streams import Diagnostics
from referee.judge import Referee

LONG = 3600.0
NOTES_SECONDS = 60.0


class Heard(Diagnostics):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: queue.SimpleQueue[str] = queue.SimpleQueue()

    def note(self, text: str) -> None:
        self.notes.put(text)


def test_a_long_step_is_named_again_and_again() -> None:
    heard = Heard()
    with SlowStepNotice(heard, first=0.0, again=0.001) as notice:
        notice.doing("counting sheep")
        assert [heard.notes.get(timeout=NOTES_SECONDS) for _ in range(3)] == [
            "still counting sheep (0 s)"
        ] * 3


def test_the_next_step_is_named_in_its_turn() -> None:
    heard = Heard()
    with SlowStepNotice(heard, first=0.0, again=LONG) as notice:
        for step in ("counting sheep", "shearing them"):
            notice.doing(step)
            assert heard.notes.get(timeout=NOTES_SECONDS) == f"still {step} (0 s)"
    assert heard.notes.empty()


def test_the_same_step_told_twice_goes_on() -> None:
    heard = Heard()
    with SlowStepNotice(heard, first=0.0, again=LONG) as notice:
        notice.doing("counting sheep")
        heard.notes.get(timeout=NOTES_SECONDS)
        since = notice._since
        notice.doing("counting sheep")
        assert notice._since == since
        notice.doing("shearing them")
        assert notice._since > since


def test_short_steps_say_nothing_and_the_end_waits_for_nothing() -> None:
    heard = Heard()
    with SlowStepNotice(heard, first=LONG) as notice:
        notice.doing("counting sheep")
    with SlowStepNotice(heard, first=0.0):
        pass
    assert heard.notes.empty()
    assert not [thread for thread in threading.enumerate() if thread.name == "notice"]


def test_a_judgement_tells_its_stages(tmp_path: Path) -> None:
    steps: list[str] = []
    with Referee(cache=tmp_path) as referee:
        referee.judge("import os\n", "softmax", level="screen", tell=steps.append)
    assert steps == ["reading the kernel"]


def test_judge_says_that_it_runs_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(SlowStepNotice, "doing", lambda self, step: steps.append(step))
    reference = tmp_path / "mine.py"
    reference.write_text(
        "import torch\n\n\ndef twice(x):\n    return x + x\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n"
    )
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def run(x):\n    return x\n")
    assert main(["judge", str(kernel), "--reference", f"{reference}:twice"]) == 1
    assert steps == [
        f"running {reference}:twice at the shapes it is judged at",
        "reading the kernel",
    ]
