"""Reigns in the history's database. A crown has at most one holder at any moment, which the database itself guarantees."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from kmint_tui.crowns.records import Claim, Crown, Duel, Outcome, Reign
from kmint_tui.documents import compact
from kmint_tui.history.database import connect, transaction, translated

_CROWN = "op = :op AND cell = :cell AND device = :device AND torch = :torch AND triton = :triton"


class Crowns:
    """One open store of reigns. Use it from one thread, as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> Crowns:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def holder(self, crown: Crown) -> Reign | None:
        """Who reigns, or None."""
        found = self._reigns(f"{_CROWN} AND ended IS NULL", vars(crown))
        return found[0] if found else None

    def reigns(self, *, op: str | None = None, past: bool = False) -> tuple[Reign, ...]:
        """Present reigns, with `past` also the ended ones; by device and op, the newest first within a crown."""
        return self._reigns("(:op IS NULL OR op = :op) AND (:past OR ended IS NULL)", {"op": op, "past": past})

    def settle(self, claim: Claim, champion: Reign | None, duel: Duel | None) -> Outcome | None:
        """Write down what a claim came to. Returns None, and changes nothing, when the throne changed in the meantime."""
        with transaction(self._connection, self._path):
            present = self.holder(claim.crown)
            if (present.id if present else None) != (champion.id if champion else None):
                return None
            if present is not None:
                if duel is None or duel.decision != "win":
                    return "kept"
                self._connection.execute("UPDATE reigns SET ended = ? WHERE id = ?", (_now(), present.id))
            self._crown(claim, duel)
        return "taken" if champion else "vacant"

    def _crown(self, claim: Claim, duel: Duel | None) -> None:
        content = claim.source.encode("utf-8", "replace")
        digest = hashlib.sha256(content).hexdigest()
        self._connection.execute("INSERT OR IGNORE INTO texts (sha256, content) VALUES (?, ?)", (digest, content.decode("utf-8")))
        self._connection.execute(
            "INSERT INTO reigns (op, cell, device, torch, triton, draft, model, source_sha256, began, device_us, ratio, bar, duel)"
            " VALUES (:op, :cell, :device, :torch, :triton, :draft, :model, :source, :began, :device_us, :ratio, :bar, :duel)",
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
            "SELECT r.*, t.content AS source FROM reigns AS r JOIN texts AS t ON t.sha256 = r.source_sha256"
            f" WHERE {condition} ORDER BY device, torch, triton, op, cell, r.id DESC"
        )
        with translated(self._path):
            rows = self._connection.execute(query, values).fetchall()
        return tuple(_reign(row) for row in rows)


def _reign(row: sqlite3.Row) -> Reign:
    kept = {name: row[name] for name in ("id", "draft", "model", "source", "began", "ended", "device_us", "ratio", "bar")}
    crown = Crown(row["op"], row["cell"], row["device"], row["torch"], row["triton"])
    return Reign(crown=crown, duel=json.loads(row["duel"]) if row["duel"] else None, **kept)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
