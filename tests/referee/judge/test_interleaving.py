"""Programs in turns: what only another order of atomic operations shows, and what is in order in
each.
"""

from __future__ import annotations

from collections import Counter

import pytest

from referee.interpreter.interleaving import (
    MAX_CONCURRENT_PROGRAMS,
    InterleavingScheduler,
    group_by_first_atomic,
)
from referee.interpreter.interpret import Executed, Execution
from referee.plans.plan import Fill, LaunchPlan
from referee.sandbox.zygote import Zygote
from referee.verdict import Rejection
from tests.referee.judge.interpreting import rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch

PROGRAMS = 12
SUM = (
    HEADER
    + """
@triton.jit
def kernel(total, ticket):
    pid = tl.program_id(0)
    {body}
"""
)
ADD = "tl.store(total, tl.load(total) + 1.0)"


def summed(zygote: Zygote, body: str, *, turns: int | None = 1) -> list[float] | str:
    """What several programs add up from zero, one after the other and in turns; or why that is
    rejected.
    """
    total, ticket = dense(0, (1,), "float32"), dense(1, (PROGRAMS,), "int32")
    step = launch("kernel", (PROGRAMS, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(
        buffers_of(total, ticket, inputs=0), (), (Fill(total, 0.0), Fill(ticket, 0), step), (total,)
    )
    runs = [
        Execution(plan, ()),
        *([Execution(plan, (), interleaving_seed=turns)] if turns is not None else []),
    ]
    answers = run(zygote, SUM.format(body=body), *runs)
    if not isinstance(answers[-1], Executed):
        return rejection(answers).reason
    return [answer.outputs[0].item() for answer in answers if isinstance(answer, Executed)]


@pytest.mark.parametrize(
    "body",
    [
        f"while tl.atomic_cas(ticket, 0, 1) == 1:\n        pass\n    {ADD}\n    tl.atomic_xchg(ticket, 0)",
        f"while tl.atomic_add(ticket, 0) != pid:\n        pass\n    {ADD}\n    tl.atomic_add(ticket, 1)",
        f"while tl.atomic_cas(ticket, 0, 1) == 1:\n        while tl.load(ticket, volatile=True) == 1:\n            pass\n"
        f"    {ADD}\n    tl.atomic_xchg(ticket, 0)",
        "tl.atomic_add(total, 1.0)",
        "if tl.atomic_add(ticket, 1) == 11:\n        tl.store(total, 12.0)",
    ],
)
def test_locks_turns_and_last_ones_are_in_order(interpreter: Zygote, body: str) -> None:
    assert summed(interpreter, body) == [PROGRAMS, PROGRAMS]


@pytest.mark.parametrize(
    "body",
    [
        f"if tl.atomic_add(ticket, 1) >= 0:\n        {ADD}\n    tl.atomic_add(ticket, 1)",
        f"if tl.atomic_cas(ticket, 0, 1) <= 1:\n        {ADD}\n    tl.atomic_xchg(ticket, 0)",
        "tries = 0\n    while (tries < 100) & (tl.atomic_cas(ticket, 0, 1) == 1):\n        tries += 1\n"
        f"    {ADD}\n    tl.atomic_xchg(ticket, 0)",
        f"tl.atomic_add(ticket + pid % 2, 1)\n    if tl.atomic_add(ticket + 2, 1) >= 0:\n        {ADD}\n    tl.atomic_add(ticket + 2, 1)",
    ],
)
def test_an_order_that_needs_one_after_the_other_is_a_race(interpreter: Zygote, body: str) -> None:
    assert summed(interpreter, body, turns=None) == [PROGRAMS]
    # A judgement draws for each of its cells.
    said = (summed(interpreter, body, turns=seed) for seed in range(15))
    assert any(isinstance(one, str) and "use the same element of `total`" in one for one in said)


def test_another_program_s_ticket_puts_nothing_in_order(interpreter: Zygote) -> None:
    said = summed(
        interpreter,
        f"tl.atomic_add(ticket + pid, 1)\n    {ADD}\n    tl.atomic_add(ticket + pid, 1)",
        turns=None,
    )
    assert (
        isinstance(said, str)
        and "programs (0, 0, 0) and (1, 0, 0) use the same element of `total`" in said
    )


def test_an_order_by_distance_is_a_race(interpreter: Zygote) -> None:
    here, far = "tl.store(total + 1 + pid, 1.0)", "tl.store(total, tl.load(total + pid - 7))"
    body = f"tl.atomic_add(ticket, 1)\n    {here}\n    if (tl.atomic_add(ticket, 1) >= 0) & (pid == 11):\n        {far}"
    total, ticket = dense(0, (PROGRAMS + 1,), "float32"), dense(1, (1,), "int32")
    step = launch("kernel", (PROGRAMS, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(
        buffers_of(total, ticket, inputs=0), (), (Fill(total, 0.0), Fill(ticket, 0), step), (total,)
    )
    forward = run(interpreter, SUM.format(body=body), Execution(plan, ()))
    assert isinstance(forward[0], Executed)
    found = [
        run(interpreter, SUM.format(body=body), Execution(plan, (), interleaving_seed=seed))[0]
        for seed in range(40)
    ]
    # A program far behind is drawn, so this one is behind in some of so many draws.
    assert {type(one) for one in found} == {Executed, Rejection}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("body", "in_order"),
    [
        (
            "if tl.atomic_add(ticket, 1) == 0:\n        tl.store(total, 1.0)\n    tl.atomic_add(total, 1.0)",
            False,
        ),
        (
            "if (tl.atomic_add(total, 1.0) >= 0.0) & (pid == 11):\n        tl.store(total, tl.load(total) + 0.5)",
            False,
        ),
        (
            "tl.atomic_add(total, 1.0, sem='relaxed')\n    if tl.atomic_add(ticket, 1) == 11:\n        tl.store(total, 12.0)",
            True,
        ),
        (
            "tl.atomic_add(total, 1.0)\n    if tl.atomic_add(ticket, 1, sem='relaxed') == 11:\n        tl.store(total, 13.0)",
            False,
        ),
        (
            "tl.atomic_add(total, 1.0)\n    tl.atomic_max(total, tl.load(total, volatile=True))",
            True,
        ),
        (
            "old = tl.atomic_add(total, 1.0)\n    tl.atomic_max(total, tl.maximum(old, tl.load(total)))",
            False,
        ),
    ],
)
def test_what_atomics_change_is_used_otherwise_only_in_order(
    interpreter: Zygote, body: str, in_order: bool
) -> None:
    said = (summed(interpreter, body, turns=seed) for seed in range(15))
    if in_order:
        assert all(isinstance(one, list) for one in said)
    else:
        assert any(
            isinstance(one, str) and "use the same element of `total`" in one for one in said
        )


def test_a_swap_that_fails_releases_nothing(interpreter: Zygote) -> None:
    swapped = "if pid == 0:\n        tl.store(total, 5.0)\n        tl.atomic_cas(ticket, {old}, 0)\n    if pid == 1:\n        {use}"
    use = f"if tl.atomic_add(ticket, 0) >= 0:\n            {ADD}"
    assert summed(interpreter, swapped.format(old=0, use=use), turns=None) == [6.0]
    assert isinstance(summed(interpreter, swapped.format(old=7, use=use), turns=None), str)


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("tl.atomic_add(total, 1.0)\n    x = tl.load(total)", False),
        ("t = tl.atomic_add(total, 1.0)\n    x = tl.load(total)", False),
        ("tl.atomic_add(total + tl.atomic_add(ticket, 0), 1.0)\n    x = tl.load(total)", False),
        ("t = tl.atomic_add(total, 1.0)\n    tl.store(total, tl.load(total) + t)", True),
        ("tl.atomic_add(total, 1.0)\n    tl.debug_barrier()\n    x = tl.load(total)", True),
        (
            "tl.atomic_add(total, 1.0)\n    t = tl.atomic_add(ticket, 1)\n    tl.store(total, tl.load(total) + t)",
            True,
        ),
        ("tl.store(total, 1.0)\n    tl.atomic_add(ticket, 1)\n    x = tl.load(total)", False),
        (
            "tl.store(total, 1.0)\n    if tl.atomic_add(ticket, 1) == 0:\n        tl.store(total, tl.load(total) + 1.0)",
            True,
        ),
        ("tl.atomic_add(ticket, 1)\n    tl.store(total, 1.0)\n    tl.atomic_add(ticket, 1)", True),
    ],
)
def test_threads_wait_for_an_atomic_whose_result_is_read(
    interpreter: Zygote, body: str, waits: bool
) -> None:
    total, ticket = dense(0, (1,), "float32"), dense(1, (1,), "int32")
    step = launch("kernel", (1, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(
        buffers_of(total, ticket, inputs=0), (), (Fill(total, 0.0), Fill(ticket, 0), step), (total,)
    )
    answers = run(interpreter, SUM.format(body=body), Execution(plan, ()))
    assert (
        isinstance(answers[0], Executed)
        if waits
        else "another thread of it uses the element" in rejection(answers).reason
    )


def test_floats_are_exchanged(interpreter: Zygote) -> None:
    assert summed(
        interpreter,
        "old = tl.atomic_xchg(total, 1.5)\n    tl.atomic_add(ticket, (old == 0.0).to(tl.int32))",
    ) == [1.5, 1.5]


def test_order_is_passed_on_from_one_value_to_the_next(interpreter: Zygote) -> None:
    relay = (
        "if pid == 0:\n        tl.store(total, 5.0)\n        tl.atomic_xchg(ticket, 1)\n"
        "    if pid == 1:\n        while tl.atomic_add(ticket, 0) == 0:\n            pass\n        tl.atomic_xchg(ticket + 1, 1)\n"
        "    if pid == 2:\n        while tl.atomic_add(ticket + 1, 0) == 0:\n            pass\n        {last}"
    )
    assert summed(interpreter, relay.format(last=ADD)) == [6.0, 6.0]
    assert isinstance(
        summed(
            interpreter,
            relay.replace("xchg(ticket + 1, 1)", "xchg(ticket + 1, 1, sem='relaxed')").format(
                last=ADD
            ),
        ),
        str,
    )


def test_the_same_seed_draws_the_same_turns() -> None:
    def order(seed: int) -> list[int]:
        turns, ran, here = InterleavingScheduler(seed), list[int](), [0]

        def body() -> None:
            for _ in range(3):
                ran.append(here[0])
                turns.pause()

        def switch(place: int, program: tuple[int, ...]) -> None:
            here[0] = program[0]
            assert place == program[0]

        turns.run([(number,) for number in range(PROGRAMS)], body, switch)
        return ran

    first = order(1)
    assert first == order(1) != order(2) and Counter(first) == dict.fromkeys(range(PROGRAMS), 3)
    assert first != sorted(first)
    # No more than so many have begun and not ended.
    for at, number in enumerate(first):
        earlier = Counter(first[:at])
        assert (
            len({number} | {one for one, count in earlier.items() if count < 3})
            <= MAX_CONCURRENT_PROGRAMS + 1
        )


def test_what_a_program_raises_ends_all() -> None:
    turns = InterleavingScheduler(1)

    def body() -> None:
        turns.pause()
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        turns.run([(0,), (1,)], body, lambda place, program: None)


def test_programs_that_met_at_one_address_are_begun_together() -> None:
    programs = [(number,) for number in range(6)]
    assert group_by_first_atomic(programs, {(0,): 8, (1,): 4, (2,): 8, (3,): 4, (5,): 4}) == [
        (4,),
        (1,),
        (3,),
        (5,),
        (0,),
        (2,),
    ]


def test_values_of_a_program_are_its_own_when_it_goes_on(interpreter: Zygote) -> None:
    total, ticket = dense(0, (PROGRAMS,), "float32"), dense(1, (1,), "int32")
    step = launch("kernel", (PROGRAMS, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(buffers_of(total, ticket, inputs=0), (), (Fill(ticket, 0), step), (total,))
    body = "tl.atomic_add(ticket, 1)\n    tl.store(total + tl.program_id(0), pid * 1.0)\n    tl.atomic_add(ticket, 1)"
    (answer,) = run(interpreter, SUM.format(body=body), Execution(plan, (), interleaving_seed=3))
    assert isinstance(answer, Executed) and answer.outputs[0].tolist() == list(range(PROGRAMS))


def test_programs_that_share_a_ticket_run_at_one_time(interpreter: Zygote) -> None:
    # Only the first and the last program use one ticket, and change one element.
    mine = f"ticket + pid % {PROGRAMS - 1}"
    body = (
        f"if tl.atomic_add({mine}, 1) >= 0:\n        at = total + pid % {PROGRAMS - 1}\n        tl.store(at, tl.load(at) + 1.0)\n"
        f"    tl.atomic_add({mine}, 1)"
    )
    total, ticket = (
        dense(buffer, (PROGRAMS - 1,), dtype) for buffer, dtype in enumerate(("float32", "int32"))
    )
    step = launch("kernel", (PROGRAMS, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(
        buffers_of(total, ticket, inputs=0), (), (Fill(total, 0.0), Fill(ticket, 0), step), (total,)
    )
    found = [
        run(
            interpreter,
            SUM.format(body=body),
            Execution(plan, ()),
            Execution(plan, (), interleaving_seed=seed),
        )
        for seed in range(20)
    ]
    assert all(isinstance(answers[0], Executed) for answers in found)
    assert sum(isinstance(answers[-1], Rejection) for answers in found) >= 10
