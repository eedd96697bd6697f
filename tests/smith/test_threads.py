"""Choosing a thread count: simulated step times in, changes out."""

from __future__ import annotations

from collections.abc import Callable

from kmint_tui.smith.threads import REFERENCE_WIDTH, ThreadWatch, counts


def drive(
    watch: ThreadWatch, cost: Callable[[int], float], steps: int, width: int = REFERENCE_WIDTH
) -> list[str]:
    """Run steps whose time depends on the thread count; returns the reasons of all changes."""
    reasons = []
    for _ in range(steps):
        change = watch.observe(width, cost(watch.threads))
        if change is not None:
            assert change.threads == watch.threads
            if change.reason:
                reasons.append(change.reason)
    return reasons


def test_counts_are_powers_of_two_and_all_cores() -> None:
    assert counts(1) == (1,)
    assert counts(2) == (1, 2)
    assert counts(6) == (1, 2, 4, 6)
    assert counts(16) == (1, 2, 4, 8, 16)


def test_steady_steps_change_nothing() -> None:
    watch = ThreadWatch((1, 2, 4), 4, 0.01)
    assert drive(watch, lambda _threads: 0.01, 2000) == []
    assert watch.threads == 4


def test_steps_that_become_slow_find_a_better_count_and_say_why() -> None:
    watch = ThreadWatch((1, 2, 4), 4, 0.01)
    drive(watch, lambda _threads: 0.01, 20)
    reasons = drive(watch, lambda threads: {1: 0.02, 2: 0.03, 4: 0.4}[threads], 60)
    assert watch.threads == 1
    assert len(reasons) == 1 and "1: 20.0 ms, 2: 30.0 ms, 4:" in reasons[0]


def test_slowness_from_the_first_step_is_seen_by_the_reference() -> None:
    watch = ThreadWatch((1, 2), 2, 0.01)
    drive(watch, lambda threads: {1: 0.02, 2: 0.5}[threads], 40)
    assert watch.threads == 1


def test_slowness_that_no_count_helps_keeps_the_count() -> None:
    watch = ThreadWatch((1, 2), 2, 0.01)
    assert drive(watch, lambda _threads: 0.2, 60) == []
    assert watch.threads == 2


def test_the_preferred_count_is_tried_again_and_taken_back() -> None:
    watch = ThreadWatch((1, 2), 2, 0.01)
    drive(watch, lambda threads: {1: 0.02, 2: 0.5}[threads], 40)
    reasons = drive(watch, lambda threads: {1: 0.02, 2: 0.01}[threads], 600)
    assert watch.threads == 2 and len(reasons) == 1


def test_a_count_measured_on_a_busy_machine_is_reconsidered() -> None:
    watch = ThreadWatch((1, 2), 1, 0.02, preferred=2)
    drive(watch, lambda threads: {1: 0.02, 2: 0.01}[threads], 400)
    assert watch.threads == 2


def test_a_narrower_batch_is_not_mistaken_for_a_change() -> None:
    watch = ThreadWatch((1, 2), 2, 0.01)
    for width, seconds in ((8, 0.01), (32, 0.035), (2, 0.004), (8, 0.012)):
        assert drive(watch, lambda _threads, seconds=seconds: seconds, 30, width) == []  # type: ignore[misc]


def test_a_width_that_changes_during_a_trial_ends_it() -> None:
    watch = ThreadWatch((1, 2, 4), 4, 0.01)
    drive(watch, lambda threads: 0.5 if threads == 4 else 0.02, 9)
    assert watch.threads in (1, 2)
    drive(watch, lambda threads: 0.5 if threads == 4 else 0.02, 1, width=2)
    assert watch.threads in (1, 2)
    assert drive(watch, lambda _threads: 0.02, 30, width=2) == []


def test_a_single_choice_is_never_left() -> None:
    watch = ThreadWatch((3,), 3, 0.001)
    assert drive(watch, lambda _threads: 1.0, 100) == []
