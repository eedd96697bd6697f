"""The source of a command's verdicts: several devices, the session of `kmint serve`, or a referee
of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kmint_tui.core.referee import MOST_THREADS, judge_threads, open_referee
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.core.farm.farm import Farm
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.minting.tuning import Racer
    from kmint_tui.service.work import Judging
    from referee.judge import Referee
    from referee.sandbox.demand import Demand


@dataclass(frozen=True)
class Opened:
    """The source of verdicts. `no_gpu` is the reason why nothing is timed, None where kernels are.

    `racer` holds races; a session of `kmint serve` has none. `threads` is the number of verdicts
    at once. `farm` is set where several devices judge.
    """

    judge: Judging
    no_gpu: str | None
    times: bool
    racer: Racer | None = None
    threads: int = field(default_factory=judge_threads)
    farm: Farm | None = None

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of the GPU processes' work; empty where they are not this command's."""
        found: dict[str, float] = getattr(
            self.judge if self.farm is None else self.farm, "spent", {}
        )
        return found


@contextmanager
def open_judge(
    demand: Demand,
    note: Callable[[str], None],
    *,
    by_session: bool = False,
    threads: int = 1,
    asked: FarmAsked | None = None,
) -> Iterator[Opened]:
    """The requested devices, or the session of `kmint serve` with `by_session`, else a
    referee of this process.

    `note` gets the reason where the session is not used. `threads` is the maximum number of
    verdicts at once on this host. Raises EnvironmentUnfit as `open_referee` does, and the errors of
    `open_farm`.
    """
    if asked is not None and asked.asks:
        from kmint_tui.core.farm.opening import open_farm

        if by_session:
            raise UsageError(
                "--session does not go with --gpus or --ray", fix="leave --session out"
            )
        with open_farm(asked, threads=threads) as farm:
            if farm is not None:
                yield _of_farm(farm, demand)
                return
    if by_session:
        from kmint_tui.service.client import NoSession, sessions

        with ExitStack() as opened:
            try:
                found = opened.enter_context(sessions(threads, demand))
            except NoSession as error:
                note(f"{error.message}: this process judges; {error.fix}")
            else:
                replays = found.hello.mode == "replay"
                yield Opened(found, found.hello.no_gpu, replays, threads=threads)
                return
    with open_referee(demand, note) as referee:
        yield of_referee(referee, threads)


def of_referee(referee: Referee, threads: int | None = None) -> Opened:
    """A referee of this process as a judge."""
    replays = referee.mode == "replay"
    return Opened(referee, referee.no_gpu, replays, referee, threads or judge_threads())


def _of_farm(farm: Farm, demand: Demand) -> Opened:
    from kmint_tui.core.farm.devices import CPU
    from kmint_tui.core.farm.judging import FarmJudge

    judge = FarmJudge(farm, demand)
    without = "the cluster's processors judge" if farm.device == CPU else None
    racer = judge if without is None else None
    return Opened(judge, without, without is None, racer, min(farm.places, MOST_THREADS), farm)
