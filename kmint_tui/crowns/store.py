"""Reigns in the history's database, and the rule by which a crown changes hands.

A crown has at most one holder at any moment, which the database itself guarantees. It changes hands
by a win in a head-to-head replay of both kernels. A vacant crown goes to the first kernel that beat
every baseline. A tie or an undecided duel changes nothing.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from kmint_tui.crowns.records import Claim, Crown, Duel, Outcome, Reign
from kmint_tui.documents import BadDocument, compact, parse_json
from kmint_tui.history.database import connect, damaged, transaction, translated
from kmint_tui.typed import Mistyped, made

_CROWN = "op = :op AND cell = :cell AND device = :device AND torch = :torch AND triton = :triton"
Replay = Callable[[str, str, Crown], Duel]
"""(challenger's source, champion's source, crown) timed head to head."""
ATTEMPTS = 5


class Crowns:
    """One open store of reigns. Use it from one thread, as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> Crowns:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def holder(self, crown: Crown) -> Reign | None:
        """The present reign, or None."""
        found = self._reigns(f"{_CROWN} AND ended IS NULL", vars(crown))
        return found[0] if found else None

    def reigns(self, *, op: str | None = None, past: bool = False) -> tuple[Reign, ...]:
        """Present reigns, with `past` also the ended ones; by device and op, the newest first
        within a crown.
        """
        return self._reigns(
            "(:op IS NULL OR op = :op) AND (:past OR ended IS NULL)", {"op": op, "past": past}
        )

    def settle(self, claim: Claim, champion: Reign | None, duel: Duel | None) -> Outcome | None:
        """Store the result of a claim.

        Returns None, and changes nothing, if the crown changed hands meanwhile.
        """
        with transaction(self._connection, self._path):
            present = self.holder(claim.crown)
            if (present.id if present else None) != (champion.id if champion else None):
                return None
            if present is not None:
                if duel is None or duel.decision != "win":
                    return "kept"
                self._connection.execute(
                    "UPDATE reigns SET ended = ? WHERE id = ?", (_now(), present.id)
                )
            self._crown(claim, duel)
        return "taken" if champion else "vacant"

    def _crown(self, claim: Claim, duel: Duel | None) -> None:
        content = claim.source.encode("utf-8", "replace")
        digest = hashlib.sha256(content).hexdigest()
        self._connection.execute(
            "INSERT OR IGNORE INTO texts (sha256, content) VALUES (?, ?)",
            (digest, content.decode("utf-8")),
        )
        self._connection.execute(
            "INSERT INTO reigns (op, cell, device, torch, triton, draft, model, source_sha256, "
            "began, device_us, ratio, bar, duel)"
            " VALUES (:op, :cell, :device, :torch, :triton, :draft, :model, :source, :began, "
            ":device_us, :ratio, :bar, :duel)",
            {
                **vars(claim.crown),
                "draft": claim.draft,
                "model": claim.model,
                "source": digest,
                "began": _now(),
                "device_us": claim.device_us,
                "ratio": claim.ratio,
                "bar": claim.bar,
                "duel": compact(duel.to_json()) if duel else None,
            },
        )

    def _reigns(self, condition: str, values: dict[str, object]) -> tuple[Reign, ...]:
        query = (
            "SELECT r.*, t.content AS source FROM reigns AS r JOIN texts AS t ON t.sha256 = "
            "r.source_sha256"
            f" WHERE {condition} ORDER BY device, torch, triton, op, cell, r.id DESC"
        )
        with translated(self._path):
            rows = self._connection.execute(query, values).fetchall()
        return tuple(self._reign(row) for row in rows)

    def _reign(self, row: sqlite3.Row) -> Reign:
        crown = {name: row[name] for name in ("op", "cell", "device", "torch", "triton")}
        try:
            return made(
                Reign,
                {**row, "crown": crown, "duel": parse_json(row["duel"]) if row["duel"] else None},
            )
        except (BadDocument, Mistyped, TypeError) as error:
            raise damaged(
                self._path, f"reign {row['id']} changed since it was stored: {error}"
            ) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Result:
    """The result of a claim: the holder after it, the holder before it, and the duel if there was
    one.
    """

    outcome: Outcome
    holder: Reign
    before: Reign | None
    duel: Duel | None


def challenge(crowns: Crowns, claim: Claim, replay: Replay) -> Result:
    """Decide a claim.

    Raises the errors of `replay`, and then nothing has changed. Raises RuntimeError if other claims
    keep winning meanwhile.
    """
    for _ in range(ATTEMPTS):
        champion = crowns.holder(claim.crown)
        if champion is not None and champion.source == claim.source:
            return Result("held", champion, champion, None)
        duel = replay(claim.source, champion.source, claim.crown) if champion else None
        outcome = crowns.settle(claim, champion, duel)
        if outcome is not None:
            holder = crowns.holder(claim.crown)
            assert holder is not None
            return Result(outcome, holder, champion, duel)
    raise RuntimeError(
        f"the crown for {claim.crown.op} changed hands {ATTEMPTS} times while it was being claimed"
    )
