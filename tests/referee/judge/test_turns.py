"""Programs in turns: what only another order of atomic operations shows, and what is in order in each."""

from __future__ import annotations

from collections import Counter

import pytest

from referee.interpret import Executed, Execution
from referee.interpreter.turns import AT_ONCE, Turns, together
from referee.plan import Fill, LaunchPlan
from referee.zygote import Zygote
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
    """What several programs add up from zero, one after the other and in turns; or why that is rejected."""
    total, ticket = dense(0, (1,), "float32"), dense(1, (PROGRAMS,), "int32")
    step = launch("kernel", (PROGRAMS, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(buffers_of(total, ticket, inputs=0), (), (Fill(total, 0.0), Fill(ticket, 0), step), (total,))
    runs = [Execution(plan, ()), *([Execution(plan, (), turns=turns)] if turns is not None else [])]
    answers = run(zygote, SUM.format(body=body), *runs)
    if not isinstance(answers[-1], Executed):
        return rejection(answers).reason
    return [answer.outputs[0].item() for answer in answers if isinstance(answer, Executed)]


@pytest.mark.parametrize(
    "body",
    [
        f"while tl.atomic_cas(ticket, 0, 1) == 1:\n        pass\n    {ADD}\n    tl.atomic_xchg(ticket, 0)",
        f"while tl.atomic_add(ticket, 0) != pid:\n        pass\n    {ADD}\n    tl.atomic_add(ticket, 1)",
        "tl.atomic_add(total, 1.0)",
        "if tl.atomic_add(ticket, 1) == 11:\n        tl.store(total, 12.0)",
    ],
)
def test_locks_turns_and_last_ones_are_in_order(interpreter: Zygote, body: str) -> None:
    assert summed(interpreter, body) == [PROGRAMS, PROGRAMS]


@pytest.mark.parametrize(
    "body",
    [
        f"tl.atomic_add(ticket, 1)\n    {ADD}\n    tl.atomic_add(ticket, 1)",
        f"if tl.atomic_add(ticket, 1) >= 0:\n        {ADD}\n    tl.atomic_add(ticket, 1)",
        f"if tl.atomic_cas(ticket, 0, 1) <= 1:\n        {ADD}\n    tl.atomic_xchg(ticket, 0)",
        f"tl.atomic_add(ticket + pid % 2, 1)\n    tl.atomic_add(ticket + 2, 1)\n    {ADD}\n    tl.atomic_add(ticket + 2, 1)",
    ],
)
def test_what_is_in_order_only_one_after_the_other_is_a_race_in_turns(interpreter: Zygote, body: str) -> None:
    assert summed(interpreter, body, turns=None) == [PROGRAMS]
    for seed in range(3):
        said = summed(interpreter, body, turns=seed)
        assert isinstance(said, str) and "use the same element of `total`" in said


def test_another_program_s_ticket_puts_nothing_in_order(interpreter: Zygote) -> None:
    said = summed(interpreter, f"tl.atomic_add(ticket + pid, 1)\n    {ADD}\n    tl.atomic_add(ticket + pid, 1)", turns=None)
    assert isinstance(said, str) and "programs (0, 0, 0) and (1, 0, 0) use the same element of `total`" in said


def test_order_is_passed_on_from_one_value_to_the_next(interpreter: Zygote) -> None:
    relay = (
        "if pid == 0:\n        tl.store(total, 5.0)\n        tl.atomic_xchg(ticket, 1)\n"
        "    if pid == 1:\n        while tl.atomic_add(ticket, 0) == 0:\n            pass\n        tl.atomic_xchg(ticket + 1, 1)\n"
        "    if pid == 2:\n        while tl.atomic_add(ticket + 1, 0) == 0:\n            pass\n        {last}"
    )
    assert summed(interpreter, relay.format(last=ADD)) == [6.0, 6.0]
    assert isinstance(summed(interpreter, relay.replace("xchg(ticket + 1, 1)", "xchg(ticket + 1, 1, sem='relaxed')").format(last=ADD)), str)


def test_the_same_seed_draws_the_same_turns() -> None:
    def order(seed: int) -> list[int]:
        turns, ran, here = Turns(seed), list[int](), [0]

        def body() -> None:
            for _ in range(3):
                ran.append(here[0])
                turns.pause()

        def switch(place: int, program: tuple[int, ...]) -> None:
            here[0] = program[0]
            assert place == program[0]

        turns.run(((number,) for number in range(PROGRAMS)), body, switch)
        return ran

    first = order(1)
    assert first == order(1) != order(2) and Counter(first) == dict.fromkeys(range(PROGRAMS), 3)
    assert first != sorted(first)
    # No more than so many have begun and not ended.
    for at, number in enumerate(first):
        earlier = Counter(first[:at])
        assert len({number} | {one for one, count in earlier.items() if count < 3}) <= AT_ONCE


def test_what_a_program_raises_ends_all() -> None:
    turns = Turns(1)

    def body() -> None:
        turns.pause()
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        turns.run([(0,), (1,)], body, lambda place, program: None)


def test_programs_that_met_at_one_address_are_begun_together() -> None:
    programs = [(number,) for number in range(6)]
    assert together(programs, {(0,): 8, (1,): 4, (2,): 8, (3,): 4, (5,): 4}) == [(4,), (1,), (3,), (5,), (0,), (2,)]


def test_values_of_a_program_are_its_own_when_it_goes_on(interpreter: Zygote) -> None:
    total, ticket = dense(0, (PROGRAMS,), "float32"), dense(1, (1,), "int32")
    step = launch("kernel", (PROGRAMS, 1, 1), {}, total=total, ticket=ticket)
    plan = LaunchPlan(buffers_of(total, ticket, inputs=0), (), (Fill(ticket, 0), step), (total,))
    body = "tl.atomic_add(ticket, 1)\n    tl.store(total + tl.program_id(0), pid * 1.0)\n    tl.atomic_add(ticket, 1)"
    (answer,) = run(interpreter, SUM.format(body=body), Execution(plan, (), turns=3))
    assert isinstance(answer, Executed) and answer.outputs[0].tolist() == list(range(PROGRAMS))
