"""A smith and a referee that play a script, for builds of a book."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from kmint_tui.core.judges import Opened
from kmint_tui.errors import KmintError
from kmint_tui.smith.events import Event
from referee.problem import Problem, TaskName
from referee.report import uncounted
from referee.variant_timing import VariantsNotTimed, VariantTime
from referee.verdict import Verdict
from tests.core.timing_stand_in import timing
from tests.mint.doubles import answer, kernel, run_done

if TYPE_CHECKING:
    from kmint_tui.service.work import Judging
    from kmint_tui.smith.prompts import Prompt
    from kmint_tui.smith.sampling import Sampling

DEVICE = "NVIDIA H200"


@dataclass
class Referee:
    """Times by a word of the source and the shape; a word without times is wrong everywhere."""

    times: Mapping[str, Mapping[str, float]]
    failing: frozenset[str] = frozenset()
    judged: list[tuple[str, str]] = field(default_factory=list)
    raced: list[list[str]] = field(default_factory=list)
    gate: threading.Event | None = None

    def _us(self, source: str, cell: str) -> float | None:
        word = next((one for one in self.times if f"'{one}'" in source), "template")
        found = self.times.get(word, {})
        return next((us for shape, us in found.items() if shape in cell), found.get(""))

    def judge(
        self,
        source: str,
        op: str | TaskName,
        *,
        level: str = "full",
        target: str | None = None,
        seed: int | None = None,
        strict: bool = False,
        count: Any = uncounted,
    ) -> Verdict:
        assert (level, strict) == ("full", True)
        problem = Problem(op)
        self.judged.append((problem.op.name, source))
        if self.gate is not None:
            self.gate.wait()
        if problem.op.name in self.failing:
            raise KmintError("the worker was lost")
        found = [
            (cell.name, self._us(source, cell.name))
            for cell in problem.cells("gpu")
            if cell.role == "bench"
        ]
        where = {"device": DEVICE, "torch": "2.11.0", "triton": "3.6.0"}
        times = [timing(name, us).to_json() for name, us in found if us is not None]
        if len(times) < len(found):
            reason = "12 of 64 elements wrong"
            return Verdict(problem.op.name, "rejected", "correct", reason, "wrong_answer", "replay")
        together = {**times[0], "shapes": times} if len(times) > 1 else times[0]
        return Verdict(
            *(problem.op.name, "win", "done", "", None, "replay"),
            timing=together,
            environment=where,
            seconds={"correct": 0.5},
        )

    def time_variants(
        self, sources: Sequence[str], op: str | TaskName, *, seed: int | None = None
    ) -> tuple[VariantTime, ...]:
        cell = Problem(op).bench()
        assert cell is not None
        self.raced.append(list(sources))
        times = [self._us(source, cell.name) for source in sources]
        if times[0] is None:
            raise VariantsNotTimed("the kernel to start from does not pass: wrong")
        return tuple(
            VariantTime(us, times[0] / us) if us else VariantTime(None, None, "wrong")
            for us in times
        )

    def opened(self) -> Opened:
        return Opened(cast("Judging", self), None, True, self, 2)


class Smith:
    """Writes kernels with the words `a` and `b` for every operation, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def draft(
        self,
        prompt: Prompt | Sequence[Prompt],
        drafts: int,
        *,
        sampling: Sampling | None = None,
        seed: int = 0,
        max_tokens: int = 768,
        only: Sequence[int] = (),
    ) -> Iterator[Event]:
        self.runs += 1
        for index in range(drafts):
            yield answer(index, kernel("ab"[index]))
        yield run_done()

    def cancel(self) -> None:
        return
