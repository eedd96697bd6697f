"""A head-to-head replay of two kernels in one run on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from kmint_tui.crowns.records import Crown, Duel
    from referee.problem import TaskName
    from referee.sandbox.demand import Demand


def head_to_head(challenger: str, champion: str, crown: Crown, *, demand: Demand) -> Duel:
    """Check and time both kernels in one run.

    Raises EnvironmentUnfit without a GPU, or where device, versions or compiler switches are not
    the crown's. Raises UsageError where a kernel does not pass.
    """
    from kmint_tui import paths
    from kmint_tui.core.measuring import referee_failures
    from kmint_tui.core.referee import no_gpu_reason
    from kmint_tui.crowns.records import Duel
    from referee.head_to_head import HeadToHeadRefused, time_head_to_head
    from referee.versions import describe_triton

    lonely = no_gpu_reason()
    if lonely is not None:
        raise EnvironmentUnfit(f"a crown is decided on a GPU, and there is none: {lonely}")
    _check_place(crown, describe_triton())
    try:
        with referee_failures(demand):
            found = time_head_to_head(
                challenger,
                champion,
                _task(crown),
                cache=paths.cache_dir() / "referee" / "baselines",
                demand=demand,
            )
    except HeadToHeadRefused as refused:
        stays = "nothing was decided: the crown stays where it is"
        raise UsageError(
            f"the {refused.whose} is refused: {refused.rejection.reason}",
            title="no duel",
            fix=stays,
        ) from refused
    _check_place(crown, found.environment)
    ratio = found.ratio
    return Duel(
        decision=found.decision,
        reason=found.reason,
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        challenger_us=found.challenger.median,
        champion_us=found.champion.median,
        rounds=ratio.rounds,
        seed=found.seed,
    )


def _task(crown: Crown) -> str | TaskName:
    """The task of a crown: the operation at its usual shape, or at the shape of the crown."""
    from kmint_tui.crowns.records import shape_of
    from referee.problem import TaskName

    shape = shape_of(crown.cell)
    return crown.op if shape is None else TaskName(crown.op, shapes=(shape,))


def _check_place(crown: Crown, environment: Mapping[str, Any]) -> None:
    from referee.versions import compiler_name

    if not (differing := crown.differences(environment)):
        return
    here = {**environment, "triton": compiler_name(environment)}
    parts = (f"{name} is {here[name]} here and {getattr(crown, name)} there" for name in differing)
    raise EnvironmentUnfit(
        f"times are not compared with those of another environment: {', '.join(parts)}",
        title="no duel",
        fix="judge the draft again here; the crown of this environment is another one",
    )
