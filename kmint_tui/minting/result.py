"""The result of a session: its drafts, their verdicts, the ranking and the best draft, in words too.

The ranking has the best first. Wins come first by their ratio, then ties, undecided ones and
losses. Untimed correct kernels follow, by bytes spilled, memory traffic and registers. Then come
rejected ones, a later stage first, then drafts without a verdict. Equal drafts keep the order of
their numbers, so the same verdicts always give the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, get_args

from kmint_tui.history.records import State, draft_id
from kmint_tui.history.verdicts import ratio
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.reasons import TEMPLATE, TUNER, short_reason
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.tuning import Sweep
from referee.verdict import Stage, Verdict

SCHEMA = "kmint.mint/1"
_OUTCOMES = ("win", "tie", "unsure", "loss", "correct", "rejected", "error")
FIGURES = ("spills", "traffic", "registers")
_STAGES: tuple[str, ...] = get_args(Stage)
_LEADS = {
    "spills": "the fewest bytes spilled: {:.0f} a thread",
    "traffic": "the fewest bytes moved: {:.2f} times inputs and outputs",
    "registers": "the fewest registers: {:.0f} a thread",
}


@dataclass(frozen=True, kw_only=True)
class MintResult:
    """The result of one session. `drafts` are in the order of their numbers; `ranking` has their
    indices.

    `seconds` is the time of the whole session. `sweeps` are the tuner's results, one a shape.
    """

    request: MintRequest
    session: int
    state: State
    drafts: tuple[MintDraft, ...]
    verdicts: Mapping[int, Verdict]
    ranking: tuple[int, ...]
    best: int | None
    seconds: float
    sweeps: tuple[Sweep, ...] = ()

    @property
    def best_id(self) -> str | None:
        """The history id of the best draft."""
        return None if self.best is None else self.id_of(self.best)

    @property
    def drafted(self) -> int:
        """Number of drafts that the smith wrote, in all rounds."""
        return sum(draft.author == "smith" for draft in self.drafts)

    @property
    def passed(self) -> int:
        """Number of the smith's correct drafts; a duplicate counts like the draft that it repeats."""
        found = (self.verdict_of(draft) for draft in self.drafts if draft.author == "smith")
        return sum(verdict is not None and verdict.passed for verdict in found)

    def id_of(self, index: int) -> str:
        """The history id of a draft."""
        return draft_id(self.session, index)

    def verdict_of(self, draft: MintDraft) -> Verdict | None:
        """The verdict on a draft, or on the draft that it repeats."""
        return self.verdicts.get(draft.index if draft.duplicate_of is None else draft.duplicate_of)

    def to_json(self) -> dict[str, Any]:
        """The `kmint.mint/1` document."""
        documents = {index: verdict.to_json() for index, verdict in self.verdicts.items()}
        return {
            "schema": SCHEMA,
            "op": self.request.op.name,
            "model": self.request.model.id,
            "model_sha256": self.request.model_sha256,
            "model_reason": self.request.model.reason,
            "seed": self.request.seed,
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "rounds": 1 + max((draft.round for draft in self.drafts), default=0),
            "drafts": [draft.to_json(documents.get(draft.index)) for draft in self.drafts],
            "ranking": list(self.ranking),
            "best": self.best,
            "tuning": self._tuning(),
            "history_id": str(self.session),
        }

    def _tuning(self) -> dict[str, Any] | None:
        """The first sweep; of several shapes also the list of all."""
        if not self.sweeps:
            return None
        shapes = [one.to_json() for one in self.sweeps] if len(self.sweeps) > 1 else None
        return {**self.sweeps[0].to_json(), **({"shapes": shapes} if shapes else {})}


def rank(drafts: Sequence[MintDraft], verdicts: Mapping[int, Verdict]) -> tuple[int, ...]:
    """The indices of all drafts in order. Duplicates follow the judged drafts, in the order of
    their originals.
    """
    judged = sorted(
        (draft for draft in drafts if draft.index in verdicts),
        key=lambda draft: _key(draft, verdicts[draft.index]),
    )
    place = {draft.index: at for at, draft in enumerate(judged)}
    last = len(place)
    rest = [draft for draft in drafts if draft.index not in verdicts]
    rest.sort(
        key=lambda draft: (
            draft.duplicate_of is None,
            place.get(-1 if draft.duplicate_of is None else draft.duplicate_of, last),
            draft.index,
        )
    )
    return tuple(draft.index for draft in (*judged, *rest))


def best(ranking: Sequence[int], verdicts: Mapping[int, Verdict]) -> int | None:
    """The first index of the ranking with a correct kernel; None without one."""
    return next((index for index in ranking if index in verdicts and verdicts[index].passed), None)


def figures(verdict: Verdict) -> dict[str, float]:
    """The figures that rank untimed kernels, in their order, the least first.

    `spills` are bytes a thread, `traffic` is memory traffic over the bytes of inputs and outputs. A
    figure that the verdict lacks is left out.
    """
    compiled = verdict.environment.get("compiled")
    found = compiled if isinstance(compiled, Mapping) else {}
    return {
        name: float(found[name]) for name in FIGURES if isinstance(found.get(name), (int, float))
    }


def _key(draft: MintDraft, verdict: Verdict) -> tuple[float, ...]:
    order = _OUTCOMES.index(verdict.verdict)
    if verdict.verdict == "correct":
        known = figures(verdict)
        return order, *(known.get(name, inf) for name in FIGURES), draft.index
    if verdict.passed:
        return order, -(ratio(verdict.timing) or 0.0), draft.index
    return order, -_STAGES.index(verdict.stage), draft.index


def how_many(result: MintResult) -> str:
    """The number of the smith's correct drafts; kmint's template stands apart."""
    count = f"{result.passed} of {result.drafted} drafts correct"
    template = next((draft for draft in result.drafts if draft.author == "template"), None)
    return f"{count}; {TEMPLATE}: {_outcome(result, template)}" if template is not None else count


def best_of(result: MintResult) -> str:
    """The best kernel, its author where that is not the smith, and the figure that ranks it."""
    if result.best is None:
        return "no kernel passed"
    draft = next(draft for draft in result.drafts if draft.index == result.best)
    by = {"template": f" by {TEMPLATE}", "tuner": f" by {TUNER}"}.get(draft.author, "")
    return f"best: {result.best_id}{by}, {_rank(result, result.verdicts[result.best])}"


def ranges(numbers: Sequence[int], name: str = "") -> str:
    """Ascending numbers in words, each with `name` before it: "1.2", "1.2 to 1.7", "1.2, 1.4"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{name}{run[0]}" if len(run) == 1 else f"{name}{run[0]} to {name}{run[-1]}" for run in runs
    )


def _outcome(result: MintResult, draft: MintDraft) -> str:
    if draft.duplicate_of is not None:
        return f"the same kernel as {result.id_of(draft.duplicate_of)}"
    verdict = result.verdicts.get(draft.index)
    if verdict is None:
        return "not judged"
    return verdict.verdict if verdict.passed else f"{verdict.verdict}: {short_reason(verdict)}"


def _rank(result: MintResult, verdict: Verdict) -> str:
    """The best kernel's time, or, without times, the first figure in which it leads."""
    gained = ratio(verdict.timing)
    if gained is not None:
        return f"{verdict.verdict}, {gained:.3f}x the fastest baseline"
    others = [figures(one) for one in result.verdicts.values() if one.passed and one is not verdict]
    if not others:
        return "the only correct kernel (not timed)"
    own = figures(verdict)
    for name in FIGURES:
        others = [other for other in others if other.get(name) == own.get(name)]
        if not others:
            return f"{_LEADS[name].format(own.get(name, 0))} (not timed)"
    return "level with the next one in spills, bytes moved and registers (not timed)"
