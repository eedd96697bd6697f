"""The figures of lanes add up, and lines of several threads stay whole."""

from __future__ import annotations

import threading

from kmint_tui.smith import Choice, RunDone
from kmint_tui.smith.native import Log
from kmint_tui.smith.split_drafts import merged


def test_the_figures_of_lanes_become_those_of_the_run() -> None:
    one = RunDone(
        drafts=8,
        tokens=100,
        seconds=2.0,
        prompt_tokens=50,
        reused_tokens=50,
        prefill_seconds=0.1,
        first_token_seconds=0.3,
        steps=10,
        step_seconds=0.25,
        sampling_share=0.125,
        cells=512,
        threads=1,
        cancelled=False,
        choices=(Choice("threads", "1", "a"),),
        host_seconds=0.25,
    )
    other = RunDone(
        drafts=7,
        tokens=90,
        seconds=3.0,
        prompt_tokens=50,
        reused_tokens=0,
        prefill_seconds=0.2,
        first_token_seconds=0.25,
        steps=12,
        step_seconds=0.75,
        sampling_share=0.375,
        cells=256,
        threads=1,
        cancelled=True,
        choices=(),
        host_seconds=0.75,
    )
    none = RunDone(
        drafts=7,
        tokens=0,
        seconds=1.0,
        prompt_tokens=50,
        reused_tokens=50,
        prefill_seconds=0.1,
        first_token_seconds=0.0,
        steps=0,
        step_seconds=0.0,
        sampling_share=0.0,
        cells=256,
        threads=1,
        cancelled=True,
    )
    assert merged([one], []) == one
    whole = merged([one, other, none], [Choice("lanes", "3", "b")])
    choices = (Choice("threads", "1", "a"), Choice("lanes", "3", "b"))
    assert whole == RunDone(
        drafts=22,
        tokens=190,
        seconds=3.0,
        prompt_tokens=50,
        reused_tokens=0,
        prefill_seconds=0.2,
        first_token_seconds=0.25,
        steps=12,
        step_seconds=0.5,
        sampling_share=0.25,
        cells=1024,
        threads=1,
        cancelled=True,
        choices=choices,
        host_seconds=0.5,
    )


def test_lines_of_several_threads_are_not_mixed() -> None:
    class Library:
        llama_log_callback = staticmethod(lambda function: function)
        llama_log_set = staticmethod(lambda callback, data: None)

    lines: list[tuple[int, str]] = []
    log = Log(Library(), lambda level, line: lines.append((level, line)))
    log._receive(3, b"one ", None)

    def elsewhere() -> None:
        log._receive(2, b"other ", None)
        log._receive(5, b"line\n", None)

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    log._receive(5, b"line\n", None)
    assert lines == [(2, "other line"), (3, "one line")]
