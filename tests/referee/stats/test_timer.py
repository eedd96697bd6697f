"""The timing protocol as a whole on the CPU: devices, memory and calls are stand-ins, and every
call takes the time it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from referee.timing import floor, stats, timer
from referee.timing.measurement import (
    AUTOTUNE,
    CANDIDATE,
    COMPILE,
    EAGER,
    FLOOR,
    TimingOptions,
    timing_from_json,
)
from referee.timing.pace import FEW, FEWER
from referee.timing.rounds import Block, Entry
from referee.timing.stats import Floats
from referee.timing.timer import WARM_UP
from tests.referee.stats.timer_world import Made, World

LEAST = TimingOptions().least_rounds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One in which the candidate is 1.2 times as fast as the best baseline."""
    made = World({CANDIDATE: 40.0, EAGER: 400.0, COMPILE: 49.0, AUTOTUNE: 48.0, FLOOR: 39.0})

    class Stage:
        def __init__(self, host: object, contest: object, rounds: int) -> None:
            self.rounds = min(rounds, made.room)

        def refill(self, number: int, rounds: int, shares: Mapping[str, int]) -> None:
            assert made.whose == "referee", "a candidate would be blamed for the referee's own work"
            made.filled.append((rounds, dict(shares)))

        def entry(self, name: str) -> Entry:
            return Entry(name, lambda index: made.spend(name), lambda index: None)

        def ahead(self) -> None: ...

        def rival(self, name: str, callee: Callable[..., Any], share: int) -> Entry:
            return Entry(name, lambda index: callee(), lambda index: None, rounds=share)

        def in_place(self, name: str, rounds: int) -> Entry:
            return self.entry(name)

        def check_one(self) -> None:
            assert made.whose == "referee"
            made.looks += 1

        def check(self) -> None:
            made.checks += 1
            made.clock += made.check_seconds

    class Floor:
        def __init__(self, *_: object) -> None: ...

        def call(self, _: int) -> None: ...

        def problem(self, device: dict[str, Any], ratios: dict[str, Any]) -> None:
            assert not ratios or ratios[FLOOR].blocks >= 2

    def host_times(entry: Entry, repeats: int) -> Floats:
        for index in range(repeats):
            entry.call(index)
        assert made.clock <= made.until, "the worker would have been ended"
        return np.ones(repeats)

    def graph_times(
        entries: list[Entry], *_: object
    ) -> tuple[dict[str, stats.Summary], dict[str, str]]:
        assert made.whose == "candidate"
        missing = dict.fromkeys(made.uncaptured, "could not be captured")
        captured = [entry.name for entry in entries if entry.name not in missing]
        return {
            name: made_up for name in captured if (made_up := stats.summarise(np.full(3, 7.0)))
        }, missing

    monkeypatch.setattr(
        timer, "time", Made(monotonic=lambda: made.clock, perf_counter=lambda: made.clock)
    )
    monkeypatch.setattr(timer, "Stage", Stage)
    monkeypatch.setattr(timer, "run_block", made.run_block)
    monkeypatch.setattr(timer, "empty_window", lambda flush: 1.0)
    monkeypatch.setattr(timer, "host_times", host_times)
    monkeypatch.setattr(timer, "graph_times", graph_times)
    monkeypatch.setattr(floor, "bytes_moved", lambda cell: (1, 1))
    monkeypatch.setattr(floor, "rated_bandwidth", lambda driver: None)
    monkeypatch.setattr(floor, "Floor", Floor)
    return made


def test_a_plain_win_rests_on_the_least_rounds_and_no_more(world: World) -> None:
    found = world.measure()
    assert (found.decision, found.bar, found.rounds, found.blocks) == (
        "win",
        AUTOTUNE,
        LEAST,
        LEAST // 40,
    )
    assert found.ratio is not None
    assert (found.ratio.rounds, found.ratio.blocks) == (LEAST, LEAST // 40)
    assert found.ratio.ratio == pytest.approx(1.2, rel=0.002)
    assert world.checks == found.blocks == len(world.blocks) - 1


def test_a_report_that_crossed_a_pipe_names_baseline_kernels(world: World) -> None:
    found = world.measure()
    sent = json.loads(json.dumps(found.to_json()))
    assert sent["kernels"] == {EAGER: ["rms_norm_kernel"]} and timing_from_json(sent) == found
    del sent["kernels"]
    assert timing_from_json(sent).kernels == {}


def test_a_mostly_fast_baseline_does_not_replace_a_steady_one(world: World) -> None:
    """A baseline that is fast in most rounds and slow in the rest is not beaten in place of a
    steady one.
    """
    world.times = {CANDIDATE: 48.1, COMPILE: 48.0, AUTOTUNE: 47.5, FLOOR: 39.0}
    world.slow_mode = {AUTOTUNE: (0.4, 1.08)}
    found = world.measure()
    assert found.device[AUTOTUNE].median < found.device[COMPILE].median
    assert found.ratios[AUTOTUNE].low > 1.01 > found.ratios[COMPILE].high
    assert (found.decision, found.bar) == ("tie", COMPILE)


@pytest.mark.parametrize(
    ("noise", "least", "most"), [(0.01, LEAST, LEAST), (0.024, LEAST + 40, 440), (0.06, 480, 480)]
)
def test_a_win_is_measured_until_its_ratio_is_known_well(
    world: World, noise: float, least: int, most: int
) -> None:
    world.noise = noise
    found = world.measure()
    assert found.ratio is not None
    assert found.decision == "win" and least <= found.rounds <= most
    assert (found.ratio.high / found.ratio.low <= 1.01) is (found.rounds < 480)


def test_short_kernels_are_captured_without_the_referees_work(world: World) -> None:
    world.times = {CANDIDATE: 4.0, EAGER: 40.0, COMPILE: 4.9, AUTOTUNE: 4.8, FLOOR: 3.9}
    found = world.measure()
    assert found.decision == "win"
    assert found.graph.keys() == found.call.keys() == {CANDIDATE, EAGER, COMPILE, AUTOTUNE}
    assert world.looks == 2
    world.uncaptured, world.looks = (CANDIDATE,), 0
    assert CANDIDATE not in world.measure().graph
    assert world.looks == 1, "a call that never ran would be found wrong"


def test_the_rounds_needed_grow_near_the_border(world: World) -> None:
    """A tie rests on the least rounds a ratio on the border on four fifths of the most and one
    near it on more.
    """
    world.noise = 0.01
    for times, decision, least, most in (
        (40.0, "tie", LEAST, LEAST),
        (40.4, "unsure", 400, 400),
        (40.46, "unsure", 440, 480),
    ):
        world.times[AUTOTUNE] = times
        found = world.measure()
        assert found.decision == decision and least <= found.rounds <= most, times


@pytest.mark.parametrize("room", [3, 7, 20, 1000])
def test_with_little_memory_blocks_are_smaller_not_fewer(world: World, room: int) -> None:
    world.room = room
    found = world.measure()
    rounds = min(room, 40)
    assert (found.decision, found.blocks) == ("win", -(-LEAST // rounds))
    assert found.settings["rounds"] == rounds


def test_what_cannot_decide_takes_part_in_few_rounds(world: World) -> None:
    world.measure()
    assert world.blocks[0] == (
        WARM_UP,
        {**dict.fromkeys((CANDIDATE, COMPILE, AUTOTUNE), WARM_UP), EAGER: FEWER, FLOOR: FEW},
    )
    near = {CANDIDATE: 40, COMPILE: 40, AUTOTUNE: 40}
    full = {**near, EAGER: FEWER, FLOOR: FEW}
    assert [shares for _, shares in world.blocks[1:]] == [full, full, full, near, near, near]


def test_every_baseline_is_given_as_many_values_as_it_has_calls(world: World) -> None:
    world.measure()
    for (rounds, given), (filled, shares) in zip(world.blocks, world.filled[1:], strict=False):
        assert (filled, shares) == (
            rounds,
            {name: share for name, share in given.items() if name not in (CANDIDATE, FLOOR)},
        )
    assert world.filled[-1] == (15, {EAGER: 15, COMPILE: 15, AUTOTUNE: 15})


def test_a_baseline_slow_in_the_warm_up_can_still_be_the_bar(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = world.run_block

    def cold(*given: Any, **more: Any) -> Block:
        world.times[AUTOTUNE] = 48.0 if world.blocks else 90.0
        return usual(*given, **more)

    monkeypatch.setattr(timer, "run_block", cold)
    found = world.measure()
    assert (found.decision, found.bar) == ("win", AUTOTUNE)
    assert found.ratio is not None
    assert found.ratio.rounds == FEW + LEAST
    assert found.rounds == LEAST + 40


def test_a_few_lost_times_cost_no_further_block(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, lost = world.run_block, 3

    def losing(*given: Any, **more: Any) -> Block:
        found = usual(*given, **more)
        found.times[CANDIDATE][-lost:] = np.nan
        return found

    monkeypatch.setattr(timer, "run_block", losing)
    found = world.measure()
    assert found.ratio is not None
    assert (found.rounds, found.ratio.rounds) == (LEAST, LEAST - LEAST // 40 * lost)
    lost = 10
    assert world.measure().rounds == LEAST + 80


@pytest.mark.parametrize(("mine", "theirs", "decision", "whose"), [
    (50_000.0, 40_000.0, "loss", "a call takes 50 ms"), (40_000.0, 50_000.0, "win", f"a call of {AUTOTUNE} takes 50 ms"),
    (40.0, 50_000.0, "win", f"a call of {AUTOTUNE} takes 50 ms"),
])  # fmt: skip
def test_slow_calls_are_timed_in_few_rounds(
    world: World, mine: float, theirs: float, decision: str, whose: str
) -> None:
    world.times |= {CANDIDATE: mine, EAGER: 60_000.0, COMPILE: 60_000.0, AUTOTUNE: theirs}
    found = world.measure()
    assert (found.decision, found.rounds, found.blocks, found.reason) == (decision, 12, 4, "")
    assert f"{whose}, so only 12 rounds were timed" in found.notes


@pytest.mark.parametrize("whose", [CANDIDATE, AUTOTUNE])
def test_a_slow_first_call_for_another_reason_costs_no_rounds(world: World, whose: str) -> None:
    """Nothing may be a win on few rounds because something was loaded, or because a kernel takes
    its time at first.
    """
    world.loading = {whose: 3e6, EAGER: 1e6, COMPILE: 1e6}
    found = world.measure()
    assert (found.decision, found.rounds, found.blocks) == ("win", LEAST, LEAST // 40)
    assert not any("rounds were timed" in note for note in found.notes)
    assert world.blocks[0][0] == 3 and {rounds for rounds, _ in world.blocks[1:]} == {40}


def test_a_slow_baseline_that_cannot_decide_costs_no_round(world: World) -> None:
    """A slow baseline that cannot decide costs the others no round and the candidate no time."""
    world.times[EAGER] = 15e6
    found = world.measure()
    assert (found.decision, found.rounds, found.ratios[EAGER].blocks) == ("win", LEAST, 3)
    assert [shares.get(EAGER, 0) for _, shares in world.blocks] == [3, 3, 3, 3, 0, 0, 0]
    assert world.clock < 15 * (1 + 4 * 3 + 6 + 1), (
        "one call at first, the rounds, six for its call time"
    )


def test_slow_calls_do_not_shorten_the_measurement(world: World) -> None:
    world.times |= {CANDIDATE: 15_000.0, EAGER: 19_000.0, COMPILE: 18_000.0, AUTOTUNE: 18_000.0}
    found = world.measure()
    assert (found.decision, found.rounds) == ("win", LEAST)
    assert world.clock > 8.0


def test_slow_checks_do_not_shorten_the_measurement(world: World) -> None:
    world.check_seconds = 5.0
    found = world.measure()
    assert (found.decision, found.rounds) == ("win", LEAST)
    world.times[AUTOTUNE] = 40.0
    assert LEAST <= world.measure().rounds < 480, (
        "what may follow the least rounds has to fit into the time that is allowed"
    )


def test_what_too_few_rounds_say_is_no_win(world: World) -> None:
    world.block_seconds = 3.0
    found = world.measure()
    assert (found.decision, found.rounds, found.bar) == ("unsure", 80, AUTOTUNE)
    assert (
        found.reason
        == f"faster, but measuring ended after 80 usable rounds of the {LEAST} that are wanted"
    )
    assert found.ratio is not None and found.ratio.low > 1.1
    world.times[CANDIDATE] = 60.0
    found = world.measure()
    assert (found.decision, found.reason) == (
        "loss",
        f"measuring ended after 80 usable rounds of the {LEAST} that are wanted",
    )


def test_samples_that_were_lost_are_replaced_and_counted(world: World) -> None:
    world.starved = lambda block: 30 if block in (2, 3) else 0
    found = world.measure()
    assert found.ratio is not None
    assert (found.rounds, found.ratio.rounds) == (LEAST + 40, LEAST - 20)
    assert found.dropped == {"the queue ran dry": 60}


def test_where_every_sample_is_lost_nothing_is_decided(world: World) -> None:
    world.starved = lambda block: 40
    found = world.measure()
    assert (found.decision, found.reason) == ("unsure", "no block of rounds was usable")
    assert "too many rounds were dropped; measuring stopped early" in found.notes


def test_a_baseline_without_a_sample_may_have_been_the_fastest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = world.run_block

    def losing(*given: Any, **more: Any) -> Block:
        found = usual(*given, **more)
        if AUTOTUNE in found.times:
            found.times[AUTOTUNE][:] = np.nan
        return found

    monkeypatch.setattr(timer, "run_block", losing)
    found = world.measure()
    assert (found.decision, found.bar) == ("unsure", COMPILE)
    assert found.reason.endswith(
        f"not every baseline could be timed ({AUTOTUNE}: it gave no usable sample)"
    )
    assert f"{AUTOTUNE} gave no usable sample" in found.notes
    world.times[CANDIDATE] = 60.0
    assert world.measure().decision == "loss"


def test_time_ends_measuring(world: World) -> None:
    assert world.measure(seconds=-1.0).decision == "unsure"
    assert not world.blocks
