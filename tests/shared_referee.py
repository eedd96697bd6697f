"""The referee that all tests of a process share where there is no GPU."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from referee.judge import SEED_BITS, Referee

if TYPE_CHECKING:
    from referee.ops.task import Task
    from referee.problem import TaskName
    from referee.verdict import Verdict

SEED = int(os.environ.get("KMINT_TEST_SEED") or secrets.randbits(SEED_BITS))
"""The seed of every verdict for which a test asks none. `KMINT_TEST_SEED` repeats a run's."""


class SharedReferee(Referee):
    """Runs a kernel that several tests judge once, as the drafts of one round with the same text.
    `Referee.judge(referee, ...)` has a seed of its own, and runs everything.
    """

    repeats = False
    """Whether verdicts have the run's seed. Where a test patches a step, each of its verdicts has a
    seed of its own: no step is left out because an earlier test has its result.
    """

    def judge(
        self,
        source: str,
        op: str | Task | TaskName,
        *,
        seed: int | None = None,
        **options: Any,
    ) -> Verdict:
        if seed is None and self.repeats:
            seed = SEED
        return super().judge(source, op, seed=seed, **options)
