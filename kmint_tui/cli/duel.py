"""A head-to-head replay for the commands: two kernels, one run, one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from kmint_tui.crowns.records import Duel


def head_to_head(challenger: str, champion: str, op: str) -> Duel:
    """Both kernels checked and timed in one run. Raises EnvironmentUnfit without a GPU, UsageError when one does not pass."""
    from kmint_tui import paths
    from kmint_tui.cli.referee import no_gpu_reason
    from kmint_tui.crowns.records import Duel
    from referee.compiling.toolchain import ToolchainError
    from referee.device.gpu import ReplayerError
    from referee.duel import DuelRefused, duel
    from referee.sandbox.workers import JobLost
    from referee.sandbox.zygote import ZygoteError
    from referee.triton_version import UnknownTriton

    lonely = no_gpu_reason()
    if lonely is not None:
        raise EnvironmentUnfit(f"a crown is decided on a GPU, and there is none: {lonely}")
    try:
        found = duel(challenger, champion, op, cache=paths.cache_dir() / "referee" / "baselines")
    except DuelRefused as refused:
        stays = "nothing was decided: the crown stays where it is"
        raise UsageError(f"the {refused.whose} is refused: {refused.rejection.reason}", title="no duel", fix=stays) from refused
    except (ReplayerError, ToolchainError, UnknownTriton, JobLost, ZygoteError) as error:
        fix = "`kmint selftest` shows what does and what does not"
        raise EnvironmentUnfit(str(error), title="the referee cannot work", fix=fix) from error
    ratio, times = found.ratio, (found.challenger.median, found.champion.median)
    return Duel(found.decision, found.reason, ratio.ratio, ratio.low, ratio.high, *times, ratio.rounds, found.seed)
