"""Several contexts on the CPU, where loading never chooses them: drafts, stops, errors, memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from kmint_tui.smith import Choice, Event, Note, RunDone, Sampling, loading
from kmint_tui.smith.context_pool import ContextPool
from kmint_tui.smith.decoder import PIECE_CPU, Decoder
from kmint_tui.smith.native import Context, Model, NativeError
from kmint_tui.smith.order import Order
from kmint_tui.smith.run import DraftJob
from kmint_tui.smith.sampler import Picker
from kmint_tui.smith.sampling import draft_seed
from kmint_tui.smith.split_drafts import contexts_for
from kmint_tui.smith.threads import ThreadWatch
from tests.smith.conftest import done, memory_for

NEVER: Callable[[], bool] = lambda: False  # noqa: E731
MakeDecoders = Callable[..., list[Decoder]]


@pytest.fixture
def make_decoders(model: Model) -> Iterator[MakeDecoders]:
    made: list[Decoder] = []

    def make(count: int, max_cells: int | None = None) -> list[Decoder]:
        fresh = [
            Decoder(
                model,
                Picker(),
                ThreadWatch((1,), 1, 1.0),
                on_gpu=False,
                on_device=False,
                max_cells=max_cells,
            )
            for _ in range(count)
        ]
        made.extend(fresh)
        return fresh

    yield make
    for decoder in made:
        decoder.close()


@pytest.fixture
def job(model: Model) -> DraftJob:
    prompt = tuple(model.tokenize("tl.load(x_ptr + cols) " * 30))
    return DraftJob(
        prompt=prompt, drafts=24, sampling=Sampling(ladder=0.3), seed=5, max_tokens=12, inside=False
    )


def ran(
    drafter: ContextPool | Decoder, job: DraftJob, cancelled: Callable[[], bool] = NEVER
) -> list[Event]:
    """All events of a run; the only RunDone is the last, and equals the returned one."""
    pieces: list[Sequence[Event]] = []
    figures = drafter.run(job, pieces.append, cancelled)
    events = [event for piece in pieces for event in piece]
    assert [event for event in events if isinstance(event, RunDone)] == [events[-1]] == [figures]
    return events


def ids(events: list[Event]) -> dict[int, tuple[int, ...]]:
    return {index: draft.ids for index, draft in done(events).items()}


def figures(events: list[Event]) -> RunDone:
    assert isinstance(events[-1], RunDone)
    return events[-1]


def used(decoders: list[Decoder]) -> int:
    """Number of decoders that hold a context."""
    return sum(decoder.context is not None for decoder in decoders)


@pytest.mark.parametrize(
    ("drafts", "lanes"), [(0, 1), (1, 1), (8, 1), (9, 2), (17, 3), (32, 4), (128, 4)]
)
def test_eight_rows_a_lane(drafts: int, lanes: int) -> None:
    assert contexts_for(drafts, 4) == lanes
    assert contexts_for(drafts, 1) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_every_draft_comes_once_with_its_seed_and_temperature(
    make_decoders: MakeDecoders, job: DraftJob, count: int
) -> None:
    decoders = make_decoders(count)
    events = ran(ContextPool(decoders), job)
    drafts = done(events)
    assert used(decoders) == count
    assert [drafts[index].seed for index in range(24)] == [
        draft_seed(5, index) for index in range(24)
    ]
    assert tuple(drafts[index].temperature for index in range(24)) == job.sampling.temperatures(24)
    assert len({draft.ids for draft in drafts.values()}) > 12
    end = figures(events)
    assert (end.drafts, end.tokens, end.cancelled) == (
        24,
        sum(draft.tokens for draft in drafts.values()),
        False,
    )
    assert end.cells == sum(decoder.context.cells for decoder in decoders if decoder.context)
    assert (
        end.prompt_tokens == len(job.prompt)
        and end.first_token_seconds <= end.seconds
        and not end.choices
    )


def test_one_lane_is_the_decoder_itself(make_decoders: MakeDecoders, job: DraftJob) -> None:
    plain = ran(make_decoders(1)[0], job)
    assert ids(ran(ContextPool(make_decoders(1)), job)) == ids(plain)
    eight = replace(job, drafts=8)
    decoders = make_decoders(3)
    assert ids(ran(ContextPool(decoders), eight)) == ids(ran(make_decoders(1)[0], eight))
    assert used(decoders) == 1


def test_the_same_seed_in_three_lanes_gives_the_same_tokens(
    make_decoders: MakeDecoders, job: DraftJob
) -> None:
    lanes = ContextPool(make_decoders(3))
    first = ids(ran(lanes, job))
    assert ids(ran(lanes, job)) == first
    assert ids(ran(ContextPool(make_decoders(3)), job)) == first
    assert ids(ran(lanes, replace(job, seed=6))) != first


def test_each_draft_goes_on_from_its_own_prompt(make_decoders: MakeDecoders, job: DraftJob) -> None:
    tails = tuple((4 + index, *range(40, 40 + index)) for index in range(24))
    own = replace(job, tails=tails, sampling=Sampling(temperature=0))
    together, alone = (
        ids(ran(ContextPool(make_decoders(3)), own)),
        ids(ran(make_decoders(1)[0], own)),
    )
    # Rounding depends on the number of rows in a step, so that answers may differ late.
    assert {index: draft[:3] for index, draft in together.items()} == {
        index: draft[:3] for index, draft in alone.items()
    }


def test_a_cancel_ends_all_lanes(
    make_decoders: MakeDecoders, job: DraftJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = ContextPool(make_decoders(3))
    decode = Context.decode
    decoded: list[int] = []

    def decoding(context: Context) -> int:
        decoded.append(1)
        if len(decoded) == 40:
            lanes.abort()
        return decode(context)

    monkeypatch.setattr(Context, "decode", decoding)
    pieces: list[Sequence[Event]] = []
    end = lanes.run(replace(job, max_tokens=1200), pieces.append, lambda: len(decoded) >= 40)
    drafts = done([event for piece in pieces for event in piece])
    assert len(drafts) == 24 and {draft.finish for draft in drafts.values()} == {"cancelled"}
    assert end.cancelled and len(decoded) <= 42
    # Each piece wakes the waiting application: the end comes with the last drafts.
    assert pieces[-1][-1] is end and len(pieces[-1]) > 1
    assert sum(isinstance(event, RunDone) for piece in pieces for event in piece) == 1
    assert len(ids(ran(lanes, job))) == 24


def test_no_lane_begins_while_another_reads_the_prompt(
    make_decoders: MakeDecoders, job: DraftJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoders = make_decoders(3)
    decode, others_have_read = Context.decode, threading.Semaphore(0)
    sizes: list[int] = []

    def decoding(context: Context) -> int:
        size = int(context.batch.struct.n_tokens)
        if size == PIECE_CPU and context is decoders[2].context:
            for _ in range(2):
                others_have_read.acquire()
        code = decode(context)
        sizes.append(size)
        if size == PIECE_CPU and context is not decoders[2].context:
            others_have_read.release()
        return code

    monkeypatch.setattr(Context, "decode", decoding)
    ran(ContextPool(decoders), replace(job, prompt=job.prompt[:1] * (3 * PIECE_CPU)))
    assert sizes[:9] == [PIECE_CPU] * 9
    assert max(sizes[9:]) == 8


@pytest.mark.parametrize("lane", [0, 2])
@pytest.mark.parametrize(
    "error", [NativeError("native", "broken"), ValueError("odd")], ids=["native", "other"]
)
def test_an_error_in_one_lane_stops_the_others_and_is_raised(
    make_decoders: MakeDecoders,
    job: DraftJob,
    monkeypatch: pytest.MonkeyPatch,
    lane: int,
    error: Exception,
) -> None:
    decoders = make_decoders(3)
    lanes = ContextPool(decoders)
    decode, all_there = Context.decode, threading.Barrier(3, timeout=300)
    steps: Counter[Context] = Counter()

    def decoding(context: Context) -> int:
        steps[context] += 1
        if steps[context] <= 20:
            all_there.wait()
        elif context is decoders[lane].context:
            raise error
        return decode(context)

    events: list[Event] = []
    monkeypatch.setattr(Context, "decode", decoding)
    with pytest.raises(type(error)) as caught:
        lanes.run(replace(job, max_tokens=1200), events.extend, NEVER)
    assert caught.value is error
    assert max(steps.values()) < 100
    # No user cancelled the other contexts' drafts.
    assert not any(isinstance(event, RunDone) for event in events) and {
        draft.finish for draft in done(events).values()
    } <= {"stop"}
    assert not any(thread.name.startswith("lane") for thread in threading.enumerate())
    monkeypatch.undo()
    assert len(ids(ran(lanes, job))) == 24


@pytest.mark.parametrize(
    "errors",
    permutations(
        [NativeError("request", "full"), ValueError("odd"), NativeError("native", "broken")]
    ),
)
def test_the_gravest_of_several_errors_is_raised(
    make_decoders: MakeDecoders,
    job: DraftJob,
    monkeypatch: pytest.MonkeyPatch,
    errors: tuple[Exception, ...],
) -> None:
    decoders = make_decoders(3)
    all_there = threading.Barrier(3, timeout=300)

    def decoding(context: Context) -> int:
        all_there.wait()
        raise next(
            error
            for decoder, error in zip(decoders, errors, strict=True)
            if decoder.context is context
        )

    monkeypatch.setattr(Context, "decode", decoding)
    with pytest.raises(NativeError, match="broken"):
        ContextPool(decoders).run(job, lambda events: None, NEVER)


@pytest.mark.parametrize("room", [2, 1])
def test_without_memory_for_another_context_lanes_are_fewer(
    make_decoders: MakeDecoders, job: DraftJob, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    memory_for(room, monkeypatch)
    decoders = make_decoders(3)
    lanes = ContextPool(decoders)
    events = ran(lanes, job)
    assert len(ids(events)) == 24 and used(decoders) == room
    assert [event.text for event in events if isinstance(event, Note)] == [
        f"drafts use {room} instead of 3 llama.cpp contexts from now on: no memory"
    ]
    assert figures(events).choices == (Choice("lanes", str(room), "no memory"),)
    again = ran(lanes, job)
    assert ids(again) == ids(events) and figures(again).choices == figures(events).choices
    assert not any(isinstance(event, Note) for event in again)


def test_a_run_in_one_lane_takes_the_memory_of_the_others(
    make_decoders: MakeDecoders, job: DraftJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoders = make_decoders(3)
    lanes = ContextPool(decoders)
    ran(lanes, job)
    memory_for(1, monkeypatch, decoders)
    events = ran(lanes, replace(job, drafts=8, max_tokens=400))
    # This run can have one context at most, so nothing is missing.
    assert len(ids(events)) == 8 and used(decoders) == 1 and not figures(events).choices
    lanes.close()
    monkeypatch.undo()
    memory_for(0, monkeypatch)
    with pytest.raises(NativeError, match="no memory"):
        lanes.run(job, lambda events: None, NEVER)


def test_room_is_kept_for_the_referee_but_not_asked_for_again(
    make_decoders: MakeDecoders, job: DraftJob
) -> None:
    free = [1 << 40]
    roomy = make_decoders(3)
    lanes = ContextPool(roomy, free=lambda: free[-1])
    ran(lanes, job)
    free.append(1 << 30)
    # The contexts exist: memory that is missing now may be the referee's.
    assert not figures(ran(lanes, job)).choices and used(roomy) == 3
    crowded = make_decoders(3)
    events = ran(ContextPool(crowded, free=lambda: free[-1]), job)
    assert used(crowded) == 1 and ids(events) == ids(ran(make_decoders(1)[0], job))
    assert figures(events).choices == (
        Choice("lanes", "1", "1.0 GiB of GPU memory are free, and 16 are kept for the referee"),
    )


def test_the_caches_of_all_lanes_keep_within_the_bound(
    make_decoders: MakeDecoders, job: DraftJob
) -> None:
    [probe] = make_decoders(1)
    need = {
        count: sum(probe.cells(replace(job, lane=lane, lanes=count)) for lane in range(count))
        for count in (1, 2, 3)
    }
    assert need[1] < need[2] < need[3]
    decoders = make_decoders(3, max_cells=need[3] - 1)
    lanes = ContextPool(decoders, max_cells=need[3] - 1)

    def held() -> int:
        return sum(decoder.context.cells for decoder in decoders if decoder.context)

    events = ran(lanes, job)
    assert used(decoders) == 2 and held() == need[2] == figures(events).cells
    assert figures(events).choices == (
        Choice(
            "lanes",
            "2",
            f"3 contexts need a cache of {need[3]} tokens, and {need[3] - 1} are allowed",
        ),
    )
    # A long draft needs all the allowed cache in the first context, so the others close. They need
    # room afterwards, so the first closes.
    ran(lanes, replace(job, drafts=2, max_tokens=1000))
    assert used(decoders) == 1 and held() <= need[3] - 1
    assert ids(ran(lanes, job)) == ids(events)
    assert held() == need[2]


def test_each_lane_keeps_its_prompt(make_decoders: MakeDecoders, job: DraftJob) -> None:
    lanes = ContextPool(make_decoders(3))
    assert figures(ran(lanes, job)).reused_tokens == 0
    for drafts in (8, 24):
        assert figures(ran(lanes, replace(job, drafts=drafts))).reused_tokens == len(job.prompt)


def test_as_many_lanes_as_chosen_are_driven(
    model_files: dict[str, Path], job: DraftJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_single", lambda model, offloaded, way: "")
    ready = loading.load(
        Order(model_files["llama"], gpu_layers=0, threads=1, lanes=3),
        lambda event: None,
        lambda line: None,
    )
    decode = Context.decode
    contexts: set[Context] = set()

    def decoding(context: Context) -> int:
        contexts.add(context)
        return decode(context)

    monkeypatch.setattr(Context, "decode", decoding)
    assert len(ids(ran(ready.decoder, job))) == 24 and len(contexts) == 3
    ready.decoder.close()
    ready.model.close()
