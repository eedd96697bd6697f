"""The reward of a draft: the referee's verdict on it, and nothing else.

Verdicts come through the application's own interface (`kmint_tui.core.judges`): one device, or a
farm of several. With a GPU a verdict has times; without one it says right or wrong, and nothing
about speed. Each verdict is one file, named by the job, so that a restart, and a later round, asks
for missing verdicts alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convert import files
from forge.drafting import Draft
from forge.places import Place
from kmint_tui.core.book.contest import timing_at
from kmint_tui.core.farm.devices import CPU
from kmint_tui.core.farm.job import Versions
from kmint_tui.core.farm.work import visible_device
from kmint_tui.documents import compact
from kmint_tui.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from kmint_tui.core.judges import Opened
    from referee.verdict import Verdict

MOST_ERRORS = 8
"""Verdicts of "error" without any other, after which the referee counts as broken."""


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A verdict in short. `right` says that the referee accepted the kernel.

    `ratio` is the time of the fastest baseline over the kernel's, with its interval from `low` to
    `high`; None where nothing was timed.
    """

    right: bool
    verdict: str
    reason: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    bar: str | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the kernel has a ratio with an interval."""
        return None not in (self.ratio, self.low, self.high)


Key = tuple[str, str]
"""A place's name and the fingerprint of a kernel's file."""
Rewards = Mapping[Key, Reward]


class Judge:
    """Verdicts of one run, kept in `folder`. `seed` draws the inputs; the model never sees it.

    `device` is the GPU's product name, or `cpu` where nothing is timed.
    """

    def __init__(self, opened: Opened, folder: Path, seed: int) -> None:
        self._opened, self._folder, self._seed = opened, folder, seed
        folder.mkdir(parents=True, exist_ok=True)
        device = opened.farm.device if opened.farm is not None else visible_device()
        self.device = device if opened.times else CPU
        self._where = [asdict(Versions.here()), self.device]

    @property
    def level(self) -> str:
        """`full` where kernels are timed, else `correct`."""
        return "full" if self._opened.times else "correct"

    def judge_all(
        self,
        places: Sequence[Place],
        drafts: Sequence[Draft],
        *,
        seconds: float | None = None,
        tell: Callable[[str], object] = print,
    ) -> dict[Key, Reward]:
        """The reward of every different kernel; an answer without a kernel is wrong.

        With `seconds` no verdict begins later than that; kernels without a verdict have no reward.
        Raises EnvironmentUnfit where the referee itself cannot work.
        """
        until = None if seconds is None else time.monotonic() + seconds
        by_name = {place.name: place for place in places}
        found = {
            (one.place, one.same): Reward(right=False, verdict="none", reason="no kernel")
            for one in drafts
            if not one.source
        }
        wanted = {(one.place, one.same): one for one in _in_turns(drafts) if one.source}
        missing = []
        for key, draft in wanted.items():
            known = self._known(by_name[draft.place], draft)
            if known is None:
                missing.append((key, draft))
            else:
                found[key] = known
        if missing:
            tell(f"{len(missing)} kernels to judge, {len(wanted) - len(missing)} known")
        with ThreadPoolExecutor(self._opened.threads, thread_name_prefix="judge") as pool:
            try:
                found |= _collected(
                    {
                        key: pool.submit(self._judged, by_name[draft.place], draft, until)
                        for key, draft in missing
                    }
                )
            finally:
                # After an interrupt, or with a broken referee, no further verdict begins.
                pool.shutdown(cancel_futures=True)
        return found

    def _judged(self, place: Place, draft: Draft, until: float | None) -> Reward | Verdict | None:
        """The reward; the verdict itself where the referee failed, and None after the time."""
        if until is not None and time.monotonic() > until:
            return None
        verdict = self._opened.judge.judge(
            draft.source,
            place.task,
            level="full" if self._opened.times else "correct",
            seed=self._seed,
            strict=True,
        )
        if verdict.verdict == "error":
            return verdict
        reward = reward_of(verdict, place.timed.case.name)
        kept = {
            "place": place.name,
            "same": draft.same,
            "stage": verdict.stage,
            "guard": verdict.guard,
            "mode": verdict.mode,
            "device": verdict.environment.get("device"),
            "seed": verdict.seed,
            "reward": asdict(reward),
        }
        files.write_text(self._file(place, draft), json.dumps(kept, indent=1) + "\n")
        return reward

    def _known(self, place: Place, draft: Draft) -> Reward | None:
        file = self._file(place, draft)
        if not file.exists():
            return None
        return Reward(**json.loads(file.read_text(encoding="utf-8"))["reward"])

    def _file(self, place: Place, draft: Draft) -> Path:
        task: Any = place.task if isinstance(place.task, str) else asdict(place.task)
        content = compact([draft.source, task, self.level, self._seed, self._where])
        name = hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()
        return self._folder / f"{name[:32]}.json"


def reward_of(verdict: Verdict, case: str) -> Reward:
    """The reward of a verdict at a timed case. Only an accepted kernel has a ratio."""
    timing = timing_at(verdict, case) if verdict.passed else None
    interval: Mapping[str, Any] = (timing or {}).get("ratio") or {}
    return Reward(
        right=verdict.passed,
        verdict=verdict.verdict,
        reason=verdict.reason,
        ratio=interval.get("ratio"),
        low=interval.get("low"),
        high=interval.get("high"),
        bar=(timing or {}).get("bar"),
    )


def _in_turns(drafts: Sequence[Draft]) -> list[Draft]:
    """The first draft of each place, then the second: a short time is shared by all places."""
    return sorted(drafts, key=lambda one: one.number)


def _collected(pending: Mapping[Key, Future[Reward | Verdict | None]]) -> dict[Key, Reward]:
    """The rewards. Raises EnvironmentUnfit where the referee failed at everything."""
    found: dict[Key, Reward] = {}
    errors: list[str] = []
    for key, future in pending.items():
        result = future.result()
        if isinstance(result, Reward):
            found[key] = result
        elif result is not None:
            errors.append(result.reason)
        if not found and len(errors) >= min(MOST_ERRORS, len(pending)):
            raise EnvironmentUnfit(errors[0], title="the referee cannot work here")
    return found
