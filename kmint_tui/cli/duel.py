"""A head-to-head replay for the commands: two kernels, one run, one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from kmint_tui.crowns.records import Duel


def head_to_head(challenger: str, champion: str, op: str) -> Duel:
    """Both kernels checked and timed in one run. Raises EnvironmentUnfit without a GPU, UsageError when one does not pass."""
    from kmint_tui.cli.referee import no_gpu_reason, referee_errors
    from kmint_tui.crowns.records import Duel
    from referee.duel import DuelRefused, duel

    lonely = no_gpu_reason()
    if lonely is not None:
        raise EnvironmentUnfit(f"a crown is decided on a GPU, and there is none: {lonely}")
    with referee_errors():
        try:
            found = duel(challenger, champion, op)
        except DuelRefused as refused:
            raise UsageError(f"the {refused.whose} does not pass any more: {refused.rejection.reason}", title="no duel") from refused
    ratio = found.ratio
    return Duel(
        found.decision, found.reason, ratio.ratio, ratio.low, ratio.high, found.challenger.median, found.champion.median, ratio.rounds, found.seed
    )
